"""Joins: from SQL to boxes, and what they mean, in the reference executor."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.join import Band, Join, Side
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.expression import Expression
from anabranch.diagram.fluent import Flow
from anabranch.diagram.progress import progress_of
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import CreateQuery
from anabranch.model.errors import AnabranchError
from anabranch.reference.keys import Keyed, Message, live_rows
from anabranch.reference.rows import WeightedRow
from anabranch.reference.run import answer

COLUMNS = {"l": ("id", "a", "ts"), "r": ("id", "b", "ts"), "x": ("id", "c", "start", "stop")}
SECOND = 1_000_000


def box(text: str) -> Box:
    (statement,) = parse(f"CREATE STREAM q AS {text}")
    assert isinstance(statement, CreateQuery)
    return compile_query(statement, lambda name: COLUMNS[name]).box


def refused(text: str) -> AnabranchError:
    with pytest.raises(AnabranchError) as caught:
        box(text)
    return caught.value


def row(second: float | None, **values: Any) -> WeightedRow:
    at = None if second is None else int(second * SECOND)
    return WeightedRow({"ts": at, **values}, at)


def said(text: str, progress: float | None = 100, include_open: bool = False, **tables: list[WeightedRow]) -> list[Any]:
    reached = None if progress is None else int(progress * SECOND)
    found = answer(box(text), tables, dict.fromkeys(tables, reached), include_open)
    return [tuple(r.values.values()) for r in found.rows]


def test_a_join_is_a_box_under_a_map() -> None:
    made = box("SELECT l.a, b FROM l JOIN r ON l.id = r.id WITHIN '5 seconds'")
    assert isinstance(made, Map)
    left, right = Source("l", COLUMNS["l"]), Source("r", COLUMNS["r"])
    sides = (Side("l", COLUMNS["l"]), Side("r", COLUMNS["r"]))
    assert made.input == Join((left, right), sides, Expression("l.id = r.id"), 5 * SECOND)
    assert made.input.columns == ("l", "r", "a", "b")


def test_stars_and_names() -> None:
    made = box("SELECT l.*, b FROM l JOIN r ON l.id = r.id")
    assert [str(o) for o in made.outputs] == ["l.id AS id", "l.a AS a", "l.ts AS ts", "b"]  # type: ignore[attr-defined]
    assert refused("SELECT * FROM l JOIN r ON TRUE").got == "'id' twice"
    assert refused("SELECT a FROM l JOIN l ON TRUE").got == "'l' twice"
    assert "a column too" in refused("SELECT 1 AS one FROM l AS b JOIN r ON TRUE").got
    assert refused("SELECT a FROM l JOIN (SELECT id FROM r) ON TRUE").need == "a name for each sub-query that is joined"
    assert refused("SELECT a FROM l JOIN r WITHIN '1 second'").need == "ON"
    assert refused("SELECT a FROM l <SLICES '1 second'> JOIN r ON TRUE").got == "a window over one side of it"
    assert refused("SELECT z.* FROM l JOIN r ON TRUE").need == "* or l.* or r.*"
    assert refused("SELECT a FROM l JOIN r ON count(*) > 1").got == "count(*)"
    unsided = refused("SELECT a FROM l JOIN r ON TRUE WITHIN BETWEEN start AND stop")
    assert unsided.got == "columns without their side's name"


def test_three_streams_are_joined_from_left_to_right() -> None:
    made = box("SELECT l.id, b, c FROM l JOIN r ON l.id = r.id WITHIN '1 second' LEFT JOIN x ON r.id = x.id")
    outer = made.inputs[0]
    assert isinstance(outer, Join)
    inner = outer.parts[0]
    assert isinstance(inner, Join)
    assert (inner.within, inner.outer, outer.within, outer.outer) == (SECOND, False, None, True)
    assert [side.name for side in outer.sides] == ["l", "r", "x"]
    assert outer.columns == ("l", "r", "x", "a", "b", "c", "start", "stop")
    rows = {
        "l": [row(1, id=1, a="a"), row(2, id=2, a="b")],
        "r": [row(1, id=1, b="x"), row(2, id=2, b="y")],
        "x": [WeightedRow({"id": 1, "c": "c", "start": 0, "stop": 9}, 0)],
    }
    text = "SELECT l.id, b, c FROM l JOIN r ON l.id = r.id WITHIN '1 second' LEFT JOIN x ON r.id = x.id"
    assert sorted(said(text, **rows), key=repr) == [(1, "x", "c"), (2, "y", None)]


BANDED = "SELECT a, b FROM l {} r ON l.id = r.id WITHIN '5 seconds'"


def test_a_band_is_symmetric_and_inclusive() -> None:
    left = [row(10, id=1, a="a")]
    right = [row(at, id=1, b=at) for at in (4.9, 5, 15, 15.1)] + [row(10, id=2, b="other")]
    assert said(BANDED.format("JOIN"), l=left, r=right) == [("a", 5), ("a", 15)]
    found = answer(box(BANDED.format("JOIN")), {"l": left, "r": right}, {"l": 0, "r": 0}).rows
    assert [r.event_time for r in found] == [10 * SECOND, 15 * SECOND], "the later of the two"


def test_a_left_row_waits_for_its_partner_until_its_band_has_passed() -> None:
    left, right = [row(10, id=1, a="a"), row(20, id=1, a="b")], [row(26, id=1, b="far")]
    text = BANDED.format("LEFT JOIN")
    assert said(text, progress=None, l=left, r=right) == []
    assert said(text, progress=15, l=left, r=right) == []
    assert said(text, progress=15.1, l=left, r=right) == [("a", None)]
    assert said(text, progress=15, include_open=True, l=left, r=right) == [("a", None), ("b", None)]
    unbounded = "SELECT a, b FROM l LEFT JOIN r ON l.id = r.id"
    assert said(unbounded, progress=None, l=left, r=[]) == [("a", None), ("b", None)], "without a band, at once"


def test_bounds_may_come_from_the_columns_of_either_side() -> None:
    events = [row(at, id=1, a=at) for at in (1, 2, 3, 4)]
    spans = [WeightedRow({"id": 1, "c": "c", "start": 2 * SECOND, "stop": 3 * SECOND}, 0)]
    of_right = "SELECT a, c FROM l JOIN x ON l.id = x.id WITHIN BETWEEN x.start AND x.stop"
    of_left = "SELECT a, c FROM x JOIN l ON l.id = x.id WITHIN BETWEEN x.start AND x.stop"
    for text in (of_right, of_left):
        assert said(text, l=events, x=spans) == [(2, "c"), (3, "c")]
    outer = of_left.replace("JOIN", "LEFT JOIN")
    open_ended = [WeightedRow({"id": 1, "c": "no end", "start": 2 * SECOND, "stop": None}, 0)]
    assert said(outer, progress=None, l=events, x=spans) == [(2, "c"), (3, "c")]
    assert said(outer, progress=None, l=events, x=open_ended) == [(None, "no end")], "it can have no partner"
    join = box(of_left).inputs[0]
    assert isinstance(join, Join)
    assert join.between == Band(True, Expression("x.start"), Expression("x.stop"))


def test_progress_is_the_minimum_less_the_band_of_an_outer_join() -> None:
    streams = {"l": 100 * SECOND, "r": 90 * SECOND}
    assert progress_of(box(BANDED.format("JOIN")), streams) == 90 * SECOND
    assert progress_of(box(BANDED.format("LEFT JOIN")), streams) == 85 * SECOND
    assert progress_of(box("SELECT a, b FROM l LEFT JOIN r ON TRUE"), streams) == 90 * SECOND
    assert progress_of(box(BANDED.format("JOIN")), {"l": 1, "r": None}) is None


def test_of_each_key_the_version_with_the_highest_stamp_counts() -> None:
    def message(stamp: int, key: int, n: int, gone: bool = False) -> Message:
        return Message({"id": key, "n": n}, (stamp, 0), stamp, gone)

    story = [message(1, 1, 10), message(4, 2, 0, gone=True), message(3, 2, 20), message(2, 1, 11), message(5, 3, 30)]
    for order in (story, story[::-1], [*story, story[0]]):
        rows = live_rows(Keyed(("id",), order))
        assert sorted(tuple(r.values.values()) for r in rows) == [(1, 11), (3, 30)]
    later = live_rows(Keyed(("id",), [*story, message(6, 2, 21)]))
    assert sorted(tuple(r.values.values()) for r in later) == [(1, 11), (2, 21), (3, 30)], "a newer one lives"


def test_the_fluent_form_gives_the_same_boxes() -> None:
    left, right = (Flow(Source(name, COLUMNS[name]), name) for name in ("l", "r"))
    made = left.join(right, on="l.id = r.id", within="5 seconds").where("a > 1").select("l.a", "b")
    assert made.box == box("SELECT l.a, b FROM l JOIN r ON l.id = r.id WITHIN '5 seconds' WHERE a > 1")
    named = left.alias("p").join(right.where("b > 0").alias("q"), on="p.id = q.id", how="left").select("p.*", "b")
    assert named.box == box("SELECT p.*, b FROM l AS p LEFT JOIN (SELECT * FROM r WHERE b > 0) AS q ON p.id = q.id")
    for wrong in (
        lambda: left.join(right, on="TRUE", how="full"),
        lambda: left.join(right.select("b"), on="TRUE"),
        lambda: left.join(left, on="TRUE"),
        lambda: left.join(right, on="count(*) > 1"),
    ):
        with pytest.raises(AnabranchError):
            wrong()
