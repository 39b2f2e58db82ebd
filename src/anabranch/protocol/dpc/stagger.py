"""Staggered stabilisation: of the replicas of a node at least one stays available (DPC 4.4.3, Fig. 9).

Before it reconciles its state a node asks one of its replicas. That one grants, and promises not to reconcile
meanwhile, unless it is reconciling already, or must do so too and has the lower identifier. A node that is refused
waits and asks again, another replica perhaps. A node none of whose replicas answers goes unasked.

A promise is renewed by repeating the request and ends with `AuthorizationReturned`; a replica that was given it and
is heard of no more cannot hold it for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.protocol.dpc.actions import Send
from anabranch.protocol.dpc.messages import AuthorizationReply, AuthorizationRequest, AuthorizationReturned

_RENEWALS = 3  # a promise outlives this many lost renewals


class Stagger:
    def __init__(
        self, me: str, partners: Sequence[str], retry: int, patience: int, *, on: bool = True, tie_break: bool = True
    ) -> None:
        self.me = me
        self.partners = tuple(partners)
        self.retry = retry
        self.patience = patience
        self._on = on
        self._tie_break = tie_break
        self._asked: tuple[str, int] | None = None  # whom, and when
        self._rest_until = 0
        self._turn = 0
        self._silent: set[str] = set()  # asked in vain since the last answer
        self._holder: str | None = None  # who has promised
        self._granted = False
        self._renew_at = 0
        self._promises: dict[str, int] = {}

    # The side that asks.

    def ask(self, now: int) -> list[Send]:
        """The node could reconcile: go on asking. `authorised` tells when it may."""
        if not self._on or self._granted:
            self._granted = True
            return []
        if self._asked is not None:
            whom, sent = self._asked
            if now < sent + self.patience:
                return []
            self._silent.add(whom)
            self._asked = None
        if self._silent.issuperset(self.partners):
            self._granted = True  # nobody can be reached
            self._silent.clear()
            return []
        if now < self._rest_until or self.covering(now):
            return []
        candidates = [p for p in self.partners if p not in self._silent]
        whom = candidates[self._turn % len(candidates)]
        self._turn += 1
        self._asked = whom, now
        return [Send(whom, AuthorizationRequest(now))]

    @property
    def authorised(self) -> bool:
        return self._granted

    def replied(self, sender: str, reply: AuthorizationReply, now: int) -> list[Send]:
        if self._asked != (sender, reply.sent):
            # An answer that came too late: a promise that nobody needs is given back.
            return [Send(sender, AuthorizationReturned())] if reply.granted and sender != self._holder else []
        self._asked = None
        self._silent.clear()
        if reply.granted:
            self._granted = True
            self._holder = sender
            self._renew_at = now + self.retry
        else:
            self._rest_until = now + self.retry
        return []

    def renew(self, now: int) -> list[Send]:
        """While the node reconciles: repeat the request."""
        if self._holder is None or now < self._renew_at:
            return []
        self._renew_at = now + self.retry
        return [Send(self._holder, AuthorizationRequest(now))]

    def finish(self) -> list[Send]:
        """The node has reconciled, or does not want to any more."""
        sends = [] if self._holder is None else [Send(self._holder, AuthorizationReturned())]
        self._granted = False
        self._holder = None
        self._asked = None
        self._silent.clear()
        return sends

    # The side that answers.

    def answer(
        self, sender: str, request: AuthorizationRequest, now: int, *, reconciling: bool, wanting: bool
    ) -> list[Send]:
        """Accept, except while reconciling or when both must and this one goes first."""
        held = now < self._promises.get(sender, 0)
        first = wanting and (self.me < sender or not self._tie_break)
        granted = not self._on or held or not (reconciling or first)
        if granted and self._on:
            self._promises[sender] = now + _RENEWALS * self.retry + self.patience
        return [Send(sender, AuthorizationReply(request.sent, granted))]

    def returned(self, sender: str) -> None:
        self._promises.pop(sender, None)

    def covering(self, now: int) -> bool:
        """Whether this node has promised to stay available."""
        return any(now < until for until in self._promises.values())

    @property
    def next_wake(self) -> int | None:
        times = list(self._promises.values())
        if self._asked is not None:
            times.append(self._asked[1] + self.patience)
        if self._holder is not None:
            times.append(self._renew_at)
        if self._rest_until:
            times.append(self._rest_until)
        return min(times, default=None)
