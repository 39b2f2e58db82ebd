"""The session: adopted ones are left as they are, and what cannot work says so."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.engine.abreast import abreast
from anabranch.engine.driver import SessionOptions, _start_settings, local_memory, machine_memory
from anabranch.engine.java import require_java
from anabranch.engine.reports import NumberedTasks
from anabranch.engine.session import SQL_SETTINGS


def test_an_adopted_session_is_neither_changed_nor_stopped(warm_spark: Any, tmp_path: Path) -> None:
    theirs = warm_spark.newSession()
    theirs.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    theirs.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    before = {row.key: row.value for row in theirs.sql("SET").collect()}
    with ab.connect(tmp_path / "w", spark=theirs) as engine:
        assert engine.spark is not theirs
        for name, value in SQL_SETTINGS.items():
            assert engine.spark.conf.get(name) == value
    assert {row.key: row.value for row in theirs.sql("SET").collect()} == before
    assert theirs.range(3).count() == 3


def test_a_lenient_session_does_not_make_us_lenient(warm_spark: Any, tmp_path: Path) -> None:
    theirs = warm_spark.newSession()
    theirs.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    with ab.connect(tmp_path / "w", spark=theirs) as engine:
        stream = engine.create_stream("s", "ts TIMESTAMP", event_time="ts")
        stream.append([{"ts": "2026-01-01T00:00:00Z"}])
        frame = stream.read()
        next((tmp_path / "w" / "data").rglob("*.parquet")).unlink()
        with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist|PATH_NOT_FOUND"):
            frame.collect()


def test_another_master_in_the_same_process(warm_spark: Any, tmp_path: Path) -> None:
    for master in ("local[1]", "sc://127.0.0.1:1"):
        with ab.connect(tmp_path / "w", master=master) as engine:
            with pytest.raises(ab.AnabranchError) as caught:
                _ = engine.spark
            assert caught.value.id == "SESSION_CONFLICT"
    assert warm_spark.range(1).count() == 1


def test_arguments_that_contradict_each_other(warm_spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ab.AnabranchError) as caught:
        ab.connect(tmp_path / "w", spark=warm_spark, master="local[1]")
    assert caught.value.id == "BAD_ARGUMENT"
    with ab.connect(tmp_path / "w", spark="not a session") as engine, pytest.raises(ab.AnabranchError) as caught:  # type: ignore[arg-type]
        _ = engine.spark
    assert caught.value.id == "BAD_ARGUMENT"


def test_two_engines_share_a_session_and_the_last_one_keeps_it(warm_spark: Any, tmp_path: Path) -> None:
    with ab.connect(tmp_path / "one") as one:
        with ab.connect(tmp_path / "two") as two:
            assert two.spark.range(2).count() == 2
        assert one.spark.range(2).count() == 2


def test_java_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ab.AnabranchError) as caught:
        require_java()
    assert caught.value.id == "JAVA_MISSING"
    fake = tmp_path / "bin" / "java"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    fake.chmod(0o755)
    with pytest.raises(ab.AnabranchError, match="version 11"):
        require_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ab.AnabranchError, match="none on the PATH"):
        require_java()


def test_memory_fits_the_machine() -> None:
    assert local_memory(1 << 30) == "1024m"
    assert local_memory(10 << 30) == "4096m"
    assert local_memory(1 << 40) == "16384m"
    assert machine_memory() > 1 << 29


def test_settings_of_a_running_session_cannot_be_changed(warm_spark: Any, tmp_path: Path) -> None:
    for options in ({"memory": "3g"}, {"ui": True}, {"config": {"spark.x": "1"}}):
        with ab.connect(tmp_path / "w", **options) as engine, pytest.raises(ab.AnabranchError) as caught:  # type: ignore[arg-type]
            _ = engine.spark
        assert caught.value.id == "SESSION_CONFLICT"
    with ab.connect(tmp_path / "w", master="sc://127.0.0.1:1", memory="1g") as engine:
        with pytest.raises(ab.AnabranchError) as caught:
            _ = engine.spark
        assert caught.value.id == "NOT_SUPPORTED"


def test_the_jvm_gives_back_what_it_does_not_use_unless_told_otherwise() -> None:
    ours = _start_settings(SessionOptions())
    assert ours["spark.buffer.pageSize"] == "2m"
    assert "-XX:G1PeriodicGCInterval=2000" in ours["spark.driver.extraJavaOptions"]
    config = {"spark.buffer.pageSize": "64m", "spark.driver.extraJavaOptions": "-XX:G1PeriodicGCInterval=0"}
    theirs = _start_settings(SessionOptions(config=config))
    assert theirs["spark.buffer.pageSize"] == "64m"
    assert theirs["spark.driver.extraJavaOptions"].endswith(" -XX:G1PeriodicGCInterval=0")


def test_numbered_tasks_are_told_beside_their_plan_or_within_it(
    engine: ab.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = NumberedTasks(engine.spark)

    def told(what: str) -> list[dict[str, object]]:
        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, object]]:
            yield from ({what: number} for batch in batches for number in batch.column(0).to_pylist())

        return tasks.run(2, task)

    assert told("a") == [{"a": 0}, {"a": 1}]
    kept = dict(tasks._plans)
    assert told("b") == [{"b": 0}, {"b": 1}]
    assert tasks._plans == kept  # the same plan, another task
    monkeypatch.setattr("anabranch.engine.reports._MOST_TOLD", 0)
    assert told("c") == [{"c": 0}, {"c": 1}]
    assert engine.spark.sparkContext.getLocalProperty("anabranch.task") is None


def test_works_abreast_belong_to_the_caller_and_fail_apart(engine: ab.Engine) -> None:
    spark, context = engine.spark, engine.spark.sparkContext
    context.setJobGroup("abreast", "a few jobs")

    def dividing(by: int) -> list[float]:
        return [row.x for row in spark.sql(f"SELECT 6 / id AS x FROM RANGE({by}, {by + 1})").collect()]

    works = {by: partial(dividing, by) for by in range(4)}
    failed, *others = abreast(spark, works).items()
    assert others == [(1, [6.0]), (2, [3.0]), (3, [2.0])]
    assert failed[0] == 0
    assert "DIVIDE_BY_ZERO" in str(failed[1])
    assert len(context.statusTracker().getJobIdsForGroup("abreast")) == 4
    (alone,) = abreast(spark, {"alone": partial(int, "one")}).values()
    assert isinstance(alone, ValueError)
