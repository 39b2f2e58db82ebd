"""Sinks: the table and the files have what the stream has, once, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

import anabranch as ab
from anabranch.connectors import postgres as connectors
from anabranch.connectors.postgres import PostgresTarget
from anabranch.model.errors import AnabranchError
from tests.engine.test_queries import COUNTS, at, rows


@pytest.fixture
def s(engine: ab.Engine) -> ab.Stream:
    engine.sql("CREATE STREAM s (k STRING, v STRING, ts TIMESTAMP) EVENT TIME ts")
    engine.sql(COUNTS)
    return engine.stream("s")


def ask(uri: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(uri, autocommit=True) as connection:
        cursor = connection.execute(query)
        return cursor.fetchall() if cursor.description else []


def table(engine: ab.Engine, name: str = "counts") -> list[tuple[Any, ...]]:
    found = engine.table(name).toArrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def in_postgres(uri: str, name: str = "counts") -> list[tuple[Any, ...]]:
    return sorted(ask(uri, f"SELECT * FROM {name}"), key=repr)


def test_a_table_follows_its_query(engine: ab.Engine, s: ab.Stream, postgres: Callable[[], str]) -> None:
    uri = postgres()
    engine.sql(f"CREATE SINK out FROM counts TO '{uri}'")
    engine.sql(f"CREATE SINK out FROM counts TO '{uri}'")  # the same again changes nothing
    assert engine.sinks()[0].key == ("k", "t"), "the group and the end of its window"
    s.append(rows(0.5, 1.5) + rows(0.6, k=None))
    engine.advance()
    assert in_postgres(uri) == table(engine)
    assert len(table(engine)) == 2
    s.append(rows(0.1, 2.5))
    s.append([{**rows(0.5)[0], "_change_type": "delete"}, {**rows(0.6, k=None)[0], "_change_type": "delete"}])
    s.append(rows(0.7, k="b"))
    engine.advance()
    assert in_postgres(uri) == table(engine)
    assert {row[0] for row in table(engine)} == {"a", "b"}, "the group without a name is gone"
    notes = ask(uri, "SELECT name, target, position, bucket, ordinal FROM anabranch_sinks")
    last = engine.changes("counts").collect()[-1]
    assert notes[0][0] == "out"
    assert notes[0][1].endswith(".counts")
    assert notes[0][2:] == (engine.stream("counts").state().last_position, last._bucket, last._ordinal)
    assert engine.advance().buckets == 0
    shown = engine.sql("SHOW SINKS")
    assert shown is not None
    assert [(r.name, r.stream, r.waiting, r.state) for r in shown.collect()] == [("out", "counts", 0, "")]
    with pytest.raises(AnabranchError) as caught:
        engine.drop_stream("counts")
    assert (caught.value.id, caught.value.got) == ("STREAM_IN_USE", "sink 'out'")
    engine.sql("DROP SINK out; DROP SINK IF EXISTS out; DROP STREAM counts")
    assert ask(uri, "SELECT * FROM anabranch_sinks") == []


def test_streams_with_a_key_and_insertions_alone(engine: ab.Engine, s: ab.Stream, postgres: Callable[[], str]) -> None:
    uri = postgres()
    engine.sql("CREATE STREAM orders (id INT, v INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    orders = engine.stream("orders")
    orders.append([(1, 10, at(0)), (2, 20, at(0)), (3, 30, at(0))])
    engine.create_sink("live", "orders", uri)
    engine.create_sink("all", "s", uri, table="every_row", insert_only=True)
    orders.replace([(2, 21, at(1))])
    orders.delete([3])
    s.append(rows(0.5, 0.5))
    s.append([{**rows(0.5)[0], "_change_type": "delete"}])
    engine.advance()
    assert in_postgres(uri, "orders") == [(1, 10, at(0)), (2, 21, at(1))]
    assert in_postgres(uri, "every_row") == [("a", "1", at(0.5))] * 2
    with pytest.raises(AnabranchError) as caught:
        engine.create_sink("other", "orders", uri, table="other", key="v")
    assert caught.value.need == "the stream's own key, id"


def test_values_arrive_as_they_are(engine: ab.Engine, postgres: Callable[[], str]) -> None:
    uri = postgres()
    kinds = ("id INT, yes BOOLEAN, small SMALLINT, big BIGINT, real FLOAT, num DOUBLE, money DECIMAL(12,3), "
             "bytes BINARY, day DATE, wall TIMESTAMP_NTZ, xs ARRAY<INT>, m MAP<STRING, DOUBLE>, "
             "st STRUCT<a: INT, b: STRING>, times ARRAY<TIMESTAMP>, `odd \"name` STRING, ts TIMESTAMP")  # fmt: skip
    stream = engine.create_stream("every", kinds, event_time="ts", key="id")
    full = {
        "id": 1, "yes": True, "small": -5, "big": 1 << 40, "real": 0.5, "num": float("nan"),
        "money": Decimal("12345.678"), "bytes": b"\x00\xff", "day": at(0).date(), "wall": at(1).replace(tzinfo=None),
        "xs": [1, None], "m": {"a": 1.5}, "st": {"a": None, "b": "x"},
        "times": [at(0) + timedelta(microseconds=7)], 'odd "name': "tab\there\nline \\ end",
        "ts": at(0),
    }  # fmt: skip
    stream.append([full, {**dict.fromkeys(full), "id": 2, "num": float("-inf"), "ts": at(0)}])
    engine.create_sink("out", "every", uri)
    engine.advance()
    (first, second) = in_postgres(uri, "every")
    assert str(first[5]) == "nan"
    assert first[:5] + first[6:] == (
        1, True, -5, 1 << 40, 0.5, Decimal("12345.678"), b"\x00\xff", at(0).date(), at(1).replace(tzinfo=None),
        [1, None], {"a": 1.5}, {"a": None, "b": "x"}, ["2026-01-01T00:00:00.000007Z"], "tab\there\nline \\ end", at(0),
    )  # fmt: skip
    assert second == (2, None, None, None, None, float("-inf"), *[None] * 9, at(0))
    stream.append([{**full, 'odd "name': "no\x00way"}])
    assert engine.advance().halted == ("out",)
    assert engine.halted()["out"]["error_id"] == "SINK_REFUSED"


def test_a_sink_that_fails_halts_alone_and_goes_on(
    engine: ab.Engine, s: ab.Stream, postgres: Callable[[], str]
) -> None:
    uri = postgres()
    user = "goes_away"
    ask(uri, f"DO $$ BEGIN CREATE ROLE {user} LOGIN SUPERUSER; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    engine.create_sink("out", "counts", uri.replace("//postgres", f"//{user}", 1))
    ask(uri, f"ALTER ROLE {user} NOLOGIN")
    s.append(rows(0.5, 1.5))
    done = engine.advance()
    assert (done.buckets, done.halted) == (1, ("out",))
    assert table(engine) != [], "the query went on"
    assert engine.halted()["out"]["error_id"] == "SINK_UNREACHABLE"
    shown = engine.sql("SHOW SINKS")
    assert shown is not None
    assert [(r.waiting, r.state, "log in" in r.error) for r in shown.collect()] == [(1, "retries", True)]
    ask(uri, f"ALTER ROLE {user} LOGIN")
    engine.advance()
    assert (engine.halted(), in_postgres(uri)) == ({}, table(engine))
    ask(uri, "ALTER TABLE counts RENAME COLUMN c TO x")
    s.append(rows(2.5))
    assert engine.advance().halted == ("out",)
    assert engine.halted()["out"]["error_id"] == "SINK_REFUSED"
    ask(uri, "ALTER TABLE counts RENAME COLUMN x TO c")
    engine.advance()
    assert engine.halted() != {}, "nobody has said that it is mended"
    engine.sql("RESUME SINK out")
    engine.advance()
    assert (engine.halted(), in_postgres(uri)) == ({}, table(engine))


def test_an_older_engine_writes_nothing(
    engine: ab.Engine, s: ab.Stream, postgres: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = postgres()
    engine.create_sink("out", "counts", uri)
    s.append(rows(0.5, 1.5))
    apply = PostgresTarget._apply

    def overtaken(target: Any, connection: Any, *args: Any) -> None:
        ask(uri, "UPDATE anabranch_sinks SET epoch = epoch + 1")  # as a newer engine does before all else
        apply(target, connection, *args)

    monkeypatch.setattr(PostgresTarget, "_apply", overtaken)
    assert engine.advance().halted == ("out",)
    assert engine.halted()["out"]["error_id"] == "FENCED"
    assert in_postgres(uri) == []
    staged = """SELECT relname FROM pg_class WHERE relname LIKE 'anabranch_staging_%'
        AND relnamespace = current_schema()::regnamespace"""
    assert ask(uri, staged) == []
    monkeypatch.undo()
    ask(uri, f"CREATE TABLE anabranch_staging_{ask(uri, 'SELECT sink FROM anabranch_sinks')[0][0][:16]}_x ()")
    engine.resume("out")
    engine.advance()
    assert in_postgres(uri) == table(engine)
    assert ask(uri, staged) == [], "what a dead writer left is removed"


def test_rows_of_a_task_that_spark_tried_twice_count_once(
    engine: ab.Engine, s: ab.Stream, postgres: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = postgres()
    engine.create_sink("out", "s", uri, insert_only=True)
    s.append(rows(0.5, 0.6, 1.5))
    collect = connectors.collect_reports

    def twice(*args: Any) -> Any:
        collect(*args)  # an attempt that copied its rows, and whose report was lost
        return collect(*args)

    monkeypatch.setattr(connectors, "collect_reports", twice)
    engine.advance()
    assert (engine.halted(), len(in_postgres(uri, "s"))) == ({}, 3)


def test_columns_that_do_not_tell_rows_apart_are_found_out(
    engine: ab.Engine, s: ab.Stream, postgres: Callable[[], str]
) -> None:
    uri = postgres()
    engine.create_sink("out", "counts", uri, key="k")
    s.append(rows(0.5, 1.5))
    engine.advance()
    assert engine.halted() == {}
    s.append(rows(2.5))
    engine.advance()
    error = engine.halted()["out"]
    assert (error["error_id"], error["got"]) == ("SINK_REFUSED", "several rows with k = 'a'")
    assert len(in_postgres(uri)) == 1, "nothing was written"


def test_files_of_changes(engine: ab.Engine, s: ab.Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, options in (("all", ""), ("plain", "FORMAT json INSERT ONLY"), ("texts", "FORMAT csv")):
        engine.sql(f"CREATE SINK {name} FROM counts TO '{tmp_path / name}' {options}")
    engine.create_sink("base", "s", (tmp_path / "base").as_uri())
    s.append(rows(0.5, 1.5))
    engine.advance()
    s.append(rows(0.1))
    s.append(rows(0.2, k="b"))
    engine.advance()
    spark = engine.spark
    found = spark.read.parquet(str(tmp_path / "all")).orderBy("_bucket", "_ordinal").collect()
    wanted = engine.changes("counts").collect()
    assert [(r._bucket, r._ordinal, r._change_type, r.k, r.c, r.t) for r in found] == [
        (r._bucket, r._ordinal, r._change_type, r.k, r.c, r.t) for r in wanted
    ]
    assert sorted((r.k, r.c) for r in spark.read.json(str(tmp_path / "plain")).collect()) == [("a", 1), ("b", 1)]
    assert spark.read.option("header", True).csv(str(tmp_path / "texts")).count() == len(wanted)
    assert sorted(p.name for p in (tmp_path / "base").iterdir()) == [
        "_anabranch.json", "_position=1", "_position=2", "_position=3",
    ]  # fmt: skip
    assert sorted(p.name for p in (tmp_path / "plain" / "_bucket=2").glob("*.json"))


def test_a_bucket_of_files_that_is_there_is_not_written_again(
    engine: ab.Engine, s: ab.Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.create_sink("out", "counts", str(tmp_path / "out"))
    moved = engine._log.sinks.moved

    def dies(*_: Any) -> None:
        raise RuntimeError("killed after the rename")

    monkeypatch.setattr(engine._log.sinks, "moved", dies)
    (tmp_path / "out" / ".anabranch-left").mkdir()
    s.append(rows(0.5, 1.5))
    engine.advance()
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.parquet")}
    assert len(files) == 1
    monkeypatch.setattr(engine._log.sinks, "moved", moved)
    engine.resume("out")
    engine.advance()
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.parquet")} == files
    assert engine.halted() == {}
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["_anabranch.json", "_bucket=1"]


def test_mistakes(engine: ab.Engine, s: ab.Stream, postgres: Callable[[], str], tmp_path: Path) -> None:
    uri = postgres()
    ask(uri, "CREATE TABLE other (x INT); CREATE TABLE counts (k text, c bigint, t timestamptz); "
             "INSERT INTO counts VALUES ('a', 1, now())")  # fmt: skip
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    attempts: list[tuple[str, dict[str, Any], str]] = [
        ("counts", {"to": "kafka://x/y"}, "NOT_SUPPORTED"),
        ("counts", {"to": ""}, "NOT_SUPPORTED"),
        ("counts", {"to": uri, "tentative": True}, "NOT_SUPPORTED"),
        ("counts", {"to": uri, "table": "other"}, "SINK_REFUSED"),
        ("counts", {"to": uri}, "SINK_REFUSED"),
        ("counts", {"to": uri, "table": "new", "key": ["nothing"]}, "UNKNOWN_COLUMN"),
        ("counts", {"to": uri, "table": "new", "format": "json"}, "BAD_ARGUMENT"),
        ("s", {"to": uri}, "BAD_ARGUMENT"),
        ("s", {"to": uri, "key": "k", "insert_only": True}, "BAD_ARGUMENT"),
        ("nothing", {"to": uri}, "UNKNOWN_STREAM"),
        ("counts", {"to": str(tmp_path / "full")}, "SINK_REFUSED"),
        ("counts", {"to": str(tmp_path / "new"), "key": "k"}, "BAD_ARGUMENT"),
        ("counts", {"to": str(tmp_path / "new"), "format": "xml"}, "BAD_ARGUMENT"),
        ("counts", {"to": "postgresql://127.0.0.1:1/none"}, "SINK_UNREACHABLE"),
    ]
    for stream, options, error_id in attempts:
        with pytest.raises(AnabranchError) as caught:
            engine.create_sink("out", stream, **options)
        assert caught.value.id == error_id, options
    assert engine.sinks() == []
    with pytest.raises(AnabranchError) as caught:
        engine.create_sink("counts", "counts", str(tmp_path / "new"))
    assert caught.value.id == "STREAM_EXISTS", "streams and sinks are resumed by their names"
    with pytest.raises(AnabranchError) as caught:
        engine.drop_sink("out")
    assert caught.value.id == "UNKNOWN_SINK"
