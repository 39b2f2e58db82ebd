"""Delays over a diagram (Fig. 21), and windows of convergent-capable ones (8.1)."""

from __future__ import annotations

import pytest

from anabranch.model.errors import AnabranchError
from anabranch.protocol.dpc.delays import Assignment, Policy, accumulated, assign
from anabranch.protocol.dpc.windows import windows

# Streams that have gone through one, two and three SUnions meet at the last.
DIAGRAM = {"a": [], "b": ["a"], "c": [], "d": ["b", "c"]}
X = 9_000


@pytest.mark.parametrize("failing", ["a", "c"])
def test_fig_21_shares_meet_with_different_delays(failing: str) -> None:
    """Divided, what has accumulated depends on where the failure is; carried, nobody exceeds the bound."""
    divided = assign(DIAGRAM, X, Assignment.UNIFORM, failure=Policy.DELAY)
    assert accumulated(DIAGRAM, divided, failing)["d"] == {"a": X, "c": 2 * X // 3}[failing]
    carried = assign(DIAGRAM, X, Assignment.CARRIED, failure=Policy.DELAY)
    assert set(accumulated(DIAGRAM, carried, failing).values()) == {X}, "what is left of the bound, wherever"


def test_the_whole_bound_to_everybody() -> None:
    whole = assign(DIAGRAM, X, Assignment.FULL, precaution=0.9)
    assert {waits.first for waits in whole.values()} == {8_100}
    assert {waits.wait(0) for waits in whole.values()} == {0}


def test_loops_are_refused() -> None:
    with pytest.raises(AnabranchError) as caught:
        assign({"a": ["b"], "b": ["a"]}, X, Assignment.UNIFORM)
    assert caught.value.id == "BAD_ARGUMENT"


def test_windows_add_up_towards_the_sources() -> None:
    readers = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}
    assert windows(readers, {"a": 1, "b": 10, "c": 100, "d": 1000}, 60) == {"a": 1161, "b": 1070, "c": 1160, "d": 1060}


def test_what_never_forgets_has_no_window() -> None:
    with pytest.raises(AnabranchError) as caught:
        windows({"a": []}, {"a": None}, 60)
    assert caught.value.id == "NOT_SUPPORTED"
