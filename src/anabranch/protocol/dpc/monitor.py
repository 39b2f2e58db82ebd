"""Heartbeats to every replica of every upstream neighbour (DPC 4.2.3).

Every so often each is asked, and answers with the states of its streams. One that has not answered within `patience`
is in FAILURE, as far as can be seen from here, until it answers again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from anabranch.protocol.dpc.messages import Heartbeat
from anabranch.protocol.dpc.states import State


class Monitor:
    def __init__(self, peers: Iterable[str], period: int, patience: int) -> None:
        assert patience <= period, "an answer is due before the next question"
        self.peers = tuple(peers)
        self.period = period
        self.patience = patience
        self._states: dict[str, Mapping[str, State]] = {}
        self._full: dict[str, frozenset[str]] = {}
        self._incarnations: dict[str, int] = {}
        self._asked: dict[str, int] = {}  # when the question that is not answered yet was sent
        self._next = 0
        self._check = 0  # when answers to the last question are due; 0: looked at

    def due(self, now: int) -> bool:
        """Whether it is time to ask; then the caller asks all peers."""
        if now < self._next:
            return False
        self._next = now + self.period
        self._check = now + self.patience
        for peer in self.peers:
            self._asked.setdefault(peer, now)
        return True

    def overdue(self, now: int) -> list[str]:
        """The peers that have just been found not to answer."""
        if not self._check or now < self._check:
            return []
        self._check = 0
        late = [peer for peer, sent in self._asked.items() if now >= sent + self.patience and peer in self._states]
        for peer in late:
            del self._states[peer]
            self._full.pop(peer, None)
        return late

    def answered(self, peer: str, answer: Heartbeat) -> tuple[bool, bool]:
        """Take an answer. Whether it says something new, and whether the peer has started anew."""
        asked = self._asked.get(peer)
        if asked is not None and answer.sent >= asked:
            del self._asked[peer]
        new = self._states.get(peer) != answer.states or self._full.get(peer, frozenset()) != answer.full
        anew = self._incarnations.get(peer, answer.incarnation) != answer.incarnation
        self._states[peer] = answer.states
        self._full[peer] = answer.full
        self._incarnations[peer] = answer.incarnation
        return new or anew, anew

    def state(self, peer: str, stream: str) -> State:
        return self._states.get(peer, _NONE).get(stream, State.FAILURE)

    def of(self, stream: str) -> Callable[[str], State]:
        """The state of a stream at a replica, as far as is known."""
        return lambda replica: self.state(replica, stream)

    def is_full(self, stream: str) -> bool:
        """Whether a replica waits for its readers to take more of a stream."""
        return any(stream in full for full in self._full.values())

    @property
    def next_wake(self) -> int:
        """When the node must look again."""
        return min(self._check, self._next) if self._check else self._next


_NONE: Mapping[str, State] = {}
