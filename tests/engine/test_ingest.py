"""Spark's streaming sources into a stream: each row exactly once, whatever Spark repeats."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.model.errors import AnabranchError

ONCE = {"availableNow": True}


@pytest.fixture
def s(engine: ab.Engine) -> ab.Stream:
    return engine.create_stream("s", "user INT, ts TIMESTAMP", event_time="ts")


def drop_file(folder: Path, *users: int, ts: str = "2026-01-01T00:00:00Z") -> None:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"user": user, "ts": ts}) for user in users]
    (folder / f"{users[0]}.json").write_text("\n".join(lines))


def source(engine: ab.Engine, folder: Path, schema: str = "user INT, ts TIMESTAMP") -> Any:
    return engine.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))


def take(engine: ab.Engine, s: ab.Stream, folder: Path, **options: Any) -> Any:
    query = s.ingest(source(engine, folder), trigger=ONCE, **options)
    query.awaitTermination()
    return query


def users(s: ab.Stream) -> list[int]:
    return sorted(row.user for row in s.read().collect())


def test_a_batch_that_spark_repeats_changes_nothing(engine: ab.Engine, s: ab.Stream, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    drop_file(folder, 1, 2)
    drop_file(folder, 3)
    first = take(engine, s, folder, source="web")
    assert users(s) == [1, 2, 3]
    assert {h.run_id.entry_point for h in s.runs()} == {f"ingest s {first.id}"}
    assert [(h.run_id.sequence, h.source) for h in s.runs()] == [(1, "web"), (2, "web")]
    commits = engine.warehouse / "ingest" / "1" / "s" / "commits"
    for sidecar in ("1", ".1.crc"):
        (commits / sidecar).unlink(missing_ok=True)  # as if Spark had died before it wrote this down
    drop_file(folder, 4)
    take(engine, s, folder, source="web")
    assert users(s) == [1, 2, 3, 4]
    assert [h.run_id.sequence for h in s.runs()] == [1, 2, 3]
    shutil.rmtree(commits.parent)  # a new checkpoint is a new beginning: nothing is quietly left out
    take(engine, s, folder, source="web")
    assert users(s) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_mistakes_are_told_before_anything_starts(engine: ab.Engine, s: ab.Stream, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    drop_file(folder, 1)
    attempts: list[tuple[Any, dict[str, Any], str]] = [
        (source(engine, folder, "user STRING, ts TIMESTAMP"), {}, "WRONG_TYPE"),
        (source(engine, folder, "user INT, ts TIMESTAMP, more INT"), {}, "UNKNOWN_COLUMN"),
        (source(engine, folder, "user INT"), {}, "UNKNOWN_COLUMN"),
        (engine.spark.read.schema("user INT, ts TIMESTAMP").json(str(folder)), {}, "BAD_ARGUMENT"),
        ([{"user": 1}], {}, "BAD_ARGUMENT"),
        (source(engine, folder), {"on_bad_rows": "ignore"}, "BAD_ARGUMENT"),
        (source(engine, folder), {"name": "not a name"}, "BAD_NAME"),
    ]
    for frame, options, error_id in attempts:
        with pytest.raises(AnabranchError) as caught:
            s.ingest(frame, **options)
        assert caught.value.id == error_id
    assert not (engine.warehouse / "ingest").exists()


def test_bad_rows_end_the_ingest_or_are_set_aside(engine: ab.Engine, s: ab.Stream, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    drop_file(folder, 1, ts="9026-01-01T00:00:00Z")
    query = s.ingest(source(engine, folder), trigger=ONCE)
    with pytest.raises(Exception, match="BAD_EVENT_TIME"):
        query.awaitTermination()
    assert s.runs() == []
    take(engine, s, folder, on_bad_rows="quarantine")
    assert (users(s), s.state().quarantined) == ([], 1)


def test_it_goes_on_until_the_engine_closes(warm_spark: Any, tmp_path: Path) -> None:
    with ab.connect(tmp_path / "w") as engine:
        stream = engine.create_stream("s", "user INT, ts TIMESTAMP", event_time="ts")
        folder = tmp_path / "in"
        drop_file(folder, 1)
        query = stream.ingest(source(engine, folder), checkpoint=tmp_path / "checkpoint")
        query.processAllAvailable()
        assert users(stream) == [1]
        with pytest.raises(AnabranchError) as caught:
            stream.ingest(source(engine, folder), checkpoint=tmp_path / "checkpoint")
        assert caught.value.need == "a checkpoint that no other ingest is using"
        assert query.isActive
    assert not query.isActive
