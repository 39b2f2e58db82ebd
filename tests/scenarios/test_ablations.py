"""Every rule of the protocol is there for something: without it a named promise or claim breaks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.lab.checkers import check
from anabranch.lab.experiments import constants as c
from anabranch.lab.experiments import figures_chain, figures_single
from anabranch.lab.experiments.setups import chain, single
from anabranch.lab.simulation import SECOND
from anabranch.lab.spec import Fault, FaultKind, WorldSpec
from anabranch.lab.world import World
from anabranch.protocol.dpc.line import Limits, Rules


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


BROKEN = {
    "undo": (alone, "eventually_consistent"),
    "stagger": (long_failure, "delay_bound_kept"),
    "drop_duplicates": (healed_in_between, "no_stable_item_twice"),
    "tie_break": (long_failure, "no_deadlock"),
    "make_room": (little_room, "no_deadlock"),
    "both_connections": (reading_the_first_to_reconcile, "delay_bound_kept"),
}


@pytest.mark.parametrize("rule", list(BROKEN))
def test_without_a_rule_a_promise_breaks(rule: str) -> None:
    made, promise = BROKEN[rule]
    assert check(World(made()).run()) == [], "with all rules every promise is kept"
    broken = check(World(replace(made(), rules=Rules(**{rule: False}))).run())
    assert promise in {violation.checker for violation in broken}


def test_without_tentative_boundaries_a_chain_waits_at_every_node() -> None:
    """Fig. 15's claim: Process & Process at depth 4 within 1.2 times depth 1."""

    def ratio(rules: Rules) -> float:
        deep, shallow = (
            World(chain(depth, 4 * SECOND, c.CHAIN_D, rules=rules)).run(12 * SECOND).client_record("client").latency
            for depth in (4, 1)
        )
        return deep / shallow

    assert ratio(Rules()) <= 1.2
    assert ratio(Rules(tentative_boundaries=False)) > 1.2


def test_reconciling_at_the_first_heal_corrects_before_all_have_healed() -> None:
    """Fig. 11(a)'s claim: nothing is corrected before both failures have healed."""
    hasty = World(figures_single.fig_11(16 * SECOND, Rules(wait_for_all=False)), detailed=True).run()
    report = figures_single.fig_11a(hasty)
    broken = {claim.claim for claim in report.claims if not claim.holds}
    assert "nothing is corrected before both have healed" in broken
    assert "every promise is kept: no stable tuple twice, none lost, all corrected" not in broken, (
        "it is a policy (5.1)"
    )


@pytest.mark.proof
def test_fig_15_fails_without_tentative_boundaries() -> None:
    report = figures_chain.fig_15(Rules(tentative_boundaries=False))
    assert not report.claims[0].holds
