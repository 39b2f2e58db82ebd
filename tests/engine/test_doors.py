"""Doors: whichever way rows come in, they may have the same columns and change types, and mean the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.api.stream import Stream
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunKind

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLUMNS = {"k": pa.int32(), "v": pa.string(), "ts": pa.timestamp("us", "UTC")}

Rows = list[dict[str, Any]]
Door = Callable[[ab.Engine, Stream, Rows, Path], object]


def row(k: int, v: str | None, minute: float | None, change: str | None = None, **more: Any) -> dict[str, Any]:
    ts = None if minute is None else NOON + timedelta(minutes=minute)
    return {"k": k, "v": v, "ts": ts, "_change_type": change, **more}


def arrow(rows: Rows) -> pa.Table:
    names = list(dict.fromkeys(name for one in rows for name in one))
    kinds = {**COLUMNS, "_change_type": pa.string()}
    return pa.table({n: pa.array([one.get(n) for one in rows], kinds.get(n)) for n in names})


def lines(rows: Rows) -> str:
    return "".join(json.dumps(one, default=lambda ts: ts.isoformat()) + "\n" for one in rows)


def by_parquet(engine: ab.Engine, stream: Stream, rows: Rows, place: Path) -> object:
    pq.write_table(arrow(rows), place / "a.parquet")
    return stream.load(place / "a.parquet")


def by_json(engine: ab.Engine, stream: Stream, rows: Rows, place: Path) -> object:
    (place / "a.jsonl").write_text(lines(rows))
    return stream.load(place / "a.jsonl")


def by_csv(engine: ab.Engine, stream: Stream, rows: Rows, place: Path) -> object:
    names = list(rows[0])
    cells = [["" if one[n] is None else str(one[n]).replace(" ", "T") for n in names] for one in rows]
    (place / "a.csv").write_text("\n".join(",".join(line) for line in [names, *cells]) + "\n")
    return stream.load(place / "a.csv")


def by_frame(engine: ab.Engine, stream: Stream, rows: Rows, place: Path) -> object:
    return stream.append(engine.spark.createDataFrame(arrow(rows)))


def by_unit(engine: ab.Engine, stream: Stream, rows: Rows, place: Path) -> object:
    with stream.unit_of_work() as work:
        for one in rows:
            work.append([one])
        return work.commit()


def by_format(engine: ab.Engine, stream: Stream, rows: Rows, place: Path) -> object:
    frame = engine.spark.createDataFrame(arrow(rows)).coalesce(1)
    frame.write.format("anabranch").option("warehouse", str(engine.warehouse)).mode("append").save(stream.name)
    return None


def by_ingest(engine: ab.Engine, stream: Stream, rows: Rows, place: Path) -> object:
    inbox = place / "inbox"
    inbox.mkdir()
    (inbox / "a.json").write_text(lines(rows))
    kinds = {"k": "INT", "ts": "TIMESTAMP", "_ordinal": "BIGINT"}
    schema = ", ".join(f"{name} {kinds.get(name, 'STRING')}" for name in rows[0])
    arriving = engine.spark.readStream.schema(schema).json(str(inbox))
    stream.ingest(arriving, trigger={"availableNow": True}).awaitTermination()
    return None


DOORS: dict[str, Door] = {
    "rows": lambda engine, stream, rows, place: stream.append(rows),
    "arrow": lambda engine, stream, rows, place: stream.append(arrow(rows)),
    "pandas": lambda engine, stream, rows, place: stream.append(arrow(rows).to_pandas()),
    "frame": by_frame, "unit": by_unit, "parquet": by_parquet, "json": by_json, "csv": by_csv, "ingest": by_ingest,
    "format": by_format,
}  # fmt: skip


def create(engine: ab.Engine, name: str, key: str = "") -> Stream:
    engine.sql(f"CREATE STREAM {name} (k INT, v STRING, ts TIMESTAMP) EVENT TIME ts {key}")
    return engine.stream(name)


def table(engine: ab.Engine, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(r)[:2] for r in engine.table(name).collect()), key=repr)


FEED = {"_stability": "stable", "_ordinal": 7, "_source": "elsewhere"}
STORY = [
    row(1, "a", 1, None, **FEED), row(2, "b", 2, "insert", **FEED), row(3, "c", 3, "insert", **FEED),
    row(2, "b", 2, "update_preimage", **FEED), row(2, "B", 4, "update_postimage", **FEED),
    row(3, "c", 3, "delete", **FEED),
]  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_the_same_rows_mean_the_same(engine: ab.Engine, tmp_path: Path, door: str) -> None:
    streams = [create(engine, "plain"), create(engine, "keyed", "KEY (k)")]
    for stream in streams:
        (tmp_path / stream.name).mkdir()
        engine.sql(
            f"CREATE STREAM of_{stream.name} AS SELECT v, count(*) AS c, max(k) AS k FROM {stream.name} GROUP BY v"
        )
        DOORS[door](engine, stream, STORY, tmp_path / stream.name)
    engine.advance()
    for stream in streams:
        assert table(engine, stream.name) == [(1, "a"), (2, "B")]
        assert table(engine, f"of_{stream.name}") == [("B", 1), ("a", 1)]
        run = stream.runs()[0]
        assert (run.kind, run.rows) == (RunKind.REVISIONS, 6)
        told = engine.changes(stream.name).collect()
        assert [(c.k, c._change_type) for c in told] == [(one["k"], one["_change_type"] or "insert") for one in STORY]
        assert [c._ordinal for c in told] == list(range(6)), "what the rows say of their places elsewhere is left out"
    logged = streams[0].read(log_columns=True)
    assert {r._source for r in logged.select("_source").collect()} == {None}
    if door in ("rows", "parquet"):
        outside = engine.spark.read.format("anabranch").option("warehouse", str(engine.warehouse))
        for stream in streams:
            assert sorted((r.k, r.v) for r in outside.load(stream.name).collect()) == [(1, "a"), (2, "B")]
        read = outside.option("changes", "true").load("plain").collect()
        assert sorted(c._ordinal for c in read) == list(range(6))


def refused(give: Callable[[], object]) -> str:
    """The error that a door gives, in words; of Spark's, which quotes ours."""
    with pytest.raises(Exception, match=r"UNKNOWN_COLUMN|WRONG_TYPE") as caught:
        give()
    return str(caught.value)


@pytest.mark.parametrize("odd", ["column", "missing", "change"])
def test_the_same_is_refused_in_the_same_words(engine: ab.Engine, tmp_path: Path, odd: str) -> None:
    rows = {
        "column": [row(1, "a", 1), row(2, "a", 1, campain="x")],
        "missing": [{"k": 1, "ts": NOON}],
        "change": [row(1, "a", 1), row(2, "a", 1, "upsert")],
    }[odd]
    stream = create(engine, "s")
    with pytest.raises(AnabranchError) as caught:
        stream.append(rows)
    error = caught.value
    assert error.id == {"column": "UNKNOWN_COLUMN", "missing": "UNKNOWN_COLUMN", "change": "WRONG_TYPE"}[odd]
    assert error.got == {"column": "'campain'", "missing": "none named v", "change": "'upsert'"}[odd]
    if odd == "column":
        rows[0]["campain"] = None  # a file, a table and a frame have a column in every row
    for number, (door, give) in enumerate(DOORS.items()):
        place = tmp_path / f"{number}"
        place.mkdir()
        text = refused(partial(give, engine, stream, rows, place))
        assert all(part in text for part in (error.id, error.need, error.got, error.next_step)), (door, text)
    assert stream.runs() == []


def test_json_is_looked_at_to_its_end(engine: ab.Engine, tmp_path: Path) -> None:
    stream = create(engine, "s", "KEY (k)")
    long = [{"k": n, "v": "x" * 100, "ts": (NOON + timedelta(seconds=n)).isoformat()} for n in range(1000)]
    late = {"k": 3, "v": None, "ts": None, "_change_type": "delete"}
    (tmp_path / "a.jsonl").write_text(lines([*long, late]))
    assert stream.load(tmp_path / "a.jsonl").kind is RunKind.REVISIONS
    assert engine.table("s").count() == 999
    (tmp_path / "b.jsonl").write_text(lines([*long, {**long[0], "w": 1}]))
    with pytest.raises(AnabranchError) as caught:
        stream.load(tmp_path / "b.jsonl")
    assert (caught.value.id, caught.value.got) == ("UNKNOWN_COLUMN", "'w'")
    assert "b.jsonl" in caught.value.place


@pytest.mark.parametrize("door", ["parquet", "json", "csv"])
def test_deletions_by_key_need_no_event_time(engine: ab.Engine, tmp_path: Path, door: str) -> None:
    engine.sql("CREATE STREAM s (k INT, v STRING NOT NULL, ts TIMESTAMP) EVENT TIME ts KEY (k)")
    stream = engine.stream("s")
    engine.sql("CREATE STREAM hourly AS SELECT count(*) AS c, max(k) AS m, cq_close(*) AS t FROM s <SLICES '1 hour'>")
    stream.append([row(k, "a", k) for k in (1, 2, 3, 70, 130)])
    engine.advance()
    assert table(engine, "hourly") == [(1, 70), (3, 3)]
    DOORS[door](
        engine, stream, [row(3, None, None, "delete"), row(4, "d", 50), row(70, None, None, "delete")], tmp_path
    )
    run = stream.runs()[-1]
    size = next(path.stat().st_size for path in tmp_path.glob("a.*"))
    assert (run.rows, run.event_min, run.event_max, run.size) == (
        3,
        *[int(row(4, "", 50)["ts"].timestamp() * 1e6)] * 2,
        size,
    )
    engine.advance()
    assert table(engine, "hourly") == [(3, 4)]
    stretch = stream.read(from_time="2026-01-01T12:00:00Z", to_time="2026-01-01T12:10:00Z", log_columns=True)
    gone = stretch.where("_change_type = 'delete'").collect()
    assert sorted((r.k, r._ordinal) for r in gone) == [(3, 0), (70, 2)], "they may concern any stretch"
    if door == "parquet":
        outside = engine.spark.read.format("anabranch").option("warehouse", str(engine.warehouse))
        assert sorted(r.k for r in outside.load("s").collect()) == [1, 2, 4, 130]
    with pytest.raises(AnabranchError) as caught:
        DOORS[door](engine, stream, [row(5, None, 1)], tmp_path)
    assert caught.value.id == "NULL_VALUE"


def test_what_is_set_aside_of_a_file_with_changes(engine: ab.Engine, tmp_path: Path) -> None:
    stream = create(engine, "s", "KEY (k)")
    stream.append([row(1, "a", 1), row(2, "b", 1)])
    rows = [row(1, None, None, "delete"), row(2, "x", None, "update_postimage"), row(3, "c", 5, "insert")]
    pq.write_table(arrow(rows), tmp_path / "a.parquet")
    with pytest.raises(AnabranchError) as caught:
        stream.load(tmp_path / "a.parquet")
    assert (caught.value.id, "1 of 3 rows" in caught.value.got) == ("BAD_EVENT_TIME", True)
    header = stream.load(tmp_path / "a.parquet", on_bad_rows="quarantine")
    assert (header.rows, header.quarantined) == (2, 1)
    assert table(engine, "s") == [(2, "b"), (3, "c")]
    assert [(r.k, r._reason) for r in stream.quarantined().collect()] == [(2, "no event time")]
    outside = engine.spark.read.format("anabranch").option("warehouse", str(engine.warehouse))
    assert sorted(r.k for r in outside.load("s").collect()) == [2, 3]


def test_files_of_insertions_stay_as_fast_as_they_are(engine: ab.Engine, tmp_path: Path) -> None:
    stream = create(engine, "s")
    header = by_parquet(engine, stream, [row(1, "a", 1, "insert"), row(2, "b", 2)], tmp_path)
    assert isinstance(header, ab.RunHeader)
    assert header.kind is RunKind.ROWS
    assert stream.state().first_revision is None
    assert table(engine, "s") == [(1, "a"), (2, "b")]


def test_open_units_of_work_show_what_files_change(engine: ab.Engine, tmp_path: Path) -> None:
    stream = create(engine, "s", "KEY (k)")
    stream.append([row(1, "a", 1)])
    pq.write_table(arrow([row(1, None, None, "delete"), row(2, "b", 2)]), tmp_path / "a.parquet")
    with stream.unit_of_work(speculative=True) as work:
        work.load(tmp_path / "a.parquet")
        seen = stream.read(tentative=True, log_columns=True).where("_stability = 'tentative'").collect()
        assert sorted((r.k, r._change_type) for r in seen) == [(1, "delete"), (2, "insert")]
        work.abort()
    assert table(engine, "s") == [(1, "a")]
