"""Split: each row goes one of several ways."""

from __future__ import annotations

import pytest

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.expression import Expression
from anabranch.diagram.fluent import Flow
from anabranch.diagram.progress import progress_of
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.split import compile_split
from anabranch.diagram.sql.statements import SplitStream
from tests.unit.boxes.tools import COLUMNS, S, refused, row, said


def ways(text: str) -> dict[str, Box]:
    (statement,) = parse(text)
    assert isinstance(statement, SplitStream)
    return {query.name: query.box for query in compile_split(statement, lambda name: COLUMNS)}


def test_each_row_goes_the_way_of_the_first_true_condition() -> None:
    made = ways("SPLIT STREAM s INTO big WHEN v > 10, odd WHEN v % 2 = 1, rest OTHERWISE")
    rows = [row(1, 11, 0), row(1, 3, 1), row(1, 4, 2), row(1, None, 3)]
    found = {name: [v for _, v, _ in said(way, rows)] for name, way in made.items()}
    assert found == {"big": [11], "odd": [3], "rest": [4, None]}
    assert all(progress_of(way, {"s": 7}) == 7 for way in made.values())
    assert list(ways("SPLIT STREAM s INTO a WHEN v > 1, b WHEN v > 0")) == ["a", "b"]
    conditions = (Expression("v > 10"), Expression("v % 2 = 1"))
    flows = Flow(S, "s").split("v > 10", "v % 2 = 1")
    assert [flow.box for flow in flows] == [Split(S, conditions, way) for way in range(3)] == list(made.values())
    assert made["odd"].predicate.text == "CASE WHEN (v > 10) THEN 0 WHEN (v % 2 = 1) THEN 1 ELSE 2 END = 1"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        "SPLIT s INTO a WHEN v > 1",
        "SPLIT STREAM s a WHEN v > 1",
        "SPLIT STREAM s INTO a",
        "SPLIT STREAM s INTO a OTHERWISE",
        "SPLIT STREAM s INTO a OTHERWISE, b WHEN v > 1",
        "SPLIT STREAM s INTO a WHEN v > 1, a OTHERWISE",
        "SPLIT STREAM s INTO a WHEN count(*) > 1",
    ],
)
def test_splits_that_are_refused(text: str) -> None:
    assert refused(text).id == "SYNTAX"
