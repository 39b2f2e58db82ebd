"""A processing node: its lines, its inputs and its consistency manager (DPC 3, 4).

    node = Node(spec, ...)
    actions = node.handle(Started(1, empty=False), now)      # once
    actions = node.handle(event, now)                        # for each event, in order

The consistency manager watches every replica of every upstream neighbour, chooses which to read, computes the state of
each output stream from the states of the inputs and the structure of the diagram, and decides when to reconcile. A node
that restarts with nothing remembered answers nobody until it is consistent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.protocol.dpc.actions import (
    Action,
    Event,
    GiveState,
    Note,
    Processed,
    Received,
    Send,
    Started,
    TakeState,
    Tick,
    Wake,
)
from anabranch.protocol.dpc.delays import Delays
from anabranch.protocol.dpc.inputs import InputStream, Status, heard
from anabranch.protocol.dpc.items import Insertion, ItemId
from anabranch.protocol.dpc.line import Limits, Line, LineSpec, Rules
from anabranch.protocol.dpc.messages import (
    AuthorizationReply,
    AuthorizationRequest,
    AuthorizationReturned,
    Flow,
    Heartbeat,
    HeartbeatRequest,
    StateReply,
    StateRequest,
    Subscribe,
    Unsubscribe,
)
from anabranch.protocol.dpc.monitor import Monitor
from anabranch.protocol.dpc.stagger import Stagger
from anabranch.protocol.dpc.states import Event as Transition
from anabranch.protocol.dpc.states import State, follow, worst

WHOLE_BUCKET = 1 << 40  # an ordinal after every item of a bucket
CHANNELS = 1 << 20  # how many channels an incarnation may open


@dataclass(frozen=True, slots=True)
class Timing:
    """What a node waits for, in microseconds."""

    keep_alive: int = 100_000
    patience: int = 50_000  # for an answer
    stall: int = 300_000  # an input without boundaries for this long is failing
    retry: int = 100_000  # after a refused authorisation
    silence: int = 10_000_000  # a replica in UP_FAILURE that brings nothing for this long is as good as gone


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What a node is in its deployment."""

    name: str
    inputs: Mapping[str, tuple[str, ...]]  # each input stream with the replicas that produce it
    lines: tuple[LineSpec, ...]
    partners: tuple[str, ...] = ()  # the other replicas of this node
    bucket: int = 100_000
    timing: Timing = field(default_factory=Timing)
    rules: Rules = field(default_factory=Rules)
    limits: Limits = field(default_factory=Limits)
    ordered: bool = False
    truncates: bool = True  # whether output buffers let go of what was acknowledged; otherwise of nothing


class Node:
    def __init__(self, spec: NodeSpec, delays: Delays) -> None:
        self.spec = spec
        self.name = spec.name
        self.delays = delays
        self.rebuilding = False
        self._incarnation = 0
        self._build(0)

    def _build(self, now: int) -> None:
        spec, timing, rules = self.spec, self.spec.timing, self.spec.rules
        self.lines = {
            line.name: Line(line, spec.bucket, self.delays, rules, spec.limits, ordered=spec.ordered, now=now)
            for line in spec.lines
        }
        self.inputs = {
            name: InputStream(
                name, replicas, stall=timing.stall, silence=timing.silence, both=rules.both_connections,
                first_channel=self._incarnation * CHANNELS,
            )
            for name, replicas in spec.inputs.items()
        }  # fmt: skip
        for stream in self.inputs.values():
            stream.moved = now
        self._readers = {name: [line for line in self.lines.values() if name in line.inputs] for name in self.inputs}
        peers = dict.fromkeys(replica for replicas in spec.inputs.values() for replica in replicas)
        self.monitor = Monitor(peers, timing.keep_alive, timing.patience)
        self.stagger = Stagger(
            spec.name, spec.partners, timing.retry, timing.patience, on=rules.stagger, tie_break=rules.tie_break
        )
        self._jobs = 0
        self._busy: str | None = None
        self._wake: int | None = None
        self._wanted_state: int | None = None
        self._asked_partner = 0

    # Events.

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take an event; what is to be done, in order."""
        actions: list[Action] = []
        match event:
            case Received(sender, message):
                self._receive(sender, message, now, actions)
            case Processed(line, _, output):
                self._busy = None
                actions += self.lines[line].done(output, now)
                if self.lines[line].state is not State.STABLE or self.rebuilding:
                    self._review(now, actions)
            case Tick():
                self._wake = None
                self._tick(now, actions)
            case Started(incarnation, empty):
                self._start(incarnation, empty, now, actions)
        self._work(now, actions)
        return actions

    def awaits(self, line: str, job: int) -> bool:
        """Whether a piece of work is still wanted."""
        current = self.lines[line].job
        return current is not None and current.job == job

    def give_up(self) -> None:
        """A piece of work that is not awaited any more has left the processor."""
        self._busy = None

    def _receive(self, sender: str, message: object, now: int, actions: list[Action]) -> None:
        match message:
            case Flow(stream) if stream in self.inputs:
                self._flow(sender, message, now, actions)
            case Heartbeat():
                self._heartbeat(sender, message, now, actions)
            case StateReply():
                self._adopt(message, now, actions)
            case AuthorizationReply():
                actions += self.stagger.replied(sender, message, now)
                self._review(now, actions)
            case HeartbeatRequest(sent, received):
                self._acknowledged(sender, received)
                if not self.rebuilding:
                    actions.append(Send(sender, self._alive(sent)))
            case _ if self.rebuilding:
                return  # silent until consistent
            case Subscribe(stream) if stream in self.lines:
                actions.append(self.lines[stream].out.subscribe(sender, message))
            case Unsubscribe(stream) if stream in self.lines:
                self.lines[stream].out.unsubscribe(sender, message)
            case AuthorizationRequest():
                wanting = bool(self._wanting(self._statuses(now)))
                reconciling = any(line.state is State.STABILIZATION for line in self.lines.values())
                actions += self.stagger.answer(sender, message, now, reconciling=reconciling, wanting=wanting)
            case AuthorizationReturned():
                self.stagger.returned(sender)
                self._review(now, actions)
            case StateRequest(sent):
                states_now = {name: line.state_now() for name, line in self.lines.items()}
                actions.append(GiveState(sender, sent, states_now))
            case _:
                # A peer's mistake is no reason to stop.
                about = getattr(message, "stream", "")
                actions.append(Note("refused", sender, f"{type(message).__name__} {about}".rstrip()))

    def _acknowledged(self, sender: str, received: Mapping[str, ItemId]) -> None:
        """A reader needs no more of what it has received; also while this node rebuilds, which takes room."""
        for stream, item in received.items():
            if stream in self.lines and self.spec.truncates:
                self.lines[stream].out.buffer.acknowledge(sender, item)

    def _alive(self, sent: int) -> Heartbeat:
        states = {name: line.state for name, line in self.lines.items()}
        full = frozenset(name for name, line in self.lines.items() if line.out.buffer.full)
        return Heartbeat(sent, self._incarnation, states, full)

    def _flow(self, sender: str, flow: Flow, now: int, actions: list[Action]) -> None:
        stream = self.inputs[flow.stream]
        elements, again = stream.accept(sender, flow, now)
        lines = self._readers[flow.stream]
        for line in lines:
            for element in elements:
                line.take(flow.stream, element, now)
            if stream.lost is not None:
                line.age((stream.lost.bucket + 1) * self.spec.bucket)
        # Stable items alone change no state; and where all is stable, boundaries do not either.
        telling = any(not isinstance(element, Insertion) for element in elements)
        if again or (telling and (self.state is not State.STABLE or stream.tentative)):
            self._review(now, actions)

    def _heartbeat(self, sender: str, answer: Heartbeat, now: int, actions: list[Action]) -> None:
        if heard(self.monitor, self.inputs, sender, answer):
            self._review(now, actions)

    def _tick(self, now: int, actions: list[Action]) -> None:
        for peer in self.monitor.overdue(now):
            actions.append(Note("away", peer, ""))
        if self.monitor.due(now):
            request = HeartbeatRequest(now, self._received())
            actions += [Send(peer, request) for peer in self.monitor.peers]
            if self._wanted_state is not None and now >= self._wanted_state:
                self._ask_for_state(now, actions)
        self._review(now, actions)

    def _received(self) -> dict[str, ItemId]:
        """What has become part of the consistent state of every line, by input."""
        return {
            name: ItemId(min(line.sunion.frontier for line in lines) // self.spec.bucket - 1, WHOLE_BUCKET)
            for name, lines in self._readers.items()
            if lines
        }

    # The consistency manager.

    def _statuses(self, now: int) -> dict[str, Status]:
        return {name: stream.status(self.monitor.of(name), now) for name, stream in self.inputs.items()}

    def _review(self, now: int, actions: list[Action]) -> None:
        """Look at the inputs, choose replicas, and move the lines from state to state."""
        if self._wanted_state is not None:
            return  # where to begin is not known yet
        for name, stream in self.inputs.items():
            state_of = self.monitor.of(name)
            actions += stream.review(state_of, self._resume(name), now)
            lost = stream.is_lost(state_of, now)
            for line in self._readers[name]:
                line.sunion.ports[name].lost = lost
        statuses = self._statuses(now)
        if self.rebuilding:
            self._rebuilt(statuses, now, actions)
            return
        for line in self.lines.values():
            if self.spec.limits.window is not None:
                line.age(0)
            actions += line.observe(statuses, now)
        self._reconcile(statuses, now, actions)

    def _resume(self, name: str) -> int | None:
        reached = [
            line.sunion.frontier if line.sunion.overlay is None else line.sunion.overlay for line in self._readers[name]
        ]
        return min(reached) // self.spec.bucket if reached else None

    def _reconcile(self, statuses: Mapping[str, Status], now: int, actions: list[Action]) -> None:
        reconciling = any(line.state is State.STABILIZATION for line in self.lines.values())
        wanting = self._wanting(statuses)
        for line in wanting:
            actions += line.request()
        if wanting:
            actions += self.stagger.ask(now)
            # A replica that reconciles may wait for the neighbour that waits for this one: then nobody is asked.
            ready = wanting if self.stagger.authorised else [line for line in wanting if self._is_urged(line)]
            for line in ready:
                actions += line.reconcile()
            reconciling |= bool(ready)
        if reconciling:
            actions += self.stagger.renew(now)
        elif not wanting:
            actions += self.stagger.finish()

    def _wanting(self, statuses: Mapping[str, Status]) -> list[Line]:
        return [line for line in self.lines.values() if line.wants_to_reconcile(statuses, self._is_urged(line))]

    def _is_urged(self, line: Line) -> bool:
        """Whether an upstream neighbour has no room left."""
        return self.spec.rules.make_room and any(self.monitor.is_full(name) for name in line.inputs)

    # Work.

    def _work(self, now: int, actions: list[Action]) -> None:
        """Give the processor something to do, and see to being called again in time."""
        wake = self.monitor.next_wake
        if self._busy is None:
            covering = self.stagger.covering(now)
            for line in self.lines.values():
                job, due, before = line.work(self._jobs + 1, now, covering)
                actions += before
                if job is not None:
                    self._jobs += 1
                    self._busy = line.name
                    actions.append(job)
                    break
                if due is not None and due < wake:
                    wake = due
        asked = self.stagger.next_wake
        if asked is not None and now < asked < wake:
            wake = asked
        wake = max(wake, now + 1)
        if self._wake is None or wake < self._wake:
            self._wake = wake
            actions.append(Wake(wake))

    # Beginning, and beginning again.

    def _start(self, incarnation: int, empty: bool, now: int, actions: list[Action]) -> None:
        self._incarnation = incarnation
        self.rebuilding = empty
        self._build(now)
        if empty and self.spec.partners:
            self._ask_for_state(now, actions)
        self._tick(now, actions)

    def _ask_for_state(self, now: int, actions: list[Action]) -> None:
        """Ask the partners in turn; if what was acknowledged is still upstream, none needs to answer."""
        if not self.spec.truncates and self._asked_partner >= 2 * len(self.spec.partners):
            self._wanted_state = None
            return
        partner = self.spec.partners[self._asked_partner % len(self.spec.partners)]
        self._asked_partner += 1
        self._wanted_state = now + self.spec.timing.patience
        actions.append(Send(partner, StateRequest(now)))

    def _adopt(self, reply: StateReply, now: int, actions: list[Action]) -> None:
        if self._wanted_state is None:
            return
        self._wanted_state = None
        for name, state in reply.lines.items():
            self.lines[name].adopt(state)
        for name, lines in self._readers.items():
            begin = min((line.sunion.frontier for line in lines), default=0)
            self.inputs[name].last = ItemId(begin // self.spec.bucket - 1, WHOLE_BUCKET)
        actions.append(TakeState({name: state.boxes for name, state in reply.lines.items()}))
        self._review(now, actions)

    def _rebuilt(self, statuses: Mapping[str, Status], now: int, actions: list[Action]) -> None:
        if all(status is Status.OK for status in statuses.values()) and not any(
            line.job is not None or line.sunion.stable_ready or not line.sunion.stable_until
            for line in self.lines.values()
        ):
            self.rebuilding = False
            actions.append(Note("state", self.name, f"{State.FAILURE} {follow(State.FAILURE, Transition.REBUILT)}"))

    @property
    def state(self) -> State:
        """The state of the node as a whole."""
        return State.FAILURE if self.rebuilding else worst([line.state for line in self.lines.values()])
