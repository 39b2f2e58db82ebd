"""Files by reference, read by Spark."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.api.stream import Stream
from tests.conftest import START_US

COLUMNS = "user INT, campaign STRING, ts TIMESTAMP"


@pytest.fixture
def stream(engine: ab.Engine) -> Stream:
    return engine.create_stream("impsns", COLUMNS, event_time="ts")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    place = tmp_path / "logs"
    place.mkdir()
    return place


def parquet(path: Path, *users: int, ts: Any = None, **options: Any) -> Path:
    times = ts if ts is not None else pa.array([START_US + u * 1_000_000 for u in users], pa.timestamp("us", "UTC"))
    table = pa.table(
        {"_bucket": [9] * len(users), "ts": times, "user": pa.array(users, pa.int32()), "campaign": ["a"] * len(users)}
    )
    pq.write_table(table, path, **options)
    return path


def jsonl(path: Path, *users: int) -> Path:
    lines = [
        json.dumps({"ts": f"2026-01-01T00:00:{u:02}Z", "user": u, "campaign": "j", "_stability": "stable"})
        for u in users
    ]
    path.write_text("\n".join(lines))
    return path


def csv(path: Path, *users: int) -> Path:
    path.write_text("user,_ordinal,ts,campaign\n" + "".join(f'{u},1,2026-01-01T00:00:{u:02}Z,"c, d"\n' for u in users))
    return path


def read(stream: Stream, **options: Any) -> list[int]:
    return sorted(r.user for r in stream.read(**options).select("user").collect())


def test_three_formats(engine: ab.Engine, stream: Stream, files: Path) -> None:
    parquet(files / "a.parquet", 1, 2)
    parquet(files / "b.parquet", 3)
    assert stream.load(str(files / "*.parquet"), source="web").rows == 3
    assert stream.load(jsonl(files / "c.jsonl", 4, 5)).rows == 2
    assert stream.load(csv(files / "d.csv", 6)).rows == 1
    assert list((engine.warehouse / "data").rglob("*")) == [], "nothing is copied"
    assert read(stream) == [1, 2, 3, 4, 5, 6]
    first, second, third = stream.runs()
    assert (first.event_min, first.event_max) == (START_US + 1_000_000, START_US + 3_000_000)
    assert (second.event_min, third.event_max) == (START_US + 4_000_000, START_US + 6_000_000)
    assert (first.source, first.size) == ("web", sum(p.stat().st_size for p in files.glob("*.parquet")))
    found = stream.read(log_columns=True).orderBy("_position", "_ordinal").collect()
    assert [(r._position, r.user) for r in found] == [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (3, 6)]
    assert {r.campaign for r in found} == {"a", "j", "c, d"}
    assert read(stream, from_time="2026-01-01T00:00:04Z", to_time="2026-01-01T00:00:06Z") == [4, 5]


def test_ordinals_follow_the_files(stream: Stream, files: Path) -> None:
    for name in ("a", "b", "c"):
        jsonl(files / f"{name}.jsonl", *range(10 * (ord(name) - 97), 10 * (ord(name) - 97) + 10))
    parquet(files / "z.parquet", *range(5), row_group_size=2)
    stream.load(files / "*.jsonl")
    stream.load(files / "z.parquet")
    found = stream.read(log_columns=True).orderBy("_position", "_ordinal").collect()
    assert [r.user for r in found] == [*range(30), *range(5)]


def test_odd_file_names(stream: Stream, files: Path) -> None:
    for number, name in enumerate(["a b.parquet", "ü+%41.parquet", "{x}[1]*?,.parquet", "it's.parquet"]):
        stream.load([parquet(files / name, number)] if "*" not in name else _glob_safe(parquet(files / name, number)))
    assert read(stream) == [0, 1, 2, 3]
    found = stream.read(log_columns=True).orderBy("_position").collect()
    assert [(r._position, r._ordinal) for r in found] == [(1, 0), (2, 0), (3, 0), (4, 0)]
    parquet(files / "a:b.parquet", 1)
    with pytest.raises(ab.AnabranchError) as caught:
        stream.load(files / "a:b.parquet")
    assert caught.value.id == "FILE_UNREADABLE"


def _glob_safe(path: Path) -> str:
    import glob

    return glob.escape(str(path))


def test_old_spark_timestamps_and_compressed_text(engine: ab.Engine, stream: Stream, files: Path) -> None:
    frame = engine.spark.sql("SELECT 1 user, 'a' campaign, timestamp'2026-01-01 00:00:07' ts")
    parquet(files / "old.parquet", 7, use_deprecated_int96_timestamps=True)
    frame.write.parquet(str(files / "spark"))
    with gzip.open(files / "z.jsonl.gz", "wt") as out:
        out.write('{"user": 9, "campaign": "z", "ts": "2026-01-01T00:00:09Z"}\n')
    assert stream.load(files / "old.parquet").event_min == START_US + 7_000_000
    assert stream.load(files / "spark").event_min == START_US + 7_000_000
    assert stream.load(files / "z.jsonl.gz").event_min == START_US + 9_000_000
    assert read(stream) == [1, 7, 9]


def test_local_times_are_read_in_their_zone(stream: Stream, files: Path) -> None:
    local = pa.array([START_US + 3_600_000_000], pa.timestamp("us"))
    path = parquet(files / "local.parquet", 1, ts=local)
    with pytest.raises(ab.AnabranchError) as caught:
        stream.load(path)
    assert caught.value.id == "TIME_ZONE"
    assert stream.load(path, time_zone="Europe/Paris").event_min == START_US
    (files / "local.csv").write_text("user,ts,campaign\n2,2026-01-01 01:00:00,a\n")
    assert stream.load(files / "local.csv", time_zone="Europe/Paris").event_min == START_US
    assert read(stream, from_time="2026-01-01T00:00:00Z", to_time="2026-01-01T00:00:01Z") == [1, 2]
    with pytest.raises(ab.AnabranchError) as caught:
        stream.load(path, time_zone="Moon/Base")
    assert caught.value.id == "TIME_ZONE"


def test_bad_rows_in_files(stream: Stream, files: Path) -> None:
    times = pa.array([START_US, None, -(10**17)], pa.timestamp("us", "UTC"))
    path = parquet(files / "a.parquet", 1, 2, 3, ts=times)
    with pytest.raises(ab.AnabranchError) as caught:
        stream.load(path)
    assert caught.value.id == "BAD_EVENT_TIME"
    assert "2 of 3 rows" in caught.value.got
    assert stream.runs() == []
    header = stream.load(path, on_bad_rows="quarantine")
    assert (header.rows, header.quarantined) == (1, 2)
    assert (header.event_min, header.event_max) == (START_US, START_US)
    assert read(stream) == [1]
    aside = stream.quarantined().select("user", "_reason").collect()
    assert {r.user: r._reason for r in aside} == {2: "no event time", 3: "absurd event time"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bad.jsonl", '{"user": 1, "campaign": "a", "ts": "2026-01-01T00:00:00Z"}\n{"user": 2, "camp'),
        ("bad.jsonl", '{"user": "one", "campaign": "a", "ts": "2026-01-01T00:00:00Z"}'),
        ("bad.jsonl", '{"user": 1, "campaign": "a", "ts": "noon"}'),
        ("bad.csv", "user,ts,campaign\none,2026-01-01T00:00:00Z,a\n"),
        ("bad.csv", "user,ts,campaign\n1,2026-01-01T00:00:00Z\n"),
        ("bad.parquet", "PAR1 this is not Parquet PAR1"),
    ],
)
def test_files_that_cannot_be_read(stream: Stream, files: Path, name: str, content: str) -> None:
    (files / name).write_text(content)
    with pytest.raises(ab.AnabranchError) as caught:
        stream.load(files / name)
    assert caught.value.id == "FILE_UNREADABLE"
    assert stream.runs() == []


def test_all_or_none(stream: Stream, files: Path) -> None:
    parquet(files / "a.parquet", 1)
    (files / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(ab.AnabranchError):
        stream.load(files)
    assert stream.runs() == []
    with pytest.raises(ab.AnabranchError, match="files of one format"):
        stream.load([parquet(files / "a.parquet", 1), jsonl(files / "c.jsonl", 1)])
    with pytest.raises(ab.AnabranchError) as caught:
        stream.load(files / "a.parquet", options={"sep": ";"})
    assert caught.value.id == "BAD_ARGUMENT"


def test_options_of_text(stream: Stream, files: Path) -> None:
    (files / "a.csv").write_text("user;ts;campaign\n1;01.01.2026 00:00;-\n")
    stream.load(files / "a.csv", options={"sep": ";", "timestampFormat": "dd.MM.yyyy HH:mm", "nullValue": "-"})
    assert [(r.user, r.campaign) for r in stream.read().collect()] == [(1, None)]
    assert stream.runs()[0].event_min == START_US


def test_a_changed_file_is_an_error_on_each_read(stream: Stream, files: Path) -> None:
    path = parquet(files / "a.parquet", 1)
    stream.load(path)
    stream.append([{"user": 9, "campaign": "a", "ts": "2026-01-02T00:00:00Z"}])
    parquet(path, 2)
    with pytest.raises(ab.AnabranchError) as caught:
        stream.read()
    assert caught.value.id == "FILE_CHANGED"
    assert read(stream, starting_position=2) == [9], "who does not need the file is not disturbed"


def test_the_same_file_twice_is_two_runs(stream: Stream, files: Path) -> None:
    path = parquet(files / "a.parquet", 1, 2)
    stream.load(path)
    stream.load(path)
    found = stream.read(log_columns=True).collect()
    assert sorted((r._position, r.user) for r in found) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert stream.load(path, run_id=("web", 1)).duplicate is False
    assert stream.load(path, run_id=("web", 1)).duplicate is True


def test_many_files_are_looked_at_by_tasks(stream: Stream, files: Path) -> None:
    for number in range(70):
        parquet(files / f"{number:03}.parquet", number)
    assert stream.load(files).rows == 70
    assert read(stream) == list(range(70))
    (files / "040.parquet").write_bytes(b"PAR1")
    with pytest.raises(ab.AnabranchError) as caught:
        stream.load(files)
    assert caught.value.id == "FILE_UNREADABLE"
    assert "040.parquet" in caught.value.place


def test_nulls_in_keys(engine: ab.Engine, files: Path) -> None:
    stream = engine.create_stream("orders", COLUMNS, event_time="ts", key="user")
    (files / "a.jsonl").write_text('{"user": null, "campaign": "a", "ts": "2026-01-01T00:00:00Z"}')
    with pytest.raises(ab.AnabranchError) as caught:
        stream.load(files / "a.jsonl")
    assert caught.value.id == "NULL_VALUE"


def test_only_local_columns_are_moved(engine: ab.Engine, files: Path) -> None:
    stream = engine.create_stream("two", "ts TIMESTAMP, local TIMESTAMP", event_time="ts")
    instant = pa.array([START_US], pa.timestamp("us", "UTC"))
    local = pa.array([START_US + 3_600_000_000], pa.timestamp("us"))
    pq.write_table(pa.table({"ts": instant, "local": local}), files / "a.parquet")
    assert stream.load(files / "a.parquet", time_zone="Europe/Paris").event_min == START_US
    (found,) = stream.read().collect()
    assert found.ts == found.local


def test_ordinals_never_change(stream: Stream, files: Path) -> None:
    rows = [f"{n},2026-01-01T00:00:{n % 60:02}Z,c" for n in range(2000)]
    (files / "a.csv").write_text("user,ts,campaign\n" + "\n".join(rows))
    (files / "b.csv").write_text("user,ts,campaign\n" + "\n".join(rows[:5]))
    with stream.unit_of_work() as work:
        work.append([{"user": -1, "campaign": "x", "ts": "2026-01-01T00:00:00Z"}])
        work.load(files / "a.csv")
        work.load(files / "b.csv")
        work.append([{"user": -2, "campaign": "x", "ts": "2026-01-01T00:00:00Z"}])
    whole = {(r.user, r._ordinal) for r in stream.read(log_columns=True).collect()}
    assert sorted(o for _, o in whole) == list(range(2007))
    assert {(-1, 0), (0, 1), (1999, 2000), (0, 2001), (-2, 2006)} <= whole
    part = stream.read(from_time="2026-01-01T00:00:30Z", log_columns=True).collect()
    assert {(r.user, r._ordinal) for r in part} <= whole


def test_misnamed_columns_in_json(stream: Stream, files: Path) -> None:
    (files / "a.jsonl").write_text('{"user": 1, "campain": "a", "ts": "2026-01-01T00:00:00Z"}\n')
    with pytest.raises(ab.AnabranchError) as caught:
        stream.load(files / "a.jsonl")
    assert caught.value.id == "UNKNOWN_COLUMN"
    (files / "b.jsonl").write_text("[1, 2]\n")
    with pytest.raises(ab.AnabranchError, match="a JSON object on each line"):
        stream.load(files / "b.jsonl")
