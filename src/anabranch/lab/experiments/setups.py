"""The paper's set-ups (Figs 10, 12, 14, 22) as worlds."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.lab.experiments import constants as c
from anabranch.lab.spec import Fault, FaultKind, FragmentSpec, SourceSpec, WorldSpec, merging
from anabranch.protocol.dpc.delays import Delays, Policy
from anabranch.protocol.dpc.line import Rules

Variant = tuple[Policy, Policy]

PROCESS_PROCESS: Variant = (Policy.PROCESS, Policy.PROCESS)
DELAY_DELAY: Variant = (Policy.DELAY, Policy.DELAY)


def spoken(variant: Variant) -> str:
    """As the paper writes it: Process & Process."""
    return " & ".join(policy.capitalize() for policy in variant)


def delays(d: int, variant: Variant = PROCESS_PROCESS) -> Delays:
    """The waits of an SUnion that is given D."""
    wait = round(d * c.PRECAUTION)
    return Delays(wait, wait, *variant, settle=c.SETTLE)


def inputs(rate: int) -> tuple[SourceSpec, ...]:
    """Three streams that together have so many tuples a second."""
    tuples = rate * c.SEND_EVERY / c.SECOND / c.STREAMS
    return tuple(SourceSpec(f"s{n + 1}", c.SEND_EVERY, tuples, c.BOUNDARY) for n in range(c.STREAMS))


def single(
    lasts: int, d: int, rate: int, variant: Variant = PROCESS_PROCESS, *, replicas: int = 2,
    kind: FaultKind = FaultKind.CUT, faults: Sequence[Fault] | None = None, rules: Rules | None = None,
) -> WorldSpec:  # fmt: skip
    """Fig. 12 (and Fig. 10 without a replica): one node merges three streams; stream 1 fails for a while."""
    node = merging("n", "s1", "s2", "s3", replicas=replicas)
    return _world((node,), lasts, rate, delays(d, variant), kind, faults, rules)


def chain(
    depth: int, lasts: int, d: int, variant: Variant = PROCESS_PROCESS, *, rules: Rules | None = None
) -> WorldSpec:
    """Fig. 14: a chain of replicated nodes; stream 1 sends no boundaries for a while."""
    nodes = [merging("n1", "s1", "s2", "s3")]
    nodes += [merging(f"n{n}", f"n{n - 1}") for n in range(2, depth + 1)]
    kind = FaultKind.MUTE
    return _world(tuple(nodes), lasts, c.CHAIN_RATE, delays(d, variant), kind, None, rules)


def _world(
    nodes: tuple[FragmentSpec, ...], lasts: int, rate: int, waits: Delays, kind: FaultKind,
    faults: Sequence[Fault] | None, rules: Rules | None,
) -> WorldSpec:  # fmt: skip
    end = c.BEFORE + lasts
    if faults is None and kind is FaultKind.MUTE:
        faults = [Fault(c.BEFORE, end, kind, "s1")]
    elif faults is None:
        faults = [Fault(c.BEFORE, end, kind, "s1", node) for node in nodes[0].nodes]
    # Reconciling takes longer the longer the failure was.
    after = c.AFTER + round(lasts * rate * c.COST / c.SECOND)
    return WorldSpec(
        sources=inputs(rate),
        fragments=nodes,
        clients={"client": (nodes[-1].name,)},
        delays=waits,
        duration=end + after,
        faults=tuple(faults),
        bucket=c.BUCKET,
        timing=c.TIMING,
        rules=rules or Rules(),
        link=c.LINK,
        cost=c.COST,
    )


def overhead(bucket: int, boundary: int, *, ordered: bool = False) -> WorldSpec:
    """Fig. 22: one source, one SUnion, one client."""
    source = SourceSpec("s1", c.OVERHEAD_EVERY, 1, boundary, with_items=True)
    return WorldSpec(
        sources=(source,),
        fragments=(merging("n", "s1", replicas=1),),
        clients={"client": ("n",)},
        delays=delays(c.CHAIN_D),
        duration=c.OVERHEAD_EVERY * c.OVERHEAD_TUPLES,
        calm=0,
        bucket=bucket,
        timing=c.TIMING,
        link=c.LINK,
        cost=c.COST,
        ordered=ordered,
    )
