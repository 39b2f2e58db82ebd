"""Aggregate: one row for each window and group, or, running, for each group."""

from __future__ import annotations

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.fluent import Flow
from anabranch.diagram.progress import has_event_time, progress_of
from anabranch.model.window import Window
from anabranch.reference.run import answer
from tests.unit.boxes.tools import SECOND, S, box, refused, row, said

SLIDING = box("SELECT k, sum(v) AS v FROM s <VISIBLE '15 seconds' ADVANCE '5 seconds'> GROUP BY k")
RUNNING = box("SELECT k, count(*) AS c FROM s GROUP BY k")


def test_windows_slide_and_are_half_open() -> None:
    assert isinstance(SLIDING, Map)
    assert isinstance(SLIDING.input, Aggregate)
    assert SLIDING.input.window == Window(15 * SECOND, 5 * SECOND)
    assert Flow(S, "s").window("15 seconds", "5 seconds").groupBy("k").agg("sum(v) AS v").box == SLIDING
    rows = [row(1, 1, 0), row(1, 2, 5)]
    assert said(SLIDING, rows, 20) == [(1, 1), (1, 3), (1, 3), (1, 2)], "[-10, 5) has the first row alone"
    assert said(SLIDING, rows, 12) == [(1, 1), (1, 3)], "two have closed"


def test_a_replacement_under_it_revises_up_to_three_windows() -> None:
    before = [row(1, 1, 7)]
    after = [*before, row(1, 1, 7, -1), row(1, 4, 7)]
    assert said(SLIDING, before, 60) == [(1, 1)] * 3
    assert said(SLIDING, after, 60) == [(1, 4)] * 3


def test_results_have_the_last_instant_of_their_window() -> None:
    found = answer(SLIDING, {"s": [row(1, 1, 7)]}, {"s": 60 * SECOND}).rows
    assert [made.event_time for made in found] == [second * SECOND - 1 for second in (10, 15, 20)]
    assert progress_of(SLIDING, {"s": 12 * SECOND}) == 15 * SECOND - 1, "the next close that is not reached"


def test_a_running_one_has_no_windows_and_no_event_time() -> None:
    assert isinstance(RUNNING, Map)
    assert isinstance(RUNNING.input, Aggregate)
    assert RUNNING.input.window is None
    assert not has_event_time(RUNNING)
    assert said(RUNNING, [row(1, 1, 0), row(2, 1, 9), row(1, 1, 3)], None) == [(1, 2), (2, 1)]


def test_a_group_of_which_no_row_remains_has_no_result() -> None:
    assert said(RUNNING, [row(1, 1, 0), row(1, 1, 0, -1)]) == []


def test_columns_are_grouped_or_aggregated() -> None:
    assert refused("CREATE STREAM q AS SELECT k, v, count(*) AS c FROM s GROUP BY k").id == "NOT_GROUPED"
