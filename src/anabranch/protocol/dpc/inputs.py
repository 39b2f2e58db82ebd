"""The downstream end of a stream: from which replica it comes, and what of it is new (DPC 4.3, 4.4.3).

`main` is the current replica of Table II. While a replica reconciles its state, a second connection brings its
corrections in the background: `aux`. Stable items are known by their identity, so it does not matter on which
connection they come, or how often. Messages of a connection are numbered; after a gap the node subscribes again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from anabranch.protocol.dpc.actions import Action, Note, Send
from anabranch.protocol.dpc.items import BEGIN, Boundary, Element, Insertion, ItemId, RecDone, Tentative, Undo
from anabranch.protocol.dpc.messages import Flow, Heartbeat, Subscribe, Unsubscribe
from anabranch.protocol.dpc.monitor import Monitor
from anabranch.protocol.dpc.states import State
from anabranch.protocol.dpc.switching import switch

_DOUBLINGS = 6  # of the wait for a first answer: what a reader missed may take long to send

StateOf = Callable[[str], State]


class Status(Enum):
    OK = "ok"
    CORRECTING = "correcting"  # corrections are coming
    FAILING = "failing"


@dataclass(slots=True)
class Connection:
    replica: str
    channel: int
    opened: int
    expected: int = 1
    broken: bool = False  # something that was sent is lost


class InputStream:
    def __init__(
        self,
        name: str,
        replicas: Sequence[str],
        *,
        stall: int,
        silence: int,
        first_channel: int = 0,
        both: bool = True,
    ) -> None:
        self.name = name
        self.replicas = tuple(replicas)
        self.stall = stall
        self.silence = silence
        self.main: Connection | None = None
        self.aux: Connection | None = None
        self.last = BEGIN
        self.boundary = 0
        self.tentative = False  # whether tentative items followed the last stable one
        self.tentative_boundary = 0
        self.moved = 0  # when the stable boundary last moved
        self.heard = 0  # when any boundary last moved
        self.lost: ItemId | None = None  # stable items up to here cannot be had any more
        self._both = both
        self._channel = first_channel
        self._now = 0
        self._attempts = 0  # subscriptions since anything came
        self._noted: tuple[State, str] | None = None

    # Whom to read.

    def review(self, state_of: StateOf, resume: int | None, now: int) -> list[Action]:
        """Apply Table II, and keep a second connection where there are corrections to be had."""
        self._now = now
        for connection in (self.main, self.aux):
            patience = self.stall << min(self._attempts, _DOUBLINGS)
            if connection is not None and connection.expected == 1 and now - connection.opened >= patience:
                connection.broken = True  # the subscription, or its first answer, was lost; or it takes long
                self._attempts += 1
        current = State.FAILURE if self.main is None else state_of(self.main.replica)
        if current is State.UP_FAILURE and now - self.heard >= self.silence:
            current = State.FAILURE  # it lives, but brings nothing: no better than one that is gone
        main = None if self.main is None else self.main.replica
        decision = switch(current, {r: state_of(r) for r in self.replicas if r != main})
        actions: list[Action] = []
        if self._noted != (current, decision.row.name) or decision.to is not None:
            self._noted = current, decision.row.name
            actions.append(Note("rule", self.name, f"{int(decision.row)}"))
        if decision.to is not None and (self._both or current is not State.STABILIZATION):
            actions += self._move_to(decision.to, current, resume)
        elif self.main is not None and self.main.broken and current is not State.FAILURE:
            actions += self._subscribe_main(self.main.replica, resume)
        if self._both:
            actions += self._second(state_of)
        elif self.main is None:
            actions += self._only(state_of, resume)
        return actions

    def _move_to(self, replica: str, current: State, resume: int | None) -> list[Action]:
        actions: list[Action] = []
        old = self.main
        if self.aux is not None and self.aux.replica == replica:
            self.aux = None  # its channel is replaced by the new one
        if old is not None:
            if current is State.STABILIZATION and not old.broken and self.aux is None:
                self.aux = old  # it goes on correcting in the background
            else:
                actions.append(Send(old.replica, Unsubscribe(self.name, old.channel)))
        return actions + self._subscribe_main(replica, resume)

    def _subscribe_main(self, replica: str, resume: int | None) -> list[Action]:
        wanted = self.last.bucket if resume is None else resume
        self.main, send = self._subscribe(replica, self.tentative, max(wanted, 0))
        return [Note("subscribe", self.name, replica), send]

    def _second(self, state_of: StateOf) -> list[Action]:
        """The connection that brings corrections: to a replica in STABILIZATION, while the main one is not stable."""
        actions: list[Action] = []
        stable = self.main is not None and state_of(self.main.replica) is State.STABLE
        if self.aux is not None and (
            stable or self.aux.broken or state_of(self.aux.replica) is not State.STABILIZATION
        ):
            actions.append(Send(self.aux.replica, Unsubscribe(self.name, self.aux.channel)))
            self.aux = None
        if self.aux is None and not stable:
            main = None if self.main is None else self.main.replica
            for replica in self.replicas:
                if replica != main and state_of(replica) is State.STABILIZATION:
                    self.aux, send = self._subscribe(replica, False, None)
                    return [*actions, Note("second", self.name, replica), send]
        return actions

    def _only(self, state_of: StateOf, resume: int | None) -> list[Action]:
        found = [r for r in self.replicas if state_of(r) is State.STABILIZATION]
        return self._subscribe_main(found[0], resume) if found else []

    def _subscribe(self, replica: str, tentative: bool, resume: int | None) -> tuple[Connection, Send]:
        self._channel += 1
        self.heard = self._now
        wanted = Subscribe(self.name, self._channel, self.last, tentative, resume)
        return Connection(replica, self._channel, self._now), Send(replica, wanted)

    def restarted(self, replica: str) -> None:
        """A replica has started anew: it knows nothing of its channels."""
        for connection in (self.main, self.aux):
            if connection is not None and connection.replica == replica:
                connection.broken = True

    # What comes.

    def accept(self, sender: str, flow: Flow, now: int) -> tuple[list[Element], bool]:
        """The elements that are new, and whether the node must subscribe again because some were lost."""
        main = self._is(self.main, sender, flow)
        if not main and not self._is(self.aux, sender, flow):
            return [], False
        connection = self.main if main else self.aux
        assert connection is not None
        if flow.number != connection.expected or connection.broken:
            connection.broken = True
            return [], True
        connection.expected += 1
        self._attempts = 0
        if flow.lost is not None and flow.lost > self.last:
            self.lost = self.last = flow.lost
        return [new for element in flow.elements if (new := self._new(element, main, now)) is not None], False

    def _is(self, connection: Connection | None, sender: str, flow: Flow) -> bool:
        return connection is not None and connection.replica == sender and connection.channel == flow.channel

    def _new(self, element: Element, main: bool, now: int) -> Element | None:
        match element:
            case Insertion(chunk):
                new = chunk.after(self.last)
                if new is None:
                    return None
                self.last = new.last
                return Insertion(new)
            case Boundary(stime, False, _):
                if stime <= self.boundary:
                    return None
                self.boundary = stime
                self.moved = self.heard = now
                return element
            case Undo():
                if not main:  # what is tentative comes from the main replica
                    return None
                self.tentative = False
                self.tentative_boundary = 0
                return element
            case Tentative() if main:
                self.tentative = True
                return element
            case Boundary(stime, True, _) if main:
                self.tentative_boundary = stime
                self.heard = now
                return element
            case RecDone():
                return element
        return None

    # How it is.

    def status(self, state_of: StateOf, now: int) -> Status:
        """Whether the stream can be relied on; a source that has stopped to send boundaries cannot."""
        if self.main is None and now - self.moved < self.stall:
            return Status.OK  # it has just begun
        state = State.FAILURE if self.main is None or self.main.broken else state_of(self.main.replica)
        if state is State.STABLE and not self.tentative and now - self.moved < self.stall:
            return Status.OK
        if state is State.STABILIZATION or (self.aux is not None and not self.aux.broken):
            return Status.CORRECTING
        return Status.FAILING

    def is_lost(self, state_of: StateOf, now: int) -> bool:
        """Whether nothing is to be expected soon."""
        if self.main is None or self.main.broken:
            return True
        state = state_of(self.main.replica)
        if state is State.STABLE:
            return now - self.moved >= self.stall
        return state is State.FAILURE


def heard(monitor: Monitor, inputs: Mapping[str, InputStream], sender: str, answer: Heartbeat) -> bool:
    """Take a heartbeat; whether it says something new. One that has started anew must be asked for everything again."""
    new, anew = monitor.answered(sender, answer)
    if anew:
        for stream in inputs.values():
            stream.restarted(sender)
    return new
