"""Rows in by every way, and out again through Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.api.stream import Stream
from anabranch.engine import read
from tests.conftest import START_US

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "user INT, campaign STRING, ts TIMESTAMP"


@pytest.fixture
def stream(engine: ab.Engine) -> Stream:
    return engine.create_stream("impsns", COLUMNS, event_time="ts", slack="10 seconds")


def row(user: int, seconds: float = 0, campaign: str | None = "a") -> dict[str, Any]:
    return {"user": user, "campaign": campaign, "ts": START + timedelta(seconds=seconds)}


def users(frame: Any) -> list[int]:
    return sorted(r.user for r in frame.select("user").collect())


def spark_rows(engine: ab.Engine, count: int, partitions: int = 3, event_time: str = "ts") -> Any:
    ts = f"timestamp_micros({START_US} + id * 1000000) AS {event_time}"
    return engine.spark.range(0, count, 1, partitions).selectExpr(
        "cast(id AS int) user", "concat('c', id) campaign", ts
    )


def test_every_way_in_comes_out(engine: ab.Engine, stream: Stream) -> None:
    stream.append([row(1), row(2)])
    stream.append(pa.Table.from_pylist([row(3)], schema=stream.schema.arrow))
    stream.append(pd.DataFrame([row(4)]))
    header = stream.append(spark_rows(engine, 10), source="spark")
    assert (header.rows, header.source) == (10, "spark")
    assert header.event_max == START_US + 9_000_000
    frame = stream.read()
    assert frame.dtypes == [("user", "int"), ("campaign", "string"), ("ts", "timestamp")]
    assert users(frame) == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9]


def test_where_rows_stand_in_the_log(engine: ab.Engine, stream: Stream) -> None:
    stream.append([row(1, 0), row(2, 7 * 3600), row(3, 1)], source="web-1")
    stream.append(spark_rows(engine, 6, partitions=2))
    found = stream.read(log_columns=True).orderBy("_position", "_ordinal").collect()
    assert [(r._position, r.user) for r in found] == [(1, 1), (1, 2), (1, 3), *((2, n) for n in range(6))]
    assert {r._source for r in found} == {"web-1", None}
    assert {r._change_type for r in found} == {"insert"}
    assert {r._stability for r in found} == {"stable"}
    stamps = [r._stime for r in found]
    assert stamps == sorted(stamps)
    assert len({(r._position, r._ordinal) for r in found}) == len(found)


def test_few_files_and_many_are_told_apart_alike(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    stream.append([row(1)], source="web-1")
    stream.append([row(2)], source="it's \\ ${odd}")
    stream.append([row(3)])
    few = stream.read(log_columns=True).collect()
    monkeypatch.setattr(read, "_FEW", 1)
    many = stream.read(log_columns=True).collect()
    assert sorted(many, key=str) == sorted(few, key=str)
    assert {r._source for r in many} == {"web-1", "it's \\ ${odd}", None}


def test_positions_and_stretches_of_time(stream: Stream) -> None:
    for number in range(6):
        stream.append([row(number, number * 3600)])
    assert users(stream.read(starting_position=2, ending_position=3)) == [1, 2]
    assert users(stream.read(from_time=START + timedelta(hours=4))) == [4, 5]
    assert users(stream.read(from_time="2026-01-01T01:00:00Z", to_time="2026-01-01T03:00:00Z")) == [1, 2]
    assert users(stream.read(from_time="2027-01-01T00:00:00Z")) == []
    for bad in (0, -1, "1", True):
        with pytest.raises(ab.AnabranchError):
            stream.read(starting_position=bad)  # type: ignore[arg-type]
        with pytest.raises(ab.AnabranchError):
            stream.runs(newest=bad)  # type: ignore[arg-type]
    with pytest.raises(ab.AnabranchError, match="not before the start"):
        stream.read(starting_position=3, ending_position=2)
    with pytest.raises(ab.AnabranchError, match="not before the start"):
        stream.read(from_time=START, to_time=START - timedelta(hours=1))


def test_a_read_opens_only_what_can_hold_it(stream: Stream) -> None:
    """Break every other segment: a read that opened one of them would fail."""
    for number in range(5):
        stream.append([row(number, number * 3600)])
    files = {s.last_position: s.segment.path for s in stream._log.plan("impsns", _all()).segments}
    for position, path in files.items():
        if position != 3:
            (stream._log.root / path).write_bytes(b"broken")
    assert users(stream.read(from_time=START + timedelta(hours=2), to_time=START + timedelta(hours=3))) == [2]
    assert users(stream.read(starting_position=3, ending_position=3)) == [2]


def _all() -> Any:
    from anabranch.log.reading import ReadRange

    return ReadRange()


def test_speculative_rows(stream: Stream) -> None:
    stream.append([row(1)])
    with stream.unit_of_work(speculative=True) as work:
        work.append([row(2)])
        assert users(stream.read()) == [1]
        tentative = stream.read(tentative=True, log_columns=True).collect()
        assert sorted((r.user, r._stability, r._position) for r in tentative) == [
            (1, "stable", 1),
            (2, "tentative", None),
        ]
    assert users(stream.read()) == [1, 2]


def test_a_unit_mixes_ways(engine: ab.Engine, stream: Stream, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps({"user": 50, "campaign": "j", "ts": "2026-01-01T00:00:00Z"}))
    with stream.unit_of_work() as work:
        work.append([row(100)])
        work.append(spark_rows(engine, 3))
        work.load(tmp_path / "x.jsonl")
        work.append([row(200)])
    (header,) = stream.runs()
    assert header.rows == 6
    assert users(stream.read()) == [0, 1, 2, 50, 100, 200]


def test_a_dataframe_that_does_not_fit(engine: ab.Engine, stream: Stream) -> None:
    good = spark_rows(engine, 3)
    cases = [
        (good.withColumnRenamed("user", "usr"), "UNKNOWN_COLUMN"),
        (good.drop("campaign"), "UNKNOWN_COLUMN"),
        (good.selectExpr("cast(user AS bigint) user", "campaign", "ts"), "WRONG_TYPE"),
        (good.selectExpr("user", "campaign", "cast(ts AS timestamp_ntz) ts"), "TIME_ZONE"),
        (good.selectExpr("user", "campaign", "if(user = 1, NULL, ts) ts"), "BAD_EVENT_TIME"),
        (good.selectExpr("user", "campaign", "if(user = 1, timestamp'9000-01-01', ts) ts"), "BAD_EVENT_TIME"),
        (good.selectExpr("user", "campaign", "ts", "'x' _change_type"), "WRONG_TYPE"),
    ]
    for frame, error in cases:
        with pytest.raises(ab.AnabranchError) as caught:
            stream.append(frame)
        assert caught.value.id == error
    assert "1 of 3 rows without" in _got(stream, cases[4][0])
    assert "user=1, campaign='c1', ts=null" in _got(stream, cases[4][0])
    assert stream.runs() == []
    assert list((engine.warehouse / "data").rglob("*.parquet")) == []


def _got(stream: Stream, frame: Any) -> str:
    with pytest.raises(ab.AnabranchError) as caught:
        stream.append(frame)
    return caught.value.got


def test_narrow_numbers_widen(engine: ab.Engine) -> None:
    stream = engine.create_stream("wide", "n BIGINT, x DOUBLE, ts TIMESTAMP", event_time="ts")
    frame = engine.spark.sql("SELECT cast(7 AS smallint) n, cast(0.5 AS float) x, timestamp'2026-01-01' ts")
    stream.append(frame)
    assert [tuple(r) for r in stream.read().select("n", "x").collect()] == [(7, 0.5)]


def test_rows_set_aside_can_be_queried(engine: ab.Engine, stream: Stream) -> None:
    stream.append([row(1), {**row(2), "ts": None}], on_bad_rows="quarantine")
    bad = spark_rows(engine, 4).selectExpr("user + 10 user", "campaign", "if(user < 2, timestamp'1850-01-01', ts) ts")
    header = stream.append(bad, on_bad_rows="quarantine", source="s")
    assert (header.rows, header.quarantined) == (2, 2)
    found = stream.quarantined().collect()
    assert {(r.user, r._position, r._source) for r in found} == {(2, 1, None), (10, 2, "s"), (11, 2, "s")}
    aside = {r.user: r._reason for r in found}
    assert aside == {2: "no event time", 10: "absurd event time", 11: "absurd event time"}
    assert users(stream.read()) == [1, 12, 13]


def test_a_failing_job_commits_nothing(engine: ab.Engine, stream: Stream) -> None:
    broken = spark_rows(engine, 10).selectExpr("if(user = 7, raise_error('boom'), user) user", "campaign", "ts")
    with pytest.raises(Exception, match="boom"):
        stream.append(broken)
    assert stream.runs() == []
    engine.collect_garbage(grace="0 seconds")
    assert list((engine.warehouse / "data").rglob("*.parquet")) == []


def test_keyed_streams_take_revisions(engine: ab.Engine) -> None:
    stream = engine.create_stream("orders", COLUMNS, event_time="ts", key="user")
    stream.append([row(1), row(2)])
    stream.replace([row(1, 5)])
    stream.delete([2])
    stream.append(spark_rows(engine, 2).selectExpr("*", "'delete' _change_type"))
    changes = stream.read(log_columns=True).orderBy("_position", "_ordinal").collect()
    assert [(r._position, r.user, r._change_type) for r in changes] == [
        (1, 1, "insert"),
        (1, 2, "insert"),
        (2, 1, "update_postimage"),
        (3, 2, "delete"),
        (4, 0, "delete"),
        (4, 1, "delete"),
    ]
    plain = stream.read(from_time=START + timedelta(seconds=5)).collect()
    assert [r.user for r in plain] == [1], "deletions only for those who can tell"
    later = stream.read(from_time=START + timedelta(seconds=5), log_columns=True).collect()
    assert sorted((r._position, r.user) for r in later) == [(2, 1), (3, 2)], "a deletion by key concerns any time"


def test_nulls_in_keys_are_refused_in_dataframes(engine: ab.Engine) -> None:
    stream = engine.create_stream("orders", COLUMNS, event_time="ts", key="user")
    with pytest.raises(ab.AnabranchError) as caught:
        stream.append(spark_rows(engine, 4).selectExpr("nullif(user, 2) user", "campaign", "ts"))
    assert caught.value.id == "NULL_VALUE"
    assert "1 nulls in 4 rows" in caught.value.got


def test_local_time_zones_do_not_move_instants(engine: ab.Engine, stream: Stream) -> None:
    theirs = engine.spark.newSession()
    theirs.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    stream.append(theirs.sql("SELECT 1 user, 'a' campaign, timestamp'2026-01-01 09:00:00' ts"))
    assert stream.runs()[0].event_min == START_US
    assert theirs.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"


def test_every_type_goes_through_spark(engine: ab.Engine) -> None:
    columns = (
        "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(12, 2), i STRING, j BINARY, "
        "k DATE, l TIMESTAMP, m TIMESTAMP_NTZ, n ARRAY<INT>, o MAP<STRING, DOUBLE>, p STRUCT<x: INT, y: ARRAY<STRING>>"
    )
    stream = engine.create_stream("wide", columns, event_time="l")
    frame = engine.spark.sql(
        "SELECT true a, 1Y b, 2S c, 3 d, 4L e, 1.5F f, 2.5D g, cast(1.25 AS decimal(12, 2)) h, 'ü' i, X'00FF' j, "
        "date'2026-01-01' k, timestamp'2026-01-01 00:00:00.123456' l, timestamp_ntz'2026-01-01 01:02:03' m, "
        "array(1, NULL) n, map('k', 1D) o, named_struct('x', 1, 'y', array('z')) p"
    )
    stream.append(frame)
    expected = frame.collect()
    assert stream.read().collect() == expected
    stream.append([r.asDict(recursive=True) | {"o": list(r.o.items())} | {"l": START} for r in expected])
    again = stream.read(starting_position=2).collect()
    assert [r[:11] for r in again] == [r[:11] for r in expected]
    assert [(r.n, r.o, r.p) for r in again] == [(r.n, r.o, r.p) for r in expected]


def test_views_read(engine: ab.Engine, stream: Stream) -> None:
    for number in range(4):
        stream.append([row(number, number * 3600)])
    engine.create_view("last_two", "impsns", start=-2)
    engine.create_view("hour_one", "impsns", "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z")
    assert users(engine.view("last_two")) == [2, 3]
    assert users(engine.view("hour_one")) == [1]
    stream.append([row(9, 3700)])
    assert users(engine.view("last_two")) == [3, 9]
    assert users(engine.view("hour_one")) == [1, 9], "fixed in time, still open to late rows"
    assert [v.name for v in stream.views()] == ["hour_one", "last_two"]
    engine.drop_view("last_two")
    with pytest.raises(ab.AnabranchError):
        engine.view("last_two")


def test_the_facade_closes(tmp_path: Path, warm_spark: Any) -> None:
    with ab.connect(tmp_path / "w") as engine:
        engine.create_stream("s", COLUMNS, event_time="ts")
        assert [s.name for s in engine.streams()] == ["s"]
        engine.drop_stream("s")
        assert engine.streams() == []
    with pytest.raises(ab.AnabranchError) as caught:
        engine.streams()
    assert caught.value.id == "ENGINE_CLOSED"
    engine.close()
    assert not list((tmp_path / "w").glob("data/**/*.parquet"))


def test_segments_on_disk_are_plain_parquet(engine: ab.Engine, stream: Stream) -> None:
    stream.append([row(1)])
    (path,) = (engine.warehouse / "data").rglob("*.parquet")
    assert pq.read_table(path).column_names == ["user", "campaign", "ts", "_ordinal"]


def test_revisions_as_dataframes(engine: ab.Engine) -> None:
    stream = engine.create_stream("orders", COLUMNS, event_time="ts", key="user")
    stream.append(spark_rows(engine, 3))
    stream.replace(spark_rows(engine, 1))
    stream.delete(engine.spark.sql("SELECT 2 user"))
    changes = stream.read(starting_position=2, log_columns=True).orderBy("_position").collect()
    assert [(r.user, r.campaign, r._change_type) for r in changes] == [
        (0, "c0", "update_postimage"),
        (2, None, "delete"),
    ]
    with pytest.raises(ab.AnabranchError) as caught:
        stream.delete(spark_rows(engine, 1))
    assert caught.value.id == "UNKNOWN_COLUMN"
    unkeyed = engine.create_stream("plain", COLUMNS, event_time="ts")
    with pytest.raises(ab.AnabranchError) as caught:
        unkeyed.replace(spark_rows(engine, 1))
    assert caught.value.id == "NOT_KEYED"


def test_a_path_with_dots_is_the_same_path(warm_spark: Any, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    with ab.connect(tmp_path / "sub" / ".." / "w") as engine:
        stream = engine.create_stream("impsns", COLUMNS, event_time="ts")
        stream.append([row(1)])
        assert [r._position for r in stream.read(log_columns=True).collect()] == [1]


def test_a_stream_ends_with_its_engine(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "w") as engine:
        stream = engine.create_stream("s", COLUMNS, event_time="ts")
    with pytest.raises(ab.AnabranchError) as caught:
        stream.append([row(1)])
    assert caught.value.id == "ENGINE_CLOSED"


def test_local_times_in_dataframes(engine: ab.Engine, stream: Stream) -> None:
    theirs = engine.spark.newSession()
    theirs.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    frame = theirs.sql("SELECT 1 user, 'a' campaign, timestamp_ntz'2026-01-01 01:00:00' ts")
    with pytest.raises(ab.AnabranchError) as caught:
        stream.append(frame)
    assert caught.value.id == "TIME_ZONE"
    assert stream.append(frame, time_zone="Europe/Paris").event_min == START_US
    with pytest.raises(ab.AnabranchError) as caught:
        stream.append(frame, time_zone="Nowhere")
    assert caught.value.id == "TIME_ZONE"


def test_texts_of_the_log_are_nobody_elses_variables(stream: ab.Stream) -> None:
    source = "so'u\\rce ${env:HOME}"
    stream.append([row(1, 0)], source=source)
    assert [found._source for found in stream.read(log_columns=True).collect()] == [source]
