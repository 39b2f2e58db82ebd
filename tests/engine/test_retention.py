"""Retention never takes what the logical bound of a reader still promises, whenever it is called."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import anabranch as ab

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(hour: int, minute: float = 0) -> datetime:
    return NOON.replace(hour=hour) + timedelta(minutes=minute)


def row(v: int, time: datetime, **more: Any) -> dict[str, Any]:
    return {"k": 1, "v": v, "ts": time, **more}


def insert(v: int, time: datetime) -> dict[str, Any]:
    return row(v, time, _change_type="insert")


def delete(v: int, time: datetime) -> dict[str, Any]:
    return row(v, time, _change_type="delete")


def table(engine: ab.Engine, name: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(found) for found in engine.table(name).collect())


def create(engine: ab.Engine, *names: str, history: str = "1 hour") -> None:
    for name in names:
        engine.sql(f"CREATE STREAM {name} (k INT, v INT, ts TIMESTAMP) EVENT TIME ts HISTORY '{history}'")


def test_a_deletion_counts_whose_bucket_begins_before_progress_moves(engine: ab.Engine) -> None:
    create(engine, "s")
    engine.sql("CREATE STREAM q AS SELECT max(v) AS m, count(*) AS c FROM s <SLICES '1 minute'>")
    s = engine.stream("s")
    s.append([row(9, at(12)), row(1, at(12, 0.5)), row(5, at(12, 1)), row(6, at(12, 2)), row(7, at(12, 20))])
    engine.advance()
    s.append([delete(9, at(12)), insert(3, at(20))])
    assert s.retain().rows == 0, "the deletion comes in a bucket before which progress stands at 12:20"
    engine.advance()
    assert table(engine, "q") == Counter([(1, 1), (5, 1), (6, 1), (7, 1)])
    assert engine.ignored("q").count() == 0
    assert s.retain().rows == 6, "and now nobody can delete them"
    s.append([delete(6, at(12, 2))])
    engine.advance()
    assert table(engine, "q") == Counter([(1, 1), (5, 1), (6, 1), (7, 1)])
    assert engine.ignored("q").count() == 1


def test_a_band_join_keeps_its_partners(engine: ab.Engine) -> None:
    create(engine, "a", "b", history="2 hours")
    engine.sql("CREATE STREAM q AS SELECT a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k WITHIN '30 minutes'")
    a, b = engine.stream("a"), engine.stream("b")
    a.append([row(1, at(12))])
    b.append([row(1, at(12))])
    engine.advance()
    a.append([row(2, at(20))])
    b.append([row(3, at(12, 10))])
    a.retain()
    engine.advance()
    assert table(engine, "q") == Counter([(1, 1), (1, 3)])
    assert engine.ignored("q").count() == 0


def test_of_two_sources_the_slower_one_counts(engine: ab.Engine) -> None:
    create(engine, "s")
    engine.sql("CREATE STREAM q AS SELECT max(v) AS m FROM s <SLICES '1 minute'>")
    s = engine.stream("s")
    s.append([row(1, at(20))], source="A")
    s.append([row(9, at(12)), row(8, at(12, 0.5)), row(2, at(12, 5))], source="B")
    engine.advance()
    assert s.retain().rows == 0, "progress is that of B"
    s.append([delete(9, at(12))], source="B")
    engine.advance()
    assert table(engine, "q") == Counter([(8,)])
    assert engine.ignored("q").count() == 0
