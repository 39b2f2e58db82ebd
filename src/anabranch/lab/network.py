"""Links: messages take time, may be lost, and do not pass where a link is cut.

Every ordered pair of places has a link, with one connection for data and one for control. Messages of a connection
arrive in the order in which they were sent, as over TCP; what is sent or under way while the link is cut is lost, as
when a connection breaks. A link may also lose single messages: harsher than TCP, and the protocol must not mind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from anabranch.lab.simulation import SECOND, Simulation
from anabranch.protocol.dpc.items import Insertion, Tentative
from anabranch.protocol.dpc.messages import Flow, Message

Deliver = Callable[[str, str, Message], None]


@dataclass(frozen=True)
class LinkSpec:
    """Times in microseconds; bandwidth in tuples a second, None for more than is needed."""

    latency: int = 1_000
    jitter: int = 0
    bandwidth: int | None = None
    set_up: int = 0  # what it takes to open a connection for a stream


class Network:
    def __init__(self, simulation: Simulation, spec: LinkSpec, chance: np.random.Generator, deliver: Deliver) -> None:
        self._simulation = simulation
        self._spec = spec
        self._chance = chance
        self._deliver = deliver
        self._cut: Counter[tuple[str, str]] = Counter()  # how many faults cut it
        self._loss: dict[tuple[str, str], float] = {}
        self._slower: Counter[tuple[str, str]] = Counter()
        self._free: dict[tuple[str, str, bool], int] = {}  # when the last message has arrived
        self._epoch: Counter[tuple[str, str]] = Counter()
        self.lost = 0

    def send(self, sender: str, to: str, message: Message, extra: int = 0) -> None:
        link = sender, to
        if self._cut and self._cut[link]:
            self.lost += 1
            return
        if self._loss and self._chance.random() < self._loss.get(link, 0.0):
            self.lost += 1
            return
        spec = self._spec
        delay = spec.latency + extra + (self._slower[link] if self._slower else 0)
        if spec.jitter:
            delay += int(self._chance.integers(spec.jitter))
        data = isinstance(message, Flow)
        connection = sender, to, data
        arrival = max(self._simulation.now + delay, self._free.get(connection, 0))
        if data and spec.bandwidth is not None:
            arrival += _tuples(message) * SECOND // spec.bandwidth
        self._free[connection] = arrival
        self._simulation.at(arrival, self._arrive, sender, to, message, self._epoch[link])

    def _arrive(self, sender: str, to: str, message: Message, epoch: int) -> None:
        link = sender, to
        if self._cut and (self._cut[link] or self._epoch[link] != epoch):
            self.lost += 1
            return
        self._deliver(sender, to, message)

    def cut(self, sender: str, to: str) -> None:
        self._cut[sender, to] += 1
        self._epoch[sender, to] += 1

    def heal(self, sender: str, to: str) -> None:
        self._cut[sender, to] -= 1

    def is_cut(self, sender: str, to: str) -> bool:
        return self._cut[sender, to] > 0

    def lose(self, sender: str, to: str, share: float) -> None:
        self._loss[sender, to] = share

    def slow(self, sender: str, to: str, by: int) -> None:
        self._slower[sender, to] += by


def _tuples(flow: Message) -> int:
    assert isinstance(flow, Flow)
    return sum(e.chunk.tuples for e in flow.elements if isinstance(e, Insertion | Tentative))
