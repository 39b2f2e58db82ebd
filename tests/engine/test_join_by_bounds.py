"""Joins whose band comes from columns: the batch answer, whatever they say; only rows that can be partners are read."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import anabranch as ab
from anabranch.log.log import Log

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS, SPANS = "id INT, n INT, ts TIMESTAMP", "id INT, c INT, start TIMESTAMP, stop TIMESTAMP, at TIMESTAMP"
OURS = {
    "bounds of the right": "SELECT n, c FROM e {kind} x ON e.id = x.id WITHIN BETWEEN x.start AND x.stop",
    "bounds of the left": "SELECT c, n FROM x {kind} e ON e.id = x.id WITHIN BETWEEN x.start AND x.stop",
}


def minute(number: float) -> datetime:
    return ZERO + timedelta(minutes=number)


def make(engine: ab.Engine, query: str) -> tuple[ab.Stream, ab.Stream]:
    engine.sql(f"CREATE STREAM e ({EVENTS}) EVENT TIME ts; CREATE STREAM x ({SPANS}) EVENT TIME at")
    engine.sql(f"CREATE STREAM q AS {query}")
    return engine.stream("e"), engine.stream("x")


def span(chance: np.random.Generator, c: int, around: float) -> tuple[Any, ...]:
    """Bounds that may lie anywhere beside the row's own time, the wrong way round now and then, or be missing."""
    start = around + chance.integers(-90, 60)
    stop = start + chance.integers(-5, 40)
    return (int(chance.integers(3)), c, minute(start), None if chance.random() < 0.1 else minute(stop), minute(around))


@pytest.mark.parametrize(("side", "kind"), [(side, kind) for side in OURS for kind in ("JOIN", "LEFT JOIN")])
def test_the_table_is_the_batch_answer(engine: ab.Engine, side: str, kind: str) -> None:
    chance = np.random.default_rng(len(side) + len(kind))
    events, spans = make(engine, OURS[side].format(kind=kind))
    rows: dict[str, list[tuple[Any, ...]]] = {"e": [], "x": []}
    for step in range(6):
        when = step * 40.0
        new = [(int(chance.integers(3)), step * 10 + n, minute(when + chance.integers(-60, 40))) for n in range(6)]
        late = [span(chance, step * 10 + n, when + chance.integers(-60, 40)) for n in range(3)]
        if step != 3:
            events.append(new)
            rows["e"] += new
        if step != 2:
            spans.append(late)
            rows["x"] += late
        if step == 4:
            gone = {name: rows[name].pop(1) for name in rows}
            events.append([{**dict(zip(("id", "n", "ts"), gone["e"], strict=True)), "_change_type": "delete"}])
            names = ("id", "c", "start", "stop", "at")
            spans.append([{**dict(zip(names, gone["x"], strict=True)), "_change_type": "delete"}])
        engine.advance()
    for stream in (events, spans):
        stream.punctuate(minute(5000))
    engine.advance()
    engine.spark.createDataFrame(rows["e"], EVENTS).createOrReplaceTempView("batch_e")
    engine.spark.createDataFrame(rows["x"], SPANS).createOrReplaceTempView("batch_x")
    text = OURS[side].format(kind=kind).replace("WITHIN BETWEEN", "AND e.ts BETWEEN")
    batch = engine.spark.sql(text.replace("FROM e", "FROM batch_e e").replace("FROM x", "FROM batch_x x")
                             .replace("JOIN e", "JOIN batch_e e").replace("JOIN x", "JOIN batch_x x"))  # fmt: skip
    ours, theirs = (Counter(map(tuple, frame.collect())) for frame in (engine.table("q"), batch))
    assert ours == theirs
    assert sum(ours.values()) > 5


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many segments of rows plans by event time have named, by stream."""
    found: dict[str, int] = {}
    original = Log.plan_panes

    def plan(self: Log, stream: Any, *args: Any, **options: Any) -> Any:
        segments = original(self, stream, *args, **options)
        if "role" not in options:
            found[stream.name] = found.get(stream.name, 0) + len(segments)
        return segments

    monkeypatch.setattr(Log, "plan_panes", plan)
    return found


@pytest.mark.parametrize("side", OURS)
def test_only_what_can_be_a_partner_is_read(engine: ab.Engine, side: str, planned: dict[str, int]) -> None:
    events, spans = make(engine, OURS[side].format(kind="JOIN"))
    for hour in range(6):
        events.append([(1, hour, minute(60 * hour))])
        spans.append([(1, hour, minute(60 * hour - 5), minute(60 * hour + 5), minute(60 * hour + 10))])
        engine.advance()
    planned.clear()
    events.append([(1, 7, minute(121))])
    spans.append([(1, 7, minute(239), minute(241), minute(242))])
    engine.advance()
    assert {(row.c, row.n) for row in engine.table("q").collect()} >= {(2, 7), (7, 4)}
    assert planned == {"e": 1, "x": 1}, "of each side, of seven, the one that can hold partners of the other's new row"


def test_a_join_that_was_made_before_reaches_were_recorded_learns_its_own(engine: ab.Engine) -> None:
    import sqlalchemy as sa

    from anabranch.log import tables

    events, spans = make(engine, OURS["bounds of the right"].format(kind="JOIN"))
    spans.append([(1, 1, minute(500), minute(510), minute(0))])
    events.append([(1, 1, minute(0))])
    engine.advance()
    with engine._log.catalog.write() as connection:
        connection.execute(tables.queries.update().values(reach=sa.null()))
    events.append([(1, 2, minute(505))])
    engine.advance()
    assert [(row.n, row.c) for row in engine.table("q").collect()] == [(2, 1)]
