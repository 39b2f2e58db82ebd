"""The first rows of groups: from SQL to boxes, and what they mean, in the reference executor."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.explode import Explode
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.topn import Order, TopN
from anabranch.diagram.expression import Expression
from anabranch.diagram.rewrites.known import Known
from anabranch.diagram.rewrites.top_n import top_n
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import CreateQuery
from anabranch.model.errors import AnabranchError
from anabranch.reference.rows import WeightedRow
from anabranch.reference.run import answer

COLUMNS = ("k", "n", "ts")


def box(text: str) -> Box:
    (statement,) = parse(f"CREATE STREAM q AS {text}")
    assert isinstance(statement, CreateQuery)
    return compile_query(statement, lambda name: COLUMNS).box


def said(text: str, *rows: tuple[Any, Any]) -> list[tuple[Any, ...]]:
    there = [WeightedRow({"k": k, "n": n, "ts": at}, at) for at, (k, n) in enumerate(rows)]
    return [tuple(r.values.values()) for r in answer(box(text), {"s": there}, {"s": None}).rows]


def test_qualify_is_a_box_below_the_select_list_and_above_groups() -> None:
    made = box("SELECT n FROM s WHERE n > 0 QUALIFY row_number() OVER (PARTITION BY k, n % 2 ORDER BY ts DESC, n) <= 3")
    assert isinstance(made, Map)
    first = made.input
    assert isinstance(first, TopN)
    assert first.keys == (Expression("k"), Expression("n % 2"))
    assert first.order == (Order(Expression("ts"), True, True), Order(Expression("n")))
    assert first.most == 3
    groups = box(
        "SELECT k, count(*) AS c FROM s GROUP BY k QUALIFY row_number() OVER (ORDER BY c DESC NULLS FIRST) = 1"
    )
    assert isinstance(groups, TopN)
    assert (groups.keys, groups.order, groups.most) == ((), (Order(Expression("c"), True, False),), 1)
    assert str(groups.order[0]) == "c DESC NULLS FIRST"


@pytest.mark.parametrize(
    "condition",
    [
        "n > 1", "rank() OVER (ORDER BY n) <= 3", "row_number() OVER (ORDER BY n) > 3",
        "row_number() OVER (ORDER BY n) = 2", "row_number() OVER (ORDER BY n) <= 0",
        "row_number() OVER (ORDER BY n) < 1",
        "row_number() OVER (PARTITION BY n) <= 1", "row_number() OVER (n ORDER BY n) <= 1",
        "row_number() OVER (ORDER BY n) <= k",
    ],
)  # fmt: skip
def test_other_conditions_are_refused(condition: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        box(f"SELECT n FROM s QUALIFY {condition}")
    assert caught.value.id == "SYNTAX"


def test_the_first_rows_of_each_group() -> None:
    rows = [("a", 3), ("a", 1), ("b", 2), ("a", 2), (None, 5), ("a", None)]
    least = "SELECT k, n FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY n) <= 2"
    assert said(least, *rows) == [("a", 1), ("b", 2), (None, 5), ("a", None)]
    most = "SELECT k, n FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY n DESC) <= 2"
    assert said(most, *rows) == [("a", 3), ("b", 2), ("a", 2), (None, 5)]
    known = "SELECT k, n FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY n NULLS LAST) <= 2"
    assert said(known, *rows) == [("a", 1), ("b", 2), ("a", 2), (None, 5)]


def test_ties_are_broken_by_the_other_columns() -> None:
    one = "SELECT n FROM s QUALIFY row_number() OVER (ORDER BY k) = 1"
    assert said(one, ("a", 2), ("a", 1)) == said(one, ("a", 1), ("a", 2)) == [(1,)]


def test_the_first_rows_are_an_aggregate() -> None:
    first = TopN(Source("s", COLUMNS), (Expression("k"),), (Order(Expression("n"), True, True),), 3, "place")
    made, notes = top_n(first, Known())
    assert isinstance(made, Map)
    assert made.columns == (*COLUMNS, "place")
    assert isinstance(made.input, Explode)
    assert isinstance(made.input.input, Aggregate)
    assert [str(argument) for argument in made.input.input.calls[0].arguments[1:]] == ["3", "'DL'"]
    assert notes[0].rewrite == "top n"


NESTED = (
    "SELECT k, n, rn FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY n DESC) AS rn FROM s WHERE n > 0) AS t"
)


def test_the_rank_of_a_sub_query_may_be_bounded_above_it() -> None:
    rows = [(1, 5), (1, 7), (1, 6), (2, 1), (1, -1)]
    assert sorted(said(f"{NESTED} WHERE rn <= 2", *rows)) == [(1, 6, 2), (1, 7, 1), (2, 1, 1)]
    assert sorted(said(f"{NESTED} WHERE rn < 2", *rows)) == [(1, 7, 1), (2, 1, 1)]
    assert said(f"{NESTED} WHERE rn = 1 AND k = 2", *rows) == [(2, 1, 1)]
    made = box(f"{NESTED} WHERE rn <= 2")
    first = next(b for b in made.walk() if isinstance(b, TopN))
    assert (first.most, first.rank) == (2, "rn")


@pytest.mark.parametrize("where", ["", " WHERE rn > 2", " WHERE k = 1", " WHERE rn <= k", " WHERE rn = 2"])
def test_ranks_of_sub_queries_without_a_bound_are_refused(where: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        box(NESTED + where)
    assert caught.value.id == "SYNTAX"
