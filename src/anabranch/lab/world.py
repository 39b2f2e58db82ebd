"""A world: places, links and faults, and virtual time in which they meet."""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np

from anabranch.lab.network import Network
from anabranch.lab.places import ClientPlace, NodePlace, Place, SourcePlace
from anabranch.lab.records import ClientRecord, StreamRecord
from anabranch.lab.simulation import Simulation
from anabranch.lab.spec import Fault, FaultKind, FragmentSpec, WorldSpec
from anabranch.lab.trace import Trace
from anabranch.protocol.dpc.client import Client
from anabranch.protocol.dpc.entry import EntryPoint
from anabranch.protocol.dpc.items import Element
from anabranch.protocol.dpc.line import Limits, LineSpec
from anabranch.protocol.dpc.messages import Message
from anabranch.protocol.dpc.node import Node, NodeSpec
from anabranch.protocol.dpc.windows import windows


class Store(Protocol):
    """Where the outputs of nodes rest: the lab's memory, or a log of the production kind."""

    def say(self, node: str, stream: str, elements: tuple[Element, ...]) -> None: ...

    def drop_overlay(self, node: str, stream: str) -> None: ...


class Memory:
    """Records are enough."""

    def say(self, node: str, stream: str, elements: tuple[Element, ...]) -> None:
        pass

    def drop_overlay(self, node: str, stream: str) -> None:
        pass


class World:
    def __init__(
        self, spec: WorldSpec, *, trace: bool = False, detailed: bool = False, store: Store | None = None
    ) -> None:
        self.spec = spec
        self.simulation = Simulation()
        self.trace = Trace(trace)
        self.store: Store = store or Memory()
        self.chance = np.random.default_rng(spec.seed)
        self.network = Network(self.simulation, spec.link, self.chance, self._deliver)
        # When a node began to say something tentative, how long it had waited, and how long it may wait.
        self.first_tentative: list[tuple[int, str, int, int]] = []
        self.sources = {s.name: self._source(s.name) for s in spec.sources}
        self.nodes = {name: self._node(f, name) for f in spec.fragments for name in f.nodes}
        self.clients = {name: self._client(name, detailed) for name in spec.clients}
        self.places: dict[str, Place] = {**self.sources, **self.nodes, **self.clients}
        self.relapsing: dict[str, int] = {}  # nodes that will crash so soon after they begin to reconcile
        for fault in sorted(spec.faults):
            self.simulation.at(fault.at, self._begin, fault)
            self.simulation.at(fault.until, self._end, fault)

    def _source(self, name: str) -> SourcePlace:
        spec = next(s for s in self.spec.sources if s.name == name)
        entry = EntryPoint(name, name, self.spec.bucket, self.spec.readers(name), most=self.spec.source_most)
        return SourcePlace(self, spec, entry)

    def _node(self, fragment: FragmentSpec, name: str) -> NodePlace:
        spec = self.spec
        producers = spec.producers
        limits = spec.limits
        if limits.window is not None:
            limits = Limits(window=self._windows(limits.window)[fragment.name])
        node = NodeSpec(
            name=name,
            inputs={stream: _from(producers[stream], name) for stream in fragment.inputs},
            lines=tuple(
                LineSpec(line, reads, spec.readers(line), boxes.reach)
                for line, (reads, boxes) in fragment.lines.items()
            ),
            partners=tuple(partner for partner in fragment.nodes if partner != name),
            bucket=spec.bucket,
            timing=spec.timing,
            rules=spec.rules,
            limits=limits,
            ordered=spec.ordered,
            truncates=spec.truncates,
        )
        boxes = {line: made for line, (_, made) in fragment.lines.items()}
        skew = int(self.chance.integers(-spec.skew, spec.skew + 1)) if spec.skew else 0
        return NodePlace(self, Node(node, fragment.delays or spec.delays), boxes, skew)

    def _windows(self, corrected: int) -> dict[str, int]:
        """How much each fragment keeps so that so much of the past is corrected."""
        fragments = self.spec.fragments
        readers = {f.name: [g.name for g in fragments if set(f.lines) & set(g.inputs)] for f in fragments}
        reach = {f.name: max(boxes.reach for _, boxes in f.lines.values()) for f in fragments}
        return windows(readers, reach, corrected)

    def _client(self, name: str, detailed: bool) -> ClientPlace:
        producers = self.spec.producers
        inputs = {stream: producers[stream] for stream in self.spec.clients[name]}
        both = self.spec.rules.both_connections
        client = Client(name, inputs, self.spec.bucket, self.spec.timing, both=both)
        return ClientPlace(self, client, detailed)

    def _deliver(self, sender: str, to: str, message: Message) -> None:
        if self.trace.keep:
            kind = type(message).__name__.lower()
            self.trace.line(self.simulation.now, to, f"hears {kind} {sender} {getattr(message, 'stream', '')}".rstrip())
        self.places[to].receive(sender, message)

    def run(self, until: int | None = None) -> Self:
        """Let the world happen, to its end or to a moment."""
        if self.simulation.now == 0:
            for place in self.places.values():
                place.start(False)
        self.simulation.run(self.spec.duration + self.spec.calm if until is None else until)
        return self

    # Faults.

    def _begin(self, fault: Fault) -> None:
        self.trace.line(self.simulation.now, "fault", f"begins {fault}")
        match fault.kind:
            case FaultKind.CUT | FaultKind.ONE_WAY:
                for link in self._links(fault):
                    self.network.cut(*link)
            case FaultKind.CRASH:
                if self.places[fault.a].alive:
                    self.places[fault.a].crash()
            case FaultKind.RELAPSE:
                self.relapsing[fault.a] = int(fault.amount)
            case FaultKind.PAUSE:
                self.places[fault.a].pause(fault.until)
            case FaultKind.MUTE:
                self.sources[fault.a].muted += 1
            case FaultKind.LOSE:
                for link in self._links(fault):
                    self.network.lose(*link, fault.amount)
            case FaultKind.SLOW:
                for link in self._links(fault):
                    self.network.slow(*link, int(fault.amount))

    def _end(self, fault: Fault) -> None:
        self.trace.line(self.simulation.now, "fault", f"ends {fault}")
        match fault.kind:
            case FaultKind.CUT | FaultKind.ONE_WAY:
                for link in self._links(fault):
                    self.network.heal(*link)
            case FaultKind.CRASH | FaultKind.RELAPSE:
                self.relapsing.pop(fault.a, None)
                if not self.places[fault.a].alive:
                    self.places[fault.a].start(True)
            case FaultKind.MUTE:
                self.sources[fault.a].muted -= 1
            case FaultKind.LOSE:
                for link in self._links(fault):
                    self.network.lose(*link, 0.0)
            case FaultKind.SLOW:
                for link in self._links(fault):
                    self.network.slow(*link, -int(fault.amount))

    def reconciling(self, node: str) -> None:
        """A node begins to reconcile its state: if a relapse waits for that, it crashes soon."""
        if node in self.relapsing:
            self.simulation.at(self.simulation.now + self.relapsing.pop(node), self._relapse, node)

    def _relapse(self, node: str) -> None:
        if self.places[node].alive:
            self.places[node].crash()

    def _links(self, fault: Fault) -> list[tuple[str, str]]:
        there = [(fault.a, fault.b)]
        return there if fault.kind is FaultKind.ONE_WAY else [*there, (fault.b, fault.a)]

    # What was seen.

    def client_record(self, client: str, stream: str | None = None) -> ClientRecord:
        records = self.clients[client].records
        return records[stream] if stream is not None else next(iter(records.values()))

    @property
    def stream_records(self) -> list[StreamRecord]:
        return [record for node in self.nodes.values() for record in node.records]


def _from(replicas: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Replicas in the order in which a reader prefers them: its own letter first, so that load spreads."""
    own = [replica for replica in replicas if replica[-1] == name[-1]]
    return (*own, *(replica for replica in replicas if replica not in own))
