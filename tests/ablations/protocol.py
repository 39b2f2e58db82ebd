"""Every rule of the protocol is there for something: without it a named promise or claim breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.lab.checkers import check
from anabranch.lab.experiments import constants as c
from anabranch.lab.experiments import figures_chain, figures_single
from anabranch.lab.experiments.setups import chain, single
from anabranch.lab.simulation import SECOND
from anabranch.lab.spec import Fault, FaultKind, WorldSpec
from anabranch.lab.world import World
from anabranch.model.report import Report
from anabranch.protocol.dpc.line import Limits, Rules
from tests.ablations.registry import Ablation, Setting, without


def long_failure() -> WorldSpec:
    """Reconciling takes longer than the bound."""
    return single(12 * SECOND, c.SINGLE_D, c.SINGLE_RATE)


def reading_the_first_to_reconcile() -> WorldSpec:
    """The same, and the client reads the replica that reconciles first: it cannot reach the other when it begins."""
    spec = long_failure()
    return replace(spec, faults=(*spec.faults, Fault(4 * SECOND, 9 * SECOND, FaultKind.CUT, "nb", "client")))


def healed_in_between() -> WorldSpec:
    """Stream 1 fails for a second, stream 2 from its middle on: between checkpoint and overlay there is stable work."""
    one = [Fault(10 * SECOND, 11 * SECOND, FaultKind.CUT, "s1", n) for n in ("na", "nb")]
    two = [Fault(10 * SECOND + SECOND // 2, 18 * SECOND, FaultKind.CUT, "s2", n) for n in ("na", "nb")]
    return single(8 * SECOND, c.CHAIN_D, c.CHAIN_RATE, faults=[*one, *two])


def alone() -> WorldSpec:
    """Without a replica nobody else can undo."""
    return figures_single.fig_11(16 * SECOND)


def little_room() -> WorldSpec:
    """Corrections do not fit into the buffers: a node waits for a reader that waits for a replica that waits for it."""
    spec = chain(4, 12 * SECOND, c.CHAIN_D)
    return replace(spec, limits=Limits(most=600), source_most=600)


def rules(off: str | None) -> Rules:
    """All rules, or all but one."""
    return Rules() if off is None else Rules(**{off: False})  # type: ignore[arg-type]


def world(made: Callable[[], WorldSpec]) -> Setting:
    """A world whose promises are checked."""

    def broken(place: Path, patch: pytest.MonkeyPatch, off: str | None) -> set[str]:
        return {violation.checker for violation in check(World(replace(made(), rules=rules(off))).run())}

    return Setting(made.__name__, broken)


def figure(name: str, report: Callable[[Rules], Report], *, proof: bool = False) -> Setting:
    """An experiment whose claims are checked."""

    def broken(place: Path, patch: pytest.MonkeyPatch, off: str | None) -> set[str]:
        return {claim.claim for claim in report(rules(off)).claims if not claim.holds}

    return Setting(name, broken, proof=proof)


def fig_11(rules: Rules) -> Report:
    return figures_single.fig_11a(World(figures_single.fig_11(16 * SECOND, rules), detailed=True).run())


def chain_waits(place: Path, patch: pytest.MonkeyPatch, off: str | None) -> set[str]:
    """Fig. 15's claim, for a short failure: Process & Process at depth 4 within 1.2 times depth 1."""
    deep, shallow = (
        World(chain(depth, 4 * SECOND, c.CHAIN_D, rules=rules(off))).run(12 * SECOND).client_record("client").latency
        for depth in (4, 1)
    )
    return set() if deep / shallow <= 1.2 else {"depth 4 within 1.2 times depth 1"}


LONG_FAILURE, ALONE, HEALED, ROOM = map(world, (long_failure, alone, healed_in_between, little_room))
FIRST = world(reading_the_first_to_reconcile)

# What follows for nodes that wait for one another for ever.
STUCK = ("buffers_bounded", "eventually_consistent", "output_equals_failure_free")

ABLATIONS: tuple[Ablation, ...] = (
    without("undo", ALONE, "eventually_consistent"),
    without("stagger", LONG_FAILURE, "delay_bound_kept"),
    without("drop_duplicates", HEALED, "no_stable_item_twice"),
    without("tie_break", LONG_FAILURE, "no_deadlock", *STUCK),
    without("make_room", ROOM, "no_deadlock", "replicas_agree_after_heal", *STUCK),
    without("both_connections", FIRST, "delay_bound_kept"),
    without("tentative_boundaries", Setting("a chain", chain_waits), "depth 4 within 1.2 times depth 1"),
    without("wait_for_all", figure("Fig. 11", fig_11),
            "nothing is corrected before both have healed", "undos", "rec-dones"),
    without("tentative_boundaries", figure("Fig. 15", figures_chain.fig_15, proof=True),
            "Process & Process: depth 4 within 1.2 times depth 1"),
)  # fmt: skip
