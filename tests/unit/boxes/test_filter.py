"""Filter: rows for which a condition is true; the four cases of a revised row (BOREALIS 3.2)."""

from __future__ import annotations

import pytest

from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.expression import Expression
from anabranch.diagram.fluent import Flow
from anabranch.diagram.progress import progress_of
from tests.unit.boxes.tools import S, box, refused, row, said

BIG = box("SELECT * FROM s WHERE v > 5")


def test_what_is_true_passes_and_what_is_null_does_not() -> None:
    assert BIG == Filter(S, Expression("v > 5")) == Flow(S, "s").where("v > 5").box
    assert said(BIG, [row(1, 4, 0), row(1, 6, 1), row(1, None, 2)]) == [(1, 6, 1_000_000)]
    assert progress_of(BIG, {"s": 7}) == 7


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [(9, 8, [8]), (9, 1, []), (1, 9, [9]), (1, 2, [])],
    ids=["a revision of it", "a deletion", "an insertion", "nothing"],
)
def test_a_revised_row_leaves_by_one_of_four_ways(before: int, after: int, left: list[int]) -> None:
    rows = [row(1, before, 0), row(1, before, 0, -1), row(1, after, 0)]
    assert [values[1] for values in said(BIG, rows)] == left


def test_conditions_on_aggregates_belong_elsewhere() -> None:
    assert refused("CREATE STREAM q AS SELECT * FROM s WHERE count(*) > 1").id == "SYNTAX"
