"""Spreading rows by keys: which segments can hold what, and by which columns a Join can be spread."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.equalities import equalities
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import CreateQuery
from anabranch.diagram.stages import Leaf
from anabranch.engine.spreading import LEAST_ROWS, MOST_BITS, PART_ROWS, Parts, bits_for, holding, part_sql
from anabranch.model.run import Segment
from anabranch.model.schema import Schema

PLAIN = Segment("a", 1, 1)
SCHEMAS = {
    "l": Schema.parse("id INT, a STRING, x DOUBLE, at TIMESTAMP", "l"),
    "r": Schema.parse("id BIGINT, b STRING, x DOUBLE, day DATE", "r"),
    "m": Schema.parse("id SMALLINT, c STRING, x DECIMAL(9, 2), at TIMESTAMP", "m"),
}


def test_a_segment_holds_a_key_if_the_bits_that_both_know_agree() -> None:
    for bits, others in product(range(1, 5), repeat=2):
        for number, other in product(range(1 << bits), range(1 << others)):
            least = (1 << min(bits, others)) - 1
            mine, its = Parts(bits, frozenset([number])), Parts(others, frozenset([other]))
            assert mine.meets(its) == ((number & least) == (other & least))


def test_only_segments_that_tell_other_parts_are_left_out() -> None:
    told = [replace(PLAIN, path=str(n), options={"_x": 1, **Parts(2, frozenset([n])).options()}) for n in range(4)]
    assert [s.path for s in holding([*told, PLAIN], Parts(3, frozenset([5, 2])))] == ["1", "2", "a"]
    assert holding([*told, PLAIN], None) == [*told, PLAIN]
    assert holding(told, Parts(3, frozenset())) == []
    assert Parts.of(Segment.from_json(told[1].to_json())) == Parts(2, frozenset([1]))


def test_parts_have_about_as_many_rows_however_many_there_are() -> None:
    assert bits_for(LEAST_ROWS - 1) == 0
    for rows in (LEAST_ROWS, 20_000, 50_000, 100_000):
        assert PART_ROWS <= rows / (1 << bits_for(rows)) < 2 * PART_ROWS
    assert bits_for(1 << 40) == MOST_BITS
    assert part_sql(["`a`"], 3) == "PMOD(XXHASH64(`a`), 8L)"
    assert part_sql([], 3) == part_sql(["`a`"], 0) == "0L"


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("SELECT a FROM l JOIN r ON l.id = r.id AND a > b", ["CAST(`id` AS BIGINT)"], ["CAST(`id` AS BIGINT)"]),
        ("SELECT a FROM l JOIN r ON (R.B = L.a) AND NOT l.id = r.id", ["`a`"], ["`b`"]),
        ("SELECT a FROM l JOIN r ON a = b AND (l.x = r.x AND l.id = 3)", ["`a`"], ["`b`"]),
        ("SELECT a FROM l JOIN r ON a = b OR l.id = r.id", [], []),
        ("SELECT a FROM l JOIN r ON a = r.id AND at = day AND l.id + 1 = r.id AND a = upper(b)", [], []),
        ("SELECT q.z FROM (SELECT id AS z, upper(a) AS u FROM l WHERE a > '') AS q JOIN r ON q.z = r.id AND u = b",
         ["CAST(`id` AS BIGINT)"], ["CAST(`id` AS BIGINT)"]),
        ("SELECT u.i FROM (SELECT id AS i, a AS t FROM l UNION ALL SELECT id, c FROM m) AS u JOIN r ON u.i = r.id",
         ["CAST(`id` AS BIGINT)"], ["CAST(`id` AS BIGINT)"]),
        ("SELECT u.i FROM (SELECT id AS i, x AS t FROM l UNION ALL SELECT id, x FROM m) AS u JOIN m ON u.t = m.x",
         [], []),
    ],
)  # fmt: skip
def test_a_join_is_spread_by_what_is_certainly_equal(text: str, left: list[str], right: list[str]) -> None:
    box = next(b for b in _compiled(text).walk() if isinstance(b, Join))
    found = equalities(box, _schema_of)
    for side, expected in enumerate((left, right)):
        assert all(list(of_leaf) == expected for of_leaf in found.leaves[side].values())
        assert bool(found.leaves[side]) == bool(expected)
        assert len(found.keys[side]) == len(expected)


def test_a_left_input_that_was_joined_itself_is_spread_by_a_field() -> None:
    box = next(
        b for b in _compiled("SELECT a FROM l JOIN m ON l.id = m.id JOIN r ON l.a = r.b").walk() if isinstance(b, Join)
    )
    below = box.parts[0]
    kept = Source("kept", below.columns)
    struct = Schema.parse({"l": "STRUCT<id: INT, a: STRING>", "m": "STRUCT<c: STRING>"}, "kept")
    found = equalities(
        replace(box, parts=(kept, box.parts[1])), lambda leaf: struct if leaf == kept else _schema_of(leaf)
    )
    assert found.leaves[0] == {kept: ("`l`.`a`",)}
    assert found.keys == (("`l`.`a`",), ("`b`",))


def _compiled(text: str):  # type: ignore[no-untyped-def]
    (statement,) = parse(f"CREATE STREAM q AS {text}")
    assert isinstance(statement, CreateQuery)
    return compile_query(statement, lambda name: SCHEMAS[name].names).box


def _schema_of(leaf: Leaf) -> Schema:
    assert isinstance(leaf, Source)
    return SCHEMAS[leaf.stream]
