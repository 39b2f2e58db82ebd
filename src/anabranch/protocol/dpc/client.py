"""The proxy of a client: it reads output streams as a downstream node would, and delivers them (DPC 2.2).

It watches all replicas, switches by Table II, keeps both connections while one reconciles, acknowledges stable items,
and hands everything that is new to the application: `Deliver`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from anabranch.protocol.dpc.actions import Action, Event, Note, Received, Send, Started, Tick, Wake
from anabranch.protocol.dpc.inputs import InputStream, heard
from anabranch.protocol.dpc.items import Boundary, Element
from anabranch.protocol.dpc.messages import Flow, Heartbeat, HeartbeatRequest
from anabranch.protocol.dpc.monitor import Monitor
from anabranch.protocol.dpc.node import CHANNELS, Timing


class Deliver(NamedTuple):
    """What the application gets."""

    stream: str
    elements: tuple[Element, ...]
    sender: str


ClientAction = Action | Deliver


class Client:
    def __init__(
        self, name: str, inputs: Mapping[str, tuple[str, ...]], bucket: int, timing: Timing, *, both: bool = True
    ) -> None:
        self.name = name
        self.bucket = bucket
        self.timing = timing
        self._replicas = inputs
        self._both = both
        self._start(0)

    def _start(self, incarnation: int) -> None:
        self.inputs = {
            name: InputStream(
                name,
                replicas,
                stall=self.timing.stall,
                silence=self.timing.silence,
                both=self._both,
                first_channel=incarnation * CHANNELS,
            )
            for name, replicas in self._replicas.items()
        }
        peers = dict.fromkeys(replica for replicas in self._replicas.values() for replica in replicas)
        self.monitor = Monitor(peers, self.timing.keep_alive, self.timing.patience)
        self.reached = dict.fromkeys(self.inputs, 0)  # until where anything came, stable or tentative
        self._wake: int | None = None

    def handle(self, event: Event, now: int) -> list[ClientAction]:
        actions: list[ClientAction] = []
        match event:
            case Received(sender, Flow() as flow):
                self._flow(sender, flow, now, actions)
            case Received(sender, Heartbeat() as answer):
                if heard(self.monitor, self.inputs, sender, answer):
                    self._review(now, actions)
            case Tick():
                self._wake = None
                self._tick(now, actions)
            case Started(incarnation, _):
                self._start(incarnation)
                self._tick(now, actions)
        wake = max(self.monitor.next_wake, now + 1)
        if self._wake is None or wake < self._wake:
            self._wake = wake
            actions.append(Wake(wake))
        return actions

    def _flow(self, sender: str, flow: Flow, now: int, actions: list[ClientAction]) -> None:
        stream = self.inputs[flow.stream]
        elements, again = stream.accept(sender, flow, now)
        if elements:
            actions.append(Deliver(flow.stream, tuple(elements), sender))
            stimes = [element.stime for element in elements if isinstance(element, Boundary)]
            self.reached[flow.stream] = max([self.reached[flow.stream], *stimes])
        if again:
            self._review(now, actions)

    def _tick(self, now: int, actions: list[ClientAction]) -> None:
        for peer in self.monitor.overdue(now):
            actions.append(Note("away", peer, ""))
        if self.monitor.due(now):
            request = HeartbeatRequest(now, {name: stream.last for name, stream in self.inputs.items()})
            actions += [Send(peer, request) for peer in self.monitor.peers]
        self._review(now, actions)

    def _review(self, now: int, actions: list[ClientAction]) -> None:
        for name, stream in self.inputs.items():
            actions += stream.review(self.monitor.of(name), self.reached[name] // self.bucket, now)
