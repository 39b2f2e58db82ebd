"""Spark's `format("anabranch")`: read, readStream, write and writeStream, for programs that only speak Spark."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.engine.test_queries import COUNTS, at, rows


@pytest.fixture
def s(engine: ab.Engine) -> ab.Stream:
    engine.sql("CREATE STREAM s (k STRING, v STRING, ts TIMESTAMP) EVENT TIME ts")
    engine.sql(COUNTS)
    return engine.stream("s")


def reader(engine: ab.Engine, **options: Any) -> Any:
    return engine.spark.read.format("anabranch").option("warehouse", str(engine.warehouse)).options(**options)


def plain(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[c] for c in columns or frame.columns) for row in frame.collect()), key=repr)


def test_tables_and_changes_are_read_as_the_engine_reads_them(engine: ab.Engine, s: ab.Stream) -> None:
    s.append(rows(0.5, 1.5))
    engine.advance()
    s.append(rows(0.1))
    s.append(rows(0.2, k=None))
    engine.advance()
    assert plain(reader(engine).load("counts")) == plain(engine.table("counts"))
    assert plain(reader(engine).load("s")) == plain(engine.table("s"))
    theirs, ours = reader(engine, changes="true").load("counts"), engine.changes("counts")
    assert theirs.schema.simpleString() == ours.schema.simpleString()
    assert plain(theirs) == plain(ours)
    assert plain(reader(engine, changes="true").load("s")) == plain(engine.changes("s"))
    some = reader(engine, changes="true", starting_position=2, ending_position=2).load("counts")
    assert plain(some) == plain(engine.changes("counts", starting_position=2, ending_position=2))


def test_rows_that_are_replaced_deleted_and_compacted(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM orders (id INT, m MAP<STRING, INT>, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    orders = engine.stream("orders")
    for n in range(9):
        orders.append([(n, {"a": n}, at(n))])
    orders.replace([(2, {"b": 1}, at(1))])
    orders.delete([3])
    wanted = plain(engine.table("orders"), "id", "m")
    assert plain(reader(engine).load("orders"), "id", "m") == wanted
    changes = plain(engine.changes("orders"))
    orders.compact()
    assert plain(reader(engine).load("orders"), "id", "m") == wanted
    assert plain(reader(engine, changes="true").load("orders")) == changes


def test_a_streaming_program_follows_from_position_to_position(engine: ab.Engine, s: ab.Stream, tmp_path: Path) -> None:
    def follow() -> None:
        source = engine.spark.readStream.format("anabranch").option("warehouse", str(engine.warehouse))
        frame = source.option("changes", "true").load("counts")
        out = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
        out.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()

    s.append(rows(0.5, 1.5))
    engine.advance()
    follow()
    s.append(rows(0.1, 2.5))
    engine.advance()
    follow()
    assert plain(engine.spark.read.parquet(str(tmp_path / "out"))) == plain(engine.changes("counts"))


def test_revisions_are_never_taken_for_rows(engine: ab.Engine, s: ab.Stream, tmp_path: Path) -> None:
    s.append(rows(0.5, 1.5))
    engine.advance()
    s.append(rows(0.1))
    engine.advance()

    def follow(**options: str) -> Any:
        source = engine.spark.readStream.format("anabranch").option("warehouse", str(engine.warehouse))
        frame = source.options(**options).load("counts")
        out = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / f"c{len(options)}"))
        return out.trigger(availableNow=True).start(str(tmp_path / "out"))

    with pytest.raises(Exception, match="insert_only"):
        follow().awaitTermination()
    follow(insert_only="true").awaitTermination()
    assert [(r.k, r.c) for r in engine.spark.read.parquet(str(tmp_path / "out")).collect()] == [("a", 1)]


def frame_of(engine: ab.Engine, many: int) -> Any:
    return engine.spark.range(0, many, 1, 2).selectExpr(
        "timestamp'2026-01-01' + make_interval(0,0,0,0,0,0,id) ts", "'w' k", "string(id) v"
    )


def test_a_write_is_one_run_written_by_tasks(engine: ab.Engine, s: ab.Stream) -> None:
    def write(**options: str) -> None:
        writer = frame_of(engine, 100).write.format("anabranch").option("warehouse", str(engine.warehouse))
        writer.options(**options).mode("append").save("s")

    write(source="etl")
    write(run_id="job:7")
    write(run_id="job:7")  # again: it changes nothing
    assert [(h.rows, h.source, h.run_id.sequence) for h in s.runs()] == [(100, "etl", 1), (100, None, 7)]
    assert s.read().count() == 200
    assert len(engine.collect_garbage(grace="0 seconds").orphans) == 2, "what the repetition wrote is nobody's"
    assert s.read().count() == 200


def test_mistakes_in_writes_change_nothing(engine: ab.Engine, s: ab.Stream) -> None:
    def write(frame: Any, mode: str = "append", stream: str = "s") -> None:
        frame.write.format("anabranch").option("warehouse", str(engine.warehouse)).mode(mode).save(stream)

    good = frame_of(engine, 3)
    with pytest.raises(Exception, match="UNKNOWN_COLUMN"):
        write(good.selectExpr("*", "1 AS more"))
    with pytest.raises(Exception, match="WRONG_TYPE"):
        write(good.selectExpr("ts", "1 AS k", "v"))
    with pytest.raises(Exception, match="BAD_EVENT_TIME"):
        write(good.selectExpr("timestamp'9000-01-01' AS ts", "k", "v"))
    with pytest.raises(Exception, match="NOT_SUPPORTED"):
        write(good, "overwrite")
    with pytest.raises(Exception, match="NOT_SUPPORTED"):
        write(good.selectExpr("k", "1L c", "ts t"), stream="counts")
    with pytest.raises(Exception, match="UNKNOWN_STREAM"):
        write(good, stream="nothing")
    with pytest.raises(Exception, match="the option 'warehouse'"):
        engine.spark.read.format("anabranch").load("s")
    assert s.runs() == []


def test_a_batch_that_spark_writes_again_changes_nothing(engine: ab.Engine, s: ab.Stream, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "c"
    folder.mkdir()

    def run() -> None:
        frame = engine.spark.readStream.schema("k STRING, v STRING, ts TIMESTAMP")
        rows_in = frame.option("maxFilesPerTrigger", 1).json(str(folder))
        out = rows_in.writeStream.format("anabranch").option("warehouse", str(engine.warehouse))
        out = out.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        out.start("s").awaitTermination()

    for n in (1, 2):
        (folder / f"{n}.json").write_text(f'{{"k": "a", "v": "{n}", "ts": "2026-01-01T00:00:0{n}Z"}}\n')
    run()
    assert sorted(r.v for r in s.read().collect()) == ["1", "2"]
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    (folder / "3.json").write_text('{"k": "a", "v": "3", "ts": "2026-01-01T00:00:03Z"}\n')
    run()
    assert sorted(r.v for r in s.read().collect()) == ["1", "2", "3"]
    assert [h.run_id.sequence for h in s.runs()] == [1, 2, 3]
    assert s.runs()[0].run_id.entry_point.startswith("spark ")
    assert s.runs()[0].event_min == int(at(0).astimezone(UTC).timestamp() * 1_000_000) + 1_000_000
