"""Lookup: what a table holds for a row when it comes."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.diagram import codec
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Join, Side
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.drawing import draw
from anabranch.diagram.expression import Expression
from anabranch.diagram.progress import has_event_time, progress_of
from anabranch.diagram.rewrites import WHOLE, rewrite
from anabranch.diagram.rewrites.known import Known
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import CreateQuery
from anabranch.model.errors import AnabranchError
from anabranch.reference.looking import looked_up
from anabranch.reference.rows import WeightedRow

COLUMNS = {"s": ("k", "v"), "p": ("k", "price")}
LOOKUP = Lookup(
    (Source("s", COLUMNS["s"]), Source("p", COLUMNS["p"])),
    (Side("s", COLUMNS["s"]), Side("p", COLUMNS["p"])),
    Expression("s.k = p.k"),
)


def box(text: str) -> Box:
    (statement,) = parse(f"CREATE STREAM q AS {text}")
    assert isinstance(statement, CreateQuery)
    made = compile_query(statement, lambda name: COLUMNS[name]).box
    assert codec.from_json(codec.to_json(made)) == made
    assert draw(made)
    return made


def test_a_lookup_that_a_change_revises_is_a_join() -> None:
    assert box("SELECT v, price FROM s LOOKUP p ON s.k = p.k") == box("SELECT v, price FROM s JOIN p ON s.k = p.k")
    assert box("SELECT v FROM s LEFT LOOKUP p ON s.k = p.k") == box("SELECT v FROM s LEFT JOIN p ON s.k = p.k")


def test_one_that_nothing_revises_is_a_box_of_its_own() -> None:
    found = box("SELECT v, price FROM s LEFT LOOKUP p ON s.k = p.k WITHOUT REVISION")
    assert isinstance(found, Map)
    assert found.input == LOOKUP
    only = box("SELECT v, price FROM s LOOKUP p ON s.k = p.k WITHOUT REVISION WHERE price > 1")
    assert isinstance(only, Map)
    assert isinstance(only.input, Filter)
    assert only.input.input == Filter(LOOKUP, Expression("_matched"))
    assert LOOKUP.columns == ("s", "p", "v", "price", "_matched", "_came")
    assert isinstance(LOOKUP.pairs, Join)
    assert has_event_time(LOOKUP)
    assert progress_of(LOOKUP, {"s": 5, "p": None}) == 5, "nobody waits for the table"
    kept = [b for b in rewrite(found, Known(), WHOLE).box.walk() if isinstance(b, Keep)]
    assert kept[0].columns == ("l0", "l1", "r0", "r1", "matched", "came")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT v FROM s JOIN p ON s.k = p.k WITHOUT REVISION",
        "SELECT s.v FROM s JOIN p ON s.k = p.k LOOKUP p AS r ON s.k = r.k WITHOUT REVISION",
        "SELECT v FROM s LOOKUP p",
        "SELECT v FROM s LOOKUP p ON s.k = p.k WITHIN '1 minute'",
    ],
)
def test_lookups_that_are_refused(text: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        box(text)
    assert caught.value.id == "SYNTAX"


def s(k: int, v: int, weight: int = 1) -> WeightedRow:
    return WeightedRow({"k": k, "v": v}, 1, weight)


def p(k: int, price: int, weight: int = 1) -> WeightedRow:
    return WeightedRow({"k": k, "price": price}, 0, weight)


def prices(*buckets: Any) -> list[Any]:
    return [row.values["price"] for row in looked_up(LOOKUP, buckets)]


def test_what_was_found_stays_until_its_row_goes() -> None:
    first = ([s(1, 1), s(1, 1), s(2, 1)], [p(1, 10)])
    assert prices(first) == [10, 10, None]
    second = ([], [p(1, 10, -1), p(1, 20), p(2, 5)])
    assert prices(first, second) == [10, 10, None]
    third = ([s(1, 1)], [])
    assert prices(first, second, third) == [10, 10, 20, None]
    assert prices(first, second, third, ([s(1, 1, -1), s(2, 1, -1)], [])) == [10, 20]
