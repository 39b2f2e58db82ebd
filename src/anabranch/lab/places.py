"""Drivers of protocol objects in the lab: they feed events and carry out actions, in virtual time.

A place is where something runs: a node, a source, a client. Each has a clock of its own, which may be off by a little.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.lab.boxes import Boxes
from anabranch.lab.records import ClientRecord, StateRecord, StreamRecord
from anabranch.model.errors import AnabranchError
from anabranch.protocol.dpc.actions import (
    BeginOverlay,
    DropCheckpoint,
    Emitted,
    Event,
    GiveState,
    Note,
    Persist,
    Process,
    Processed,
    Received,
    Reset,
    Restore,
    Send,
    Started,
    TakeCheckpoint,
    TakeState,
    Tick,
    Wake,
)
from anabranch.protocol.dpc.client import Client, Deliver
from anabranch.protocol.dpc.entry import EntryPoint
from anabranch.protocol.dpc.items import Item
from anabranch.protocol.dpc.messages import LineState, Message, StateReply, Subscribe
from anabranch.protocol.dpc.node import Node
from anabranch.protocol.dpc.states import State

if TYPE_CHECKING:
    from anabranch.lab.spec import SourceSpec
    from anabranch.lab.world import World


class Place(ABC):
    """What all places have in common: being alive, paused, and woken."""

    def __init__(self, world: World, name: str, skew: int = 0) -> None:
        self.world = world
        self.name = name
        self.skew = skew
        self.alive = True
        self.incarnation = 0
        self._paused_until = 0
        self._pending: int | None = None

    @property
    def now(self) -> int:
        """What the place's own clock shows."""
        return self.world.simulation.now + self.skew

    def receive(self, sender: str, message: Message) -> None:
        self.take(Received(sender, message))

    def take(self, event: Event) -> None:
        """An event, unless the place is down; later, if it is paused."""
        if not self.alive:
            return
        now = self.world.simulation.now
        if now < self._paused_until:
            self.world.simulation.at(self._paused_until, self._resumed, event, self.incarnation)
            return
        self.handle(event)

    def _resumed(self, event: Event, incarnation: int) -> None:
        if incarnation == self.incarnation:
            self.take(event)

    @abstractmethod
    def start(self, empty: bool) -> None:
        """Begin, or begin again with nothing remembered."""

    @abstractmethod
    def crash(self) -> None:
        """Be gone, until started again."""

    @abstractmethod
    def handle(self, event: Event) -> None:
        """Give an event to the protocol, and carry out what it says."""

    def pause(self, until: int) -> None:
        self._paused_until = max(self._paused_until, until)

    def wake(self, at: int) -> None:
        self._pending = at
        self.world.simulation.at(at - self.skew, self._awake, at, self.incarnation)

    def _awake(self, at: int, incarnation: int) -> None:
        if at == self._pending and incarnation == self.incarnation:
            self.take(Tick())

    def send(self, action: Send) -> None:
        extra = self.world.spec.link.set_up if isinstance(action.message, Subscribe) else 0
        self.world.network.send(self.name, action.to, action.message, extra)


class NodePlace(Place):
    def __init__(self, world: World, node: Node, boxes: dict[str, Boxes], skew: int) -> None:
        super().__init__(world, node.name, skew)
        self.node = node
        self.records: list[StreamRecord] = []
        self.states = {line: StateRecord() for line in boxes}
        self.most_buffered = 0
        self.most_held = 0  # in the buffers of inputs
        self.blocked: list[tuple[int, bool]] = []  # when a buffer was full, and when it no longer was
        self.busy = 0  # microseconds of work
        self._boxes = boxes
        self._stable = dict(boxes)
        self._checkpoint: dict[str, Boxes] = {}
        self._overlay: dict[str, Boxes] = {}
        self._saying: dict[str, StreamRecord] = {}

    def start(self, empty: bool) -> None:
        self.alive = True
        self.incarnation += 1
        self._stable = {line: boxes.fresh() for line, boxes in self._boxes.items()}
        self._checkpoint.clear()
        self._overlay.clear()
        now = self.world.simulation.now
        self._saying = {line: StreamRecord(self.name, line, now) for line in self._boxes}
        self.records += self._saying.values()
        for states in self.states.values():
            states.changes.append((now, State.FAILURE if empty else State.STABLE))
        self.handle(Started(self.incarnation, empty))

    def crash(self) -> None:
        before = self.node.state
        self.alive = False
        self.incarnation += 1
        if before is not State.FAILURE:
            self._note(Note("state", self.name, f"{before} {State.FAILURE}"))
        for line in self._boxes:
            self.world.store.drop_overlay(self.name, line)

    def handle(self, event: Event) -> None:
        actions = self.node.handle(event, self.now)
        if self.node.spec.limits.most is not None:
            self._look_at_buffers()
        for action in actions:
            match action:
                case Send():
                    self.send(action)
                case Emitted(stream, elements):
                    self._saying[stream].say(elements)
                    self.world.store.say(self.name, stream, elements)
                    self.world.trace.line(self.world.simulation.now, self.name, _said(stream, elements))
                    self.most_buffered = max(self.most_buffered, self.node.lines[stream].out.buffer.size)
                case Process():
                    self._process(action)
                case Wake(at):
                    self.wake(at)
                case Note():
                    self._note(action)
                case GiveState():
                    self._give(action)
                case TakeState(lines):
                    self._stable = {line: boxes.copy() for line, boxes in lines.items()}
                case _:
                    self._keep(action)

    def _look_at_buffers(self) -> None:
        lines = self.node.lines.values()
        self.most_held = max(self.most_held, *(line.sunion.held for line in lines))
        blocked = any(line.blocked for line in lines)
        if blocked != bool(self.blocked and self.blocked[-1][1]):
            self.blocked.append((self.world.simulation.now, blocked))

    def _keep(self, action: object) -> None:
        """Move the boxes' state between the three slots."""
        match action:
            case TakeCheckpoint(line):
                self._checkpoint[line] = self._stable[line].copy()
            case BeginOverlay(line):
                self._overlay[line] = self._stable[line].copy()
            case Restore(line):
                self._stable[line] = self._checkpoint[line].copy()
                self._overlay.pop(line, None)
            case Reset(line):
                self._stable[line] = self._boxes[line].fresh()
                self._overlay.pop(line, None)
            case DropCheckpoint(line):
                self._checkpoint.pop(line, None)
            case _:
                raise AssertionError(f"carry out {action}")

    def _note(self, note: Note) -> None:
        now = self.world.simulation.now
        self.world.trace.note(now, self.name, *note)
        if note.what == "state":
            state = State(note.detail.split()[1])
            lines = self.states if note.about == self.name else [note.about]
            for line in lines:
                self.states[line].changes.append((now, state))
            if state is State.STABILIZATION:
                self.world.reconciling(self.name)
        elif note.what == "tentative":
            waited, first = note.detail.split()
            self.world.first_tentative.append((now, self.name, int(waited), int(first)))

    def _process(self, job: Process) -> None:
        tuples = sum(item.tuples for items in job.inputs.values() for item in items)
        took = round(tuples * self.world.spec.cost)
        self.busy += took
        self.world.simulation.at(self.world.simulation.now + took, self._done, job, self.incarnation)

    def _done(self, job: Process, incarnation: int) -> None:
        if incarnation != self.incarnation or not self.alive:
            return
        now = self.world.simulation.now
        if now < self._paused_until:
            self.world.simulation.at(self._paused_until, self._done, job, incarnation)
            return
        if not self.node.awaits(job.line, job.job):
            self.node.give_up()
            self.handle(Tick())
            return
        slots = self._overlay if job.tentative else self._stable
        output = slots[job.line].run(job.start, job.end, job.inputs)
        self.handle(Processed(job.line, job.job, output))

    def _give(self, action: GiveState) -> None:
        lines = {
            name: LineState(
                state.frontier, state.last, state.ordinals, state.kept, state.dropped, self._stable[name].copy()
            )
            for name, state in action.lines.items()
        }
        self.send(Send(action.to, StateReply(action.sent, lines)))


class SourcePlace(Place):
    """A data source with its entry point; its log survives."""

    def __init__(self, world: World, spec: SourceSpec, entry: EntryPoint) -> None:
        super().__init__(world, spec.name, spec.skew)
        self.spec = spec
        self.entry = entry
        self.log: list[Item] = []
        self.muted = 0
        self._produced = 0
        self._owed = 0.0
        self._boundary_at = 0

    def start(self, empty: bool) -> None:
        self.alive = True
        self.incarnation += 1
        self.entry.start(self.incarnation, self.log)
        now = self.world.simulation.now
        self.world.simulation.at(now + self.spec.every, self._produce, self.incarnation)
        if not self.spec.with_items:
            self.world.simulation.at(now + self.spec.boundary_every, self._promise, self.incarnation)

    def crash(self) -> None:
        self.alive = False
        self.incarnation += 1

    def handle(self, event: Event) -> None:
        assert isinstance(event, Received), "a source is asked, and never woken"
        self._carry_out(self.entry.handle(event, self.now))

    def _produce(self, incarnation: int) -> None:
        now = self.world.simulation.now
        if incarnation != self.incarnation or now > self.world.spec.duration:
            return
        self.world.simulation.at(now + self.spec.every, self._produce, incarnation)
        if self.spec.runs is not None and self._produced >= self.spec.runs:
            return
        self._owed += self.spec.tuples
        tuples = int(self._owed)
        self._owed -= tuples
        if not tuples:
            return
        self._produced += 1
        boundary = False
        if self.spec.with_items and now >= self._boundary_at and not self.muted:
            boundary, self._boundary_at = True, now + self.spec.boundary_every
        body = (self._produced * 7 % self.spec.keys, self._produced * 31 % 101)
        self._carry_out(self.entry.offer([(body, tuples)], self.now, boundary))

    def _promise(self, incarnation: int) -> None:
        if incarnation != self.incarnation:
            return
        self.world.simulation.at(self.world.simulation.now + self.spec.boundary_every, self._promise, incarnation)
        if not self.muted:
            self._carry_out(self.entry.boundary(self.now))

    def _carry_out(self, actions: Sequence[object]) -> None:
        for action in actions:
            match action:
                case Send():
                    self.send(action)
                case Persist(_, items):
                    self.log.extend(items)


class ClientPlace(Place):
    def __init__(self, world: World, client: Client, detailed: bool) -> None:
        super().__init__(world, client.name)
        self.client = client
        self.records = {name: ClientRecord(client.name, name, detailed=detailed) for name in client.inputs}

    def start(self, empty: bool) -> None:
        self.incarnation += 1
        self.handle(Started(self.incarnation, empty))

    def crash(self) -> None:
        """What a client has got is what the world is judged by: it stays."""
        raise AnabranchError(
            "NOT_SUPPORTED",
            place=f"the crash of {self.name}",
            need="a node or a source",
            got="a client",
            next_step="Cut its links, or pause it.",
        )

    def handle(self, event: Event) -> None:
        for action in self.client.handle(event, self.now):
            match action:
                case Send():
                    self.send(action)
                case Deliver(stream, elements, sender):
                    self.records[stream].deliver(elements, sender, self.world.simulation.now)
                    self.world.trace.line(self.world.simulation.now, self.name, f"got {_said(stream, elements)}")
                case Wake(at):
                    self.wake(at)
                case Note(what, about, detail):
                    self.world.trace.note(self.world.simulation.now, self.name, what, about, detail)


def _said(stream: str, elements: tuple[object, ...]) -> str:
    words = []
    for element in elements:
        kind = type(element).__name__.lower()
        chunk = getattr(element, "chunk", None)
        place = f"{chunk.bucket}.{chunk.first}+{chunk.tuples}" if chunk is not None else ""
        words.append(kind + place + str(getattr(element, "stime", getattr(element, "last", ""))))
    return f"{stream} {' '.join(words)}"
