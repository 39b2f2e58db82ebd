"""Sort: rows in the order of their event times."""

from __future__ import annotations

from anabranch.diagram.boxes.sort import Sort
from anabranch.diagram.fluent import Flow
from anabranch.diagram.progress import progress_of
from tests.unit.boxes.tools import S, box, refused, row, said


def test_rows_come_out_once_progress_has_passed_them() -> None:
    made = box("SELECT v FROM s ORDER BY EVENT TIME")
    assert made == Sort(box("SELECT v FROM s")) == Flow(S, "s").select("v").sort().box
    rows = [row(1, 3, 3), row(1, 1, 1), row(1, 2, 2)]
    assert said(made, rows, 3) == [(1,), (2,)]
    assert said(made, rows, None) == []
    assert said(made, rows, 3, include_open=True) == [(1,), (2,), (3,)]
    assert progress_of(made, {"s": 5}) == 5


def test_other_orders_are_for_those_who_read_the_table() -> None:
    assert refused("CREATE STREAM q AS SELECT v FROM s ORDER BY v").id == "SYNTAX"
    assert refused("CREATE STREAM q AS SELECT v FROM (SELECT v FROM s ORDER BY EVENT TIME)").id == "SYNTAX"
    assert refused("CREATE STREAM q AS SELECT v FROM s ORDER BY EVENT TIME ORDER BY EVENT TIME").id == "SYNTAX"
