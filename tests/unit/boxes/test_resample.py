"""Resample: values at the instants of a grid."""

from __future__ import annotations

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.fluent import Flow
from anabranch.diagram.progress import progress_of
from anabranch.model.window import Window
from anabranch.reference.run import answer
from tests.unit.boxes.tools import SECOND, S, box, refused, row, said


def test_resampling_takes_the_last_value_up_to_each_instant() -> None:
    made = box("SELECT k, last(v) AS v, cq_close(*) AS t FROM s <RESAMPLE '2 seconds' HOLD '4 seconds'> GROUP BY k")
    assert isinstance(made, Map)
    assert isinstance(made.input, Aggregate)
    assert made.input.window == Window.resampling(2 * SECOND, 4 * SECOND)
    rows = [row(1, 1, 0), row(1, 2, 2), row(1, 3, 3)]
    at = [(1, 1, 0), (1, 2, 2), (1, 3, 4), (1, 3, 6)]
    assert said(made, rows) == [(k, v, t * SECOND) for k, v, t in at], "a row counts at its own instant, and is held"
    found = answer(made, {"s": rows}, {"s": 2 * SECOND})
    assert [r.event_time for r in found.rows] == [0]
    assert found.progress == progress_of(made, {"s": 2 * SECOND}) == 2 * SECOND, "the first instant not yet said"
    assert progress_of(made, {"s": 2 * SECOND + 1}) == 4 * SECOND
    same = Flow(S, "s").resample("2 seconds", "4 seconds").groupBy("k").agg("last(v) AS v", "cq_close(*) AS t")
    assert same.box == made


def test_a_hold_shorter_than_the_grid_is_refused() -> None:
    error = refused("CREATE STREAM q AS SELECT last(v) AS v FROM s <RESAMPLE '2 seconds' HOLD '1 second'>")
    assert error.id == "BAD_DURATION"
    assert str(Window.resampling(2 * SECOND, 4 * SECOND)) == "<RESAMPLE '2 seconds' HOLD '4 seconds'>"
