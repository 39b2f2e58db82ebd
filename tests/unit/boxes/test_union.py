"""Union: the rows of several inputs, duplicates and all."""

from __future__ import annotations

from anabranch.diagram.boxes.union import Union
from anabranch.diagram.fluent import Flow
from anabranch.diagram.progress import progress_of
from tests.unit.boxes.tools import S, box, refused, row, said

BOTH = box("SELECT k, v FROM s WHERE v > 1 UNION ALL SELECT v, k FROM s")


def test_columns_are_matched_by_place_and_duplicates_stay() -> None:
    flow = Flow(S, "s")
    assert isinstance(BOTH, Union)
    assert flow.where("v > 1").select("k", "v").union(flow.select("v", "k")).box == BOTH
    assert said(BOTH, [row(2, 2, 0), row(1, 5, 1)]) == [(2, 2), (2, 2), (1, 5), (5, 1)]


def test_a_deletion_goes_every_way_that_its_row_went() -> None:
    assert said(BOTH, [row(2, 2, 0), row(1, 5, 1), row(2, 2, 0, -1)]) == [(1, 5), (5, 1)]


def test_it_waits_for_the_slowest() -> None:
    made = box("SELECT k FROM s UNION ALL SELECT k FROM z")
    assert progress_of(made, {"s": 9, "z": 4}) == 4
    assert progress_of(made, {"s": 9, "z": None}) is None


def test_parts_have_as_many_columns() -> None:
    assert refused("CREATE STREAM q AS SELECT k FROM s UNION ALL SELECT k, v FROM s").id == "SYNTAX"
