"""A line: one output stream of a node, with all that it takes to make it (DPC 3, 8.2).

An SUnion over the inputs that the stream depends on, the boxes, an SOutput. Each line has its own consistency state,
checkpoint and overlay, so a failure touches the lines that depend on the failing input and no others, and only
boxes that have processed tentative items are put back.

The checkpoint is taken on entering UP_FAILURE, before anything tentative is processed; stable pieces that are still
complete are processed after it. Reconciling puts the boxes back to it and goes through the stable input again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.protocol.dpc.actions import (
    Action,
    BeginOverlay,
    DropCheckpoint,
    Emitted,
    Note,
    Process,
    Reset,
    Restore,
    TakeCheckpoint,
)
from anabranch.protocol.dpc.buffers import OutputBuffer
from anabranch.protocol.dpc.delays import Delays
from anabranch.protocol.dpc.inputs import Status
from anabranch.protocol.dpc.items import Boundary, Control, Element, Insertion, Item, Tentative, Undo
from anabranch.protocol.dpc.messages import LineState
from anabranch.protocol.dpc.soutput import SOutput
from anabranch.protocol.dpc.states import Event, State, follow
from anabranch.protocol.dpc.subscription import OutputStream
from anabranch.protocol.dpc.sunion import SUnion


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the protocol; the lab switches one off to see which promise breaks without it."""

    undo: bool = True
    stagger: bool = True
    drop_duplicates: bool = True
    tie_break: bool = True
    both_connections: bool = True
    tentative_boundaries: bool = True
    wait_for_all: bool = True  # reconcile when all failures have healed; otherwise at the first (5.1)
    # Reconcile as soon as corrections begin to come (6.2), a whole chain at once; otherwise when they end, with the
    # rec-done of every input (4.4.3), one node after the other.
    pipelined: bool = True
    make_room: bool = True  # reconcile at once where the buffer of an upstream neighbour is full


@dataclass(frozen=True, slots=True)
class LineSpec:
    """What a line is: its output stream, the inputs it depends on, and who reads it."""

    name: str
    inputs: tuple[str, ...]
    readers: tuple[str, ...] = ()
    reach: int = 0  # how much stream time the boxes look back


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a line may keep. At most one of the two (8.1)."""

    most: int | None = None  # tuples, in each buffer; then the node blocks
    window: int | None = None  # stream time, as `windows` computes it; older items are let go and never corrected


class Line:
    def __init__(
        self, spec: LineSpec, bucket: int, delays: Delays, rules: Rules, limits: Limits, *, ordered: bool, now: int
    ) -> None:
        self.name = spec.name
        self.inputs = spec.inputs
        self.delays = delays if rules.tentative_boundaries else replace(delays, tentative_boundaries=False)
        self.rules = rules
        self.limits = limits
        self.reach = spec.reach
        self.state = State.STABLE
        self.sunion = SUnion(spec.inputs, bucket, ordered=ordered, since=now)
        self.soutput = SOutput(bucket, drop_duplicates=rules.drop_duplicates, undo=rules.undo)
        self.out = OutputStream(spec.name, OutputBuffer(spec.readers, limits.most, limits.window))
        self.checkpoint: int | None = None
        self.job: Process | None = None
        self._quiet_until = 0  # what comes before is computed again only to remember it
        self._floor = 0  # stable input before this is gone
        self._requested = False
        self._waited = 0  # before the first tentative piece of work

    # Input.

    def take(self, name: str, element: Element, now: int) -> None:
        match element:
            case Insertion(chunk):
                self.sunion.insert(name, chunk, now)
            case Boundary(stime, False, _):
                self.sunion.boundary(name, stime, now)
            case Tentative():
                self.sunion.tentative(name, element, now)
            case Boundary(stime, True, delayed):
                self.sunion.tentative_boundary(name, stime, now, delayed)
            case Undo():
                self.sunion.undo(name)

    # States.

    def observe(self, statuses: Mapping[str, Status], now: int) -> list[Action]:
        """Follow what the inputs are like; STABILIZATION is entered only by `reconcile`."""
        failing = any(statuses[name] is Status.FAILING for name in self.inputs)
        troubled = failing or any(statuses[name] is Status.CORRECTING for name in self.inputs)
        match self.state:
            case State.STABLE if troubled:
                return self._fail()
            case State.UP_FAILURE if not troubled and self.sunion.overlay is None and self.job is None:
                self.checkpoint = None
                return [*self._move(Event.MASKED), DropCheckpoint(self.name)]
            case State.STABILIZATION if self.job is None and not self.sunion.stable_ready:
                if failing:
                    return [*self._end(), *self._fail()]
                if not troubled:
                    self.checkpoint = None
                    return [*self._end(), DropCheckpoint(self.name), *self._move(Event.CAUGHT_UP)]
        return []

    def _end(self) -> list[Action]:
        return [*self._say(self.soutput.end()), self._signal(Control.REC_DONE)]

    def _signal(self, control: Control) -> Note:
        """What SUnion and SOutput tell the consistency manager (Table I)."""
        return Note("control", self.name, str(control))

    def _fail(self) -> list[Action]:
        # A piece of work under way is part of what comes after the checkpoint.
        self.checkpoint = self.sunion.frontier
        self.soutput.checkpoint()
        return [TakeCheckpoint(self.name), *self._move(Event.INPUT_FAILED)]

    def _move(self, event: Event) -> list[Action]:
        before, self.state = self.state, follow(self.state, event)
        return [Note("state", self.name, f"{before} {self.state}")]

    def wants_to_reconcile(self, statuses: Mapping[str, Status], urged: bool) -> bool:
        """Whether a tentative bucket is stable on all inputs and, by default, no input is failing.

        An upstream neighbour whose buffer is full urges it not to wait for anything else.
        """
        if self.state is not State.UP_FAILURE or self.sunion.overlay is None or not self.sunion.stable_ready:
            return False
        if urged:
            return True
        troubles = {statuses[name] for name in self.inputs} - {Status.OK}
        if not self.rules.pipelined:
            return not troubles
        return not self.rules.wait_for_all or Status.FAILING not in troubles

    def request(self) -> list[Action]:
        """The input is corrected: the state can be reconciled."""
        if self._requested:
            return []
        self._requested = True
        return [self._signal(Control.REC_REQUEST)]

    def reconcile(self) -> list[Action]:
        """Back to the checkpoint, and through the stable input again."""
        assert self.checkpoint is not None, "UP_FAILURE has a checkpoint"
        self.job = None
        self._requested = False
        begin: Action = Restore(self.name)
        fresh = self._floor > self.checkpoint
        if fresh:
            begin = Reset(self.name)
            self._quiet_until = self._floor + self.reach
        self.sunion.rewind(max(self.checkpoint, self._floor))
        self.soutput.redo(fresh)
        return [begin, *self._move(Event.AUTHORISED)]

    # Work.

    @property
    def blocked(self) -> bool:
        """Whether a buffer is full. An SUnion holds what is stable and what is tentative: twice as much."""
        most = self.limits.most
        return self.out.buffer.full or (most is not None and self.sunion.held >= 2 * most)

    def work(self, job: int, now: int, covering: bool) -> tuple[Process | None, int | None, list[Action]]:
        """The next piece of work, or when there will be one; and what must be done before."""
        if self.job is not None or self.out.buffer.full:
            return None, None, []
        overlay = self.sunion.overlay is not None
        if self.sunion.stable_ready and not (self.state is State.UP_FAILURE and overlay):
            return self._process(job, *self.sunion.stable_span(), False), None, []
        if self.state is not State.UP_FAILURE or self.blocked:
            return None, None, []
        due = self.sunion.tentative_due(self.delays, covering)
        if due is None or due > now:
            return None, due, []
        before: list[Action] = []
        if not overlay:
            before += [BeginOverlay(self.name), self._signal(Control.UP_FAILURE)]
            start, _ = self.sunion.tentative_span()
            self._waited = now - min(self.sunion.moved, self.sunion.since(start, now))
        return self._process(job, *self.sunion.tentative_span(), True), None, before

    def _process(self, job: int, start: int, end: int, tentative: bool) -> Process:
        inputs, missing, _ = self.sunion.take(start, end, tentative)
        self.job = Process(self.name, job, start, end, tentative, inputs, missing)
        return self.job

    def done(self, output: Sequence[Item], now: int) -> list[Action]:
        """A piece of work is done: say what came out."""
        job = self.job
        assert job is not None, "work that was asked for"
        self.job = None
        if job.tentative:
            *_, delayed = self.sunion.take(job.start, job.end, True)
            first = self.sunion.overlay is None
            delayed += now - self.sunion.since(job.start, now)
            self.sunion.processed(job.end, tentative=True)
            said = self._say(self.soutput.provisional(output, job.end, delayed))
            return [Note("tentative", self.name, f"{self._waited} {self.delays.first}"), *said] if first else said
        self.sunion.processed(job.end, tentative=False)
        self._forget()
        if job.end <= self._quiet_until:
            return []
        return self._say(self.soutput.stable(output, job.end))

    def _say(self, elements: list[Element]) -> list[Action]:
        if not elements:
            return []
        sends = self.out.emit(elements)
        window = self.limits.window
        if window is not None:
            newest = max(self.out.boundary, self.sunion.overlay or 0)
            self.out.age((newest - window) // self.sunion.bucket)
        return [Emitted(self.name, tuple(elements)), *sends]

    def _forget(self) -> None:
        needed = self.sunion.frontier if self.checkpoint is None else self.checkpoint
        self.sunion.forget(max(needed, self._floor))

    def age(self, lost_until: int) -> None:
        """With a window: let go of stable input that is too old, or that cannot be had."""
        floor = lost_until
        if self.limits.window is not None and self.sunion.overlay is not None:
            newest = max(port.boundary for port in self.sunion.ports.values())
            floor = max(floor, newest - self.limits.window)
        floor -= floor % self.sunion.bucket
        if floor > max(self._floor, self.sunion.frontier):
            self._floor = floor
            self.sunion.forget(floor)

    # A replica that restarts takes over.

    def state_now(self) -> LineState:
        """The consistent state, but for what the boxes remember."""
        buffer = self.out.buffer
        return LineState(
            self.sunion.frontier, self.soutput.last, self.soutput.ordinals, tuple(buffer.chunks), buffer.dropped, None
        )

    def adopt(self, state: LineState) -> None:
        self.sunion.frontier = state.frontier
        self.sunion.forget(state.frontier)
        self.soutput.restore(state.last, dict(state.ordinals), state.frontier)
        self.out.restore(state.kept, state.dropped, state.frontier)
