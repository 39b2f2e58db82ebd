"""Split, Sort and Resample on Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import anabranch as ab
from anabranch.model.errors import AnabranchError

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: float) -> datetime:
    return ZERO + timedelta(seconds=second)


def table(engine: ab.Engine, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in engine.table(name).collect()), key=repr)


def test_a_split_is_all_of_its_ways_or_none(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (v INT, ts TIMESTAMP) EVENT TIME ts; CREATE STREAM taken AS SELECT v FROM s")
    for wrong in ("a WHEN v > 1, taken OTHERWISE", "a WHEN v > 1, b WHEN nothing > 1"):
        with pytest.raises(AnabranchError):
            engine.sql(f"SPLIT STREAM s INTO {wrong}")
    assert [stream.name for stream in engine.streams()] == ["s", "taken"]
    engine.sql("SPLIT STREAM s INTO big WHEN v > 10, odd WHEN v % 2 = 1, rest OTHERWISE")
    engine.sql("SPLIT STREAM s INTO big WHEN v > 10, odd WHEN v % 2 = 1, rest OTHERWISE")
    engine.stream("s").append([(v, at(v or 0)) for v in (11, 3, 4, None)])
    engine.advance()
    assert [[v for v, _ in table(engine, name)] for name in ("big", "odd", "rest")] == [[11], [3], [4, None]]


def test_sorted_answers_do_not_depend_on_the_cut_and_hide_what_goes_before_it_is_passed(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (v INT, ts TIMESTAMP) EVENT TIME ts SLACK '2 seconds'")
    engine.sql("CREATE STREAM o AS SELECT v FROM s ORDER BY EVENT TIME")
    stream = engine.stream("s")
    stream.append([(5, at(5)), (1, at(1)), (4, at(4)), (2, at(2))])
    engine.advance()
    stream.append([{"v": 4, "ts": at(4), "_change_type": "delete"}, {"v": 0, "ts": at(0), "_change_type": "insert"}])
    engine.advance()
    stream.append([(9, at(9))])
    engine.advance()
    said = [(c._bucket, c._ordinal, c._change_type, c.v) for c in engine.changes("o").collect()]
    assert said == [(1, 0, "insert", 1), (1, 1, "insert", 2), (2, 0, "insert", 0), (3, 0, "insert", 5)]
    engine.sql("CREATE STREAM later AS SELECT v FROM s ORDER BY EVENT TIME")
    engine.advance()
    assert table(engine, "later") == table(engine, "o") == [(0,), (1,), (2,), (5,)]


def test_a_sort_needs_event_times(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (v INT, ts TIMESTAMP) EVENT TIME ts")
    for text in (
        "SELECT sum(v) AS v FROM s ORDER BY EVENT TIME",
        "SELECT max(v) AS v FROM (SELECT sum(v) AS v FROM s) <SLICES 2 ROWS>",
    ):
        with pytest.raises(AnabranchError) as caught:
            engine.sql(f"CREATE STREAM q AS {text}")
        assert caught.value.id == "NO_EVENT_TIME"


def test_resampling_holds_values_and_is_corrected(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("""CREATE STREAM g AS SELECT k, last(v) AS v, date_format(cq_close(*), 'ss') AS t
        FROM s <RESAMPLE '2 seconds' HOLD '4 seconds'> GROUP BY k""")
    stream = engine.stream("s")
    stream.append([(1, 1, at(0)), (1, 2, at(2)), (1, 3, at(9))])
    engine.advance()
    assert table(engine, "g") == [(1, 1, "00"), (1, 2, "02"), (1, 2, "04")]
    stream.append([(1, 7, at(3))])
    engine.advance()
    assert table(engine, "g") == [(1, 1, "00"), (1, 2, "02"), (1, 7, "04"), (1, 7, "06")]
    kinds = [c._change_type for c in engine.changes("g").where("_bucket = 2").collect()]
    assert kinds == ["update_preimage", "update_postimage", "insert"]
