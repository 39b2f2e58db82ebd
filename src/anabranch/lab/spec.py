"""What a world is, before anything happens in it: plain values, from which the same run comes every time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from anabranch.lab.boxes import Boxes, Merge
from anabranch.lab.network import LinkSpec
from anabranch.lab.simulation import SECOND
from anabranch.protocol.dpc.delays import Delays, Policy
from anabranch.protocol.dpc.line import Limits, Rules
from anabranch.protocol.dpc.node import Timing


class FaultKind(StrEnum):
    CUT = "cut"  # two places cannot hear each other
    ONE_WAY = "one-way"  # the second does not hear the first
    CRASH = "crash"  # a node forgets everything, and restarts at the end; a source has its log
    RELAPSE = "relapse"  # a node crashes just when it begins to reconcile its state, and restarts at the end
    PAUSE = "pause"  # a node does nothing, then goes on
    MUTE = "mute"  # a source sends items but no boundaries
    LOSE = "lose"  # a link loses a share of its messages, both ways
    SLOW = "slow"  # a link takes longer, both ways


@dataclass(frozen=True, order=True)
class Fault:
    at: int
    until: int
    kind: FaultKind
    a: str
    b: str = ""
    amount: float = 0.0

    def __str__(self) -> str:
        where = f"{self.a} {'->' if self.kind is FaultKind.ONE_WAY else '--'} {self.b}" if self.b else self.a
        amount = f" {self.amount:g}" if self.amount else ""
        return f"{self.at / SECOND:7.3f} .. {self.until / SECOND:7.3f}  {self.kind} {where}{amount}"


@dataclass(frozen=True)
class SourceSpec:
    """A data source: a run of some tuples every so often, with boundaries."""

    name: str
    every: int
    tuples: float = 1  # in a run, on average
    boundary_every: int = 100_000
    with_items: bool = False  # boundaries travel only with items, the first at or after each interval
    runs: int | None = None  # so many runs, then only boundaries; None: for as long as the world lasts
    skew: int = 0  # of its clock
    keys: int = 3  # how many different keys its rows have


@dataclass(frozen=True)
class FragmentSpec:
    """A node and its replicas: output streams, each with the streams it reads and the boxes that make it."""

    name: str
    lines: Mapping[str, tuple[tuple[str, ...], Boxes]]
    replicas: int = 2
    delays: Delays | None = None  # None: those of the world

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(f"{self.name}{'abcdef'[n]}" for n in range(self.replicas))

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for read, _ in self.lines.values() for name in read))


def merging(name: str, *reads: str, replicas: int = 2, delays: Delays | None = None) -> FragmentSpec:
    """A fragment that merges streams into one of its own name."""
    return FragmentSpec(name, {name: (reads, Merge())}, replicas, delays)


@dataclass(frozen=True)
class WorldSpec:
    sources: tuple[SourceSpec, ...]
    fragments: tuple[FragmentSpec, ...]
    clients: Mapping[str, tuple[str, ...]]
    delays: Delays
    duration: int  # while sources produce
    calm: int = 10 * SECOND  # afterwards, for everything to settle
    faults: tuple[Fault, ...] = ()
    bucket: int = 100_000
    timing: Timing = field(default_factory=Timing)
    rules: Rules = field(default_factory=Rules)
    limits: Limits = field(default_factory=Limits)  # a window is what is corrected; nodes keep what that takes
    link: LinkSpec = field(default_factory=LinkSpec)
    cost: float = 0.0  # of processing a tuple, microseconds
    ordered: bool = False
    truncates: bool = True
    source_most: int | None = None
    skew: int = 0  # the most that a node's clock is off
    bound: int | None = None  # X; None: what the delays say
    seed: int = 0

    @cached_property
    def producers(self) -> dict[str, tuple[str, ...]]:
        """Each stream with the places that produce it."""
        found: dict[str, tuple[str, ...]] = {source.name: (source.name,) for source in self.sources}
        for fragment in self.fragments:
            found |= dict.fromkeys(fragment.lines, fragment.nodes)
        return found

    @cached_property
    def depth(self) -> int:
        """How many nodes the longest path has."""
        depths = dict.fromkeys((source.name for source in self.sources), 0)
        waiting = list(self.fragments)
        while waiting:
            fragment = next(f for f in waiting if all(name in depths for name in f.inputs))
            waiting.remove(fragment)
            depths |= dict.fromkeys(fragment.lines, 1 + max(depths[name] for name in fragment.inputs))
        return max(depths.values(), default=0)

    @property
    def promised(self) -> int:
        """The bound X. Where every node delays new items, and they do not carry it, delays add up (6.2)."""
        if self.bound is not None:
            return self.bound
        delays = self.delays
        adds = Policy.DELAY in (delays.failure, delays.stabilization) and delays.budget is None
        return max(delays.first, delays.each * self.depth) if adds else delays.first

    def readers(self, stream: str) -> tuple[str, ...]:
        """The places that read a stream."""
        return self._readers.get(stream, ())

    @cached_property
    def _readers(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for fragment in self.fragments:
            for stream in fragment.inputs:
                found[stream] = (*found.get(stream, ()), *fragment.nodes)
        for client, streams in self.clients.items():
            for stream in streams:
                found[stream] = (*found.get(stream, ()), client)
        return found

    def fragment_of(self, node: str) -> FragmentSpec:
        return next(f for f in self.fragments if node in f.nodes)
