"""Counts: windows of so many rows."""

from __future__ import annotations

import pytest

from anabranch.diagram.boxes.counts import Counts, RowWindow
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.fluent import Flow
from anabranch.diagram.progress import has_event_time
from anabranch.diagram.rewrites import WHOLE, rewrite
from anabranch.diagram.rewrites.known import Known
from anabranch.model.errors import AnabranchError
from tests.unit.boxes.tools import SECOND, S, box, refused, row, said


def test_windows_of_rows_are_numbered_in_the_order_of_event_times() -> None:
    made = box(
        "SELECT k, sum(v) AS v, cq_open(*) AS o, cq_close(*) AS t FROM s <VISIBLE 3 ROWS ADVANCE 2 ROWS> GROUP BY k"
    )
    assert isinstance(made, Map)
    counts = made.input
    assert isinstance(counts, Counts)
    assert counts.window == RowWindow(3, 2)
    assert has_event_time(counts)
    rows = [row(1, v, v) for v in (5, 3, 1, 2, 4)] + [row(2, 9, 1)]
    first, second = (1, 6, 1 * SECOND, 3 * SECOND), (1, 12, 3 * SECOND, 5 * SECOND)
    assert said(made, rows) == [first, second]
    assert said(made, rows, 4.9) == [first], "the second one has a last row that progress has not reached"
    assert said(made, rows, 5) == [first, second]
    assert len(said(made, rows, 5, include_open=True)) == 4
    assert said(made, [*rows, row(1, 3, 3, -1)]) == [(1, 7, 1 * SECOND, 4 * SECOND)]
    same = Flow(S, "s").rows(3, 2).groupBy("k").agg("sum(v) AS v", "cq_open(*) AS o", "cq_close(*) AS t")
    assert same.box == made


def test_ties_are_broken_by_the_columns_and_gaps_are_left() -> None:
    made = box("SELECT first(v) AS a, last(v) AS b FROM s <VISIBLE 1 ROWS ADVANCE 2 ROWS>")
    assert said(made, [row(1, v, 1) for v in (3, 1, 2)]) == [(1, 1), (3, 3)]
    assert str(RowWindow(2, 2)) == "<SLICES 2 ROWS>"
    assert str(RowWindow(2, 1)) == "<VISIBLE 2 ROWS ADVANCE 1 ROWS>"


def test_windows_of_rows_are_kept_under_plain_names() -> None:
    made = rewrite(box("SELECT k, max(v) AS m FROM s <SLICES 2 ROWS> GROUP BY k"), Known(), WHOLE).box
    kept = [b for b in made.walk() if isinstance(b, Keep)]
    assert len(kept) == 1
    assert kept[0].columns == ("open", "close", "number", "before", "k0", "a0")


@pytest.mark.parametrize(
    "window", ["<SLICES 0 ROWS>", "<SLICES 1.5 ROWS>", "<VISIBLE 3 ROWS ADVANCE '1 minute'>",
               "<VISIBLE '1 minute' ADVANCE 3 ROWS>", "<SLICES 9999999 ROWS>"],
)  # fmt: skip
def test_windows_of_rows_that_are_refused(window: str) -> None:
    assert refused(f"CREATE STREAM q AS SELECT count(*) AS c FROM s {window}").id in ("SYNTAX", "BAD_DURATION")


def test_numbers_of_rows_in_the_fluent_form() -> None:
    for wrong in ("3", 0, True):
        with pytest.raises(AnabranchError):
            Flow(S, "s").rows(wrong)  # type: ignore[arg-type]
    with pytest.raises(AnabranchError):
        Flow(S, "s").rows(1).rows(1)
