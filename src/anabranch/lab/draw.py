"""Worlds drawn from a seed: the seed also chooses which kinds of fault exist and how strong they are (a swarm).

Two phases: faults, of which several overlap, nest, or come while a node recovers; then calm, in which everything must
come right. With truncated buffers at least one replica of each fragment stays alive at any time, as the paper assumes
(2.2). Some of these have a limit, which the longer failures reach; some worlds have a second client, in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from anabranch.lab import boxes as lab_boxes
from anabranch.lab.boxes import Boxes, Diagram, Merge
from anabranch.lab.network import LinkSpec
from anabranch.lab.simulation import SECOND
from anabranch.lab.spec import Fault, FaultKind, FragmentSpec, SourceSpec, WorldSpec
from anabranch.protocol.dpc.delays import Delays, Policy
from anabranch.protocol.dpc.line import Limits, Rules
from anabranch.protocol.dpc.node import Timing

BUCKET = 500_000
KEEP_ALIVE = 500_000
FIRST = 3 * SECOND
SKEW = 10_000  # clocks are synchronised to within 10 ms (4.2.2)
SHAPES = ("single", "chain", "diamond", "two outputs")
_LEAST_GAP = 2 * SECOND
_CRASHES = (FaultKind.CRASH, FaultKind.RELAPSE)


def drawn(seed: int, rules: Rules | None = None) -> WorldSpec:
    """The world of a seed."""
    chance = np.random.default_rng(seed)
    replicas = 3 if chance.random() < 0.25 else 2
    sources = tuple(_source(f"s{n}", chance) for n in range(1, 2 + int(chance.integers(1, 3))))
    shape = SHAPES[int(chance.choice(len(SHAPES), p=[0.15, 0.45, 0.25, 0.15]))]
    fragments = _fragments(shape, [s.name for s in sources], replicas, chance)
    streams = tuple(fragments[-1].lines)
    truncates = bool(chance.random() < 0.5)
    duration = 60 * SECOND
    link = LinkSpec(
        latency=int(chance.integers(1_000, 20_000)),
        jitter=int(chance.choice([0, 5_000, 20_000])),
        bandwidth=2_000 if chance.random() < 0.2 else None,
    )
    delays = _delays(chance)
    # Drawn also where others are given, so that the rest of the world is the same.
    own = Rules(wait_for_all=bool(chance.random() < 0.75), pipelined=bool(chance.random() < 0.75))
    spec = WorldSpec(
        sources=sources,
        fragments=fragments,
        clients={"client": streams},
        delays=delays,
        duration=duration,
        calm=20 * SECOND,
        bucket=BUCKET,
        timing=Timing(KEEP_ALIVE, patience=200_000, stall=3 * BUCKET, retry=300_000, silence=FIRST + SECOND),
        rules=rules or own,
        link=link,
        cost=float(chance.choice([100.0, 1_000.0, 4_000.0])),
        truncates=truncates,
        skew=SKEW,
        seed=seed,
    )
    faults = tuple(sorted(_faults(spec, chance)))
    spec = replace(spec, faults=faults, ordered=bool(chance.random() < 0.15))
    return _limited(_watched(spec, chance), chance)


def _watched(spec: WorldSpec, chance: np.random.Generator) -> WorldSpec:
    """In some worlds a second client reads what the first fragment says."""
    if chance.random() < 0.7:
        return spec
    return replace(spec, clients={**spec.clients, "other": tuple(spec.fragments[0].lines)})


def _limited(spec: WorldSpec, chance: np.random.Generator) -> WorldSpec:
    """In some worlds buffers hold what comes in a few seconds, and no more."""
    if not spec.truncates or chance.random() < 0.5:
        return spec
    most = int(chance.integers(40, 160))
    return replace(spec, limits=Limits(most=most), source_most=most)


def _source(name: str, chance: np.random.Generator) -> SourceSpec:
    every = int(chance.integers(150_000, 280_000))
    return SourceSpec(name, every, boundary_every=BUCKET // 2, skew=int(chance.integers(-SKEW, SKEW)))


def _delays(chance: np.random.Generator) -> Delays:
    each = int(chance.choice([0, SECOND, FIRST]))
    policy = Policy.DELAY if each else Policy.PROCESS
    budget = FIRST if chance.random() < 0.3 else None
    return Delays(FIRST, each if budget is None else FIRST, policy, policy, budget)


def _fragments(shape: str, sources: list[str], replicas: int, chance: np.random.Generator) -> tuple[FragmentSpec, ...]:
    def one(name: str, reads: Sequence[str]) -> FragmentSpec:
        return FragmentSpec(name, {name: (tuple(reads), _boxes(reads, chance))}, replicas)

    match shape:
        case "single":
            return (one("a", sources),)
        case "chain":
            depth = int(chance.integers(2, 7))
            names = "abcdef"[:depth]
            return tuple(one(name, sources if n == 0 else [names[n - 1]]) for n, name in enumerate(names))
        case "diamond":
            return one("a", sources), one("b", ["a"]), one("c", ["a"]), one("d", ["b", "c"])
        case _:
            # Two output streams, of which a failure of one source touches only one.
            first, second = tuple(sources[:1]), tuple(sources[1:])
            lines: dict[str, tuple[tuple[str, ...], Boxes]] = {
                "p": (first, _boxes(first, chance)),
                "q": (second, _boxes(second, chance)),
            }
            return FragmentSpec("a", lines, replicas), one("b", ["p", "q"])


def _boxes(reads: Sequence[str], chance: np.random.Generator) -> Boxes:
    kind = int(chance.integers(6))
    whole = lab_boxes.union(*reads)
    if kind == 1:
        return Diagram(lab_boxes.some(whole))
    if kind == 2:
        return Diagram(lab_boxes.shifted(whole))
    if kind == 3:
        return Diagram(lab_boxes.summed(whole, 2 * BUCKET))
    if kind == 4 and len(reads) == 2:
        return Diagram(lab_boxes.joined(reads[0], reads[1], BUCKET))
    if kind == 5:
        return Diagram(whole)
    return Merge()


def _faults(spec: WorldSpec, chance: np.random.Generator) -> list[Fault]:
    kinds = [kind for kind in FaultKind if chance.random() < 0.55] or [FaultKind.CUT]
    long = bool(chance.random() < 0.5)
    faults: list[Fault] = []
    wanted = int(chance.integers(2, 9))
    for _ in range(40):
        if len(faults) == wanted:
            break
        kind = kinds[int(chance.integers(len(kinds)))]
        begin = int(chance.integers(5 * SECOND, spec.duration - 18 * SECOND))
        if faults and chance.random() < 0.6:  # overlapping, nested, or while a node recovers from an earlier one
            near = faults[int(chance.integers(len(faults)))]
            begin = int(np.clip(near.until + chance.integers(-3 * SECOND, 2 * SECOND), 5 * SECOND, 42 * SECOND))
        lasts = int(chance.integers(SECOND // 4, (15 if long else 5) * SECOND))
        fault = _fault(spec, kind, begin, min(begin + lasts, spec.duration - 2 * SECOND), chance)
        if fault is not None and _allowed(spec, fault, faults):
            faults.append(fault)
    # A source cut from one fragment altogether, so that no replica can mask it.
    source = spec.sources[int(chance.integers(len(spec.sources)))].name
    begin = int(chance.integers(5 * SECOND, spec.duration - 20 * SECOND))
    until = begin + int(chance.integers(2 * SECOND, 12 * SECOND))
    faults += [Fault(begin, until, FaultKind.CUT, source, node) for node in spec.readers(source)]
    if FaultKind.RELAPSE in kinds:  # a node that reads it may crash when it comes to itself again
        readers = [node for fragment in spec.fragments if source in fragment.inputs for node in fragment.nodes]
        node = readers[int(chance.integers(len(readers)))]
        relapse = Fault(until, until + int(chance.integers(2, 6)) * SECOND, FaultKind.RELAPSE, node, "", 1_000)
        faults += [relapse] if _allowed(spec, relapse, faults) else []
    return faults


def _fault(spec: WorldSpec, kind: FaultKind, begin: int, until: int, chance: np.random.Generator) -> Fault | None:
    nodes = [node for fragment in spec.fragments for node in fragment.nodes]
    if kind in (FaultKind.CRASH, FaultKind.PAUSE, FaultKind.RELAPSE):
        places = [*nodes, *(s.name for s in spec.sources)] if kind is FaultKind.CRASH else nodes
        soon = float(chance.integers(20_000)) if kind is FaultKind.RELAPSE else 0.0
        return Fault(begin, until, kind, places[int(chance.integers(len(places)))], "", soon)
    if kind is FaultKind.MUTE:
        return Fault(begin, until, kind, spec.sources[int(chance.integers(len(spec.sources)))].name)
    pairs = _pairs(spec)
    a, b = pairs[int(chance.integers(len(pairs)))]
    if kind is FaultKind.ONE_WAY and chance.random() < 0.5:
        a, b = b, a
    amount = 0.0
    if kind is FaultKind.LOSE:
        amount = float(chance.choice([0.02, 0.1, 0.3]))
    elif kind is FaultKind.SLOW:
        amount = float(chance.choice([20_000, 60_000]))
    return Fault(begin, until, kind, a, b, amount)


def _pairs(spec: WorldSpec) -> list[tuple[str, str]]:
    """Places that talk to each other."""
    pairs = []
    for stream, producers in spec.producers.items():
        pairs += [(producer, reader) for producer in producers for reader in spec.readers(stream)]
    for fragment in spec.fragments:
        pairs += [(a, b) for a in fragment.nodes for b in fragment.nodes if a < b]
    return pairs


def _allowed(spec: WorldSpec, fault: Fault, others: Sequence[Fault]) -> bool:
    """Whether a crash leaves a replica alive, with time for the last one to have recovered."""
    if fault.kind not in _CRASHES:
        return True
    same = [f for f in others if f.kind in _CRASHES and f.a == fault.a]
    if any(f.at - _LEAST_GAP <= fault.until and fault.at <= f.until + _LEAST_GAP for f in same):
        return False
    if not spec.truncates or any(fault.a == source.name for source in spec.sources):
        return True
    nodes = spec.fragment_of(fault.a).nodes
    recovery = 12 * SECOND  # during which the last replica with a state must not be lost
    near = [
        f for f in others
        if f.kind in _CRASHES and f.a in nodes and f.at - recovery <= fault.until and fault.at <= f.until + recovery
    ]  # fmt: skip
    return len({f.a for f in near}) + 1 < len(nodes)
