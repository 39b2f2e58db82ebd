"""What a query promises and what limits it: its kind of recovery, revisions that are not said, bounds on history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import anabranch as ab

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def at(minute: float) -> datetime:
    return ZERO + timedelta(minutes=minute)


def rows(*minutes: float, k: str = "a", v: int = 1) -> list[dict[str, Any]]:
    return [{"k": k, "v": v, "ts": at(minute)} for minute in minutes]


def facts(engine: ab.Engine, name: str) -> dict[str, str]:
    """What DESCRIBE says beside the columns."""
    described = engine.sql(f"DESCRIBE {name}")
    assert described is not None
    return {row.column[2:]: row.type for row in described.collect() if row.column.startswith("# ")}


def lines(engine: ab.Engine, statement: str) -> list[str]:
    drawn = engine.sql(statement)
    assert drawn is not None
    return [row.plan for row in drawn.collect()]


@pytest.fixture
def s(engine: ab.Engine) -> ab.Stream:
    engine.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP) EVENT TIME ts")
    return engine.stream("s")


def test_a_query_says_how_it_recovers(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("CREATE STREAM drawn AS SELECT k, rand() AS r, ts FROM s WHERE v > 0")
    engine.sql("CREATE STREAM one AS SELECT k, r FROM drawn QUALIFY row_number() OVER (PARTITION BY k ORDER BY r) = 1")
    assert facts(engine, "drawn")["recovery"] == "arbitrary, because of rand() in Map k, rand() AS r, ts"
    assert facts(engine, "one")["recovery"].startswith("arbitrary, because of rand() in Map"), "as what it reads"
    counts = "CREATE STREAM c AS SELECT k, count(*) AS c FROM s <SLICES '1 minute'> GROUP BY k"
    assert lines(engine, f"EXPLAIN {counts}")[-1].startswith("Recovery: convergent-capable, because of Consolidate")
    assert lines(engine, "EXPLAIN CREATE STREAM f AS SELECT k FROM s")[-1] == "Recovery: repeatable"
