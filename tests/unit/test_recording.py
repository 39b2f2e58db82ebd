"""Recording buckets: ends, sizes, and progress from the bucket's own runs. On SQLite and on PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from anabranch.log import marks, tables
from anabranch.log.catalog import IDENTITY_FILE, Catalog
from anabranch.log.compaction import CompactionPlan, plan_compaction
from anabranch.log.log import Log, StreamState
from anabranch.log.recording import End, record_bucket
from anabranch.log.register import NewQuery
from anabranch.model.errors import AnabranchError
from anabranch.model.progress import Progress
from tests.conftest import SECOND, START_US, FakeClock, make_spec, rows_at


def append(log: Log, stream: StreamState, *seconds: float, **options: Any) -> Any:
    with log.unit_of_work(stream, single=True, **options) as work:
        work.append(rows_at(*seconds))
        return work.commit()


def record(log: Log, **options: Any) -> Any:
    lease = log.leases.acquire()
    try:
        return log.register.record_bucket(lease, **options)
    finally:
        log.leases.release(lease)


def marks_at(log: Log, stream: StreamState, bucket: int) -> dict[str, int]:
    with log.catalog.read() as connection:
        found = marks.marks_at(connection, stream.id, bucket)
    return {source: (mark - START_US) // SECOND for source, mark in found.items()}


def progress_at(log: Log, stream: StreamState, bucket: int) -> int | None:
    found = log.register.bounds_at(stream.id, bucket).progress
    return None if found is None else (found - START_US) // SECOND


def bounds(log: Log, stream: StreamState) -> list[tuple[int, int, int]]:
    return [(b.bucket, b.start, b.end) for b in log.register.bounds_after(stream.id, 0, 1 << 62)]


def test_a_bucket_ends_before_a_stream_time(log: Log, clock: FakeClock) -> None:
    """What comes after the end waits, and moves no progress, however late the bucket is recorded."""
    one, two = log.create_stream(make_spec("one", slack="2 seconds")), log.create_stream(make_spec("two"))
    append(log, one, 10, source="a")
    append(log, one, 30, source="b")
    end = clock.now + 5 * SECOND
    clock.pass_seconds(5)
    append(log, one, 100, source="a")
    append(log, two, 7)
    bucket = record(log, end=End(stime=end))
    assert (bucket.number, bucket.stime) == (1, end - 1)
    assert bounds(log, one) == [(1, 0, 2)]
    assert bounds(log, two) == []
    assert progress_at(log, one, 1) == 8
    assert log.register.anything_waiting()
    assert record(log).number == 2
    assert (bounds(log, one), bounds(log, two)) == ([(1, 0, 2), (2, 2, 3)], [(2, 0, 1)])
    assert (progress_at(log, one, 2), progress_at(log, one, 1)) == (28, 8)
    assert marks_at(log, one, 1) == {"a": 8, "b": 28}
    assert marks_at(log, one, 2) == {"a": 98, "b": 28}
    assert not log.register.anything_waiting()


def test_a_bucket_ends_with_positions(log: Log) -> None:
    one, two = log.create_stream(make_spec("one")), log.create_stream(make_spec("two"))
    for second in (1, 2, 3):
        append(log, one, second)
        append(log, two, second)
    assert record(log, end=End(positions={one.id: 2})).number == 1
    assert (bounds(log, one), bounds(log, two), progress_at(log, one, 1)) == ([(1, 0, 2)], [], 2)
    with pytest.raises(AnabranchError) as caught:
        record(log, end=End(positions={one.id: 1}))
    assert (caught.value.id, caught.value.need) == ("BAD_ARGUMENT", "a position of 'one' from 2 to 3")
    record(log)
    assert (bounds(log, one)[-1], bounds(log, two)) == ((2, 2, 3), [(2, 0, 3)])


def test_an_end_lies_behind_the_last_bucket(log: Log, clock: FakeClock) -> None:
    stream = log.create_stream(make_spec())
    append(log, stream, 1)
    assert record(log, end=End(stime=clock.now)) is None, "nothing is stamped before it"
    end = clock.now + SECOND
    record(log, end=End(stime=end))
    later = append(log, stream, 2)
    assert later.stime == end, "no run is stamped below a recorded bucket's end"
    with pytest.raises(AnabranchError) as caught:
        record(log, end=End(stime=end - 1))
    assert caught.value.id == "BAD_ARGUMENT"


def test_progress_is_that_of_one_machine_with_all_the_data(log: Log, clock: FakeClock) -> None:
    """Slack, drift, punctuation of a source and of nobody, and a source that comes late, against the model."""
    stream = log.create_stream(make_spec(slack="3 seconds", drift="20 seconds"))
    model = Progress(3 * SECOND, 20 * SECOND)
    buckets: list[list[tuple[str, Any]]] = [
        [("a", 10), ("b", 5), ("a", 7)],
        [("b!", 9), ("c", 1)],
        [("!", 40), ("a", 12)],
        [("a", 100)],
        [("c!", 2), ("b", 90), ("", 95)],
    ]
    ends = []
    for runs in buckets:
        for source, second in runs:
            if source.endswith("!"):
                log.punctuate(stream, START_US + second * SECOND, source[:-1] or None)
            else:
                append(log, stream, second, source=source or None)
        clock.pass_seconds(10)
        ends.append(clock.now)
    for number, (runs, end) in enumerate(zip(buckets, ends, strict=True), 1):
        record(log, end=End(stime=end))
        latest: dict[str, int] = {}
        for source, second in runs:
            if not source.endswith("!"):
                latest[source] = max(latest.get(source, 0), START_US + second * SECOND)
        promises = {s[:-1] or None: START_US + t * SECOND for s, t in runs if s.endswith("!")}
        assert log.register.bounds_at(stream.id, number).progress == model.advance(latest, promises)
        with log.catalog.read() as connection:
            assert marks.marks_at(connection, stream.id, number) == model.marks


def test_recording_costs_what_the_bucket_holds(log: Log) -> None:
    """The statements look at the bucket's runs and at the ends of an index, not at all sources or all runs."""
    if not log.catalog.is_sqlite:
        pytest.skip("asked of SQLite's planner")
    stream = log.create_stream(make_spec())
    seen: list[str] = []
    for second in range(3):
        append(log, stream, second, source=f"s{second}")

    def look(connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if statement.startswith(("SELECT", "UPDATE")) and not many:
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            seen.extend(row[3] for row in rows)

    lease = log.leases.acquire()
    with log.catalog.write() as connection:
        sa.event.listen(connection, "before_cursor_execute", look)
        record_bucket(connection, now=log.clock())
    log.leases.release(lease)
    scans = {line for line in seen if line.startswith("SCAN")}
    newest = "SCAN buckets USING INDEX sqlite_autoindex_buckets_1"  # from its end, and no further
    allowed = {"SCAN CONSTANT ROW", "SCAN streams", "SCAN warehouse", "SCAN staged_runs", newest}
    assert any("SEARCH runs USING" in line for line in seen)
    assert any("sources_by_bucket_mark" in line for line in seen)
    assert scans <= allowed, "runs, sources, buckets and their bounds are found by an index"


def test_headers_fold_once_their_bucket_is_recorded(log: Log) -> None:
    stream = log.create_stream(make_spec())
    log.register.create_queries([NewQuery(make_spec("derived"), {"reads": {}})])
    for second in range(10):
        append(log, stream, second, source=f"s{second % 2}")
    compact(log, stream)
    assert len(log.headers(stream)) == 10, "a query waits for the bucket, which takes the marks of the sources"
    record(log, end=End(positions={stream.id: 6}))
    compact(log, stream)
    assert [(h.first_position, h.position) for h in log.headers(stream)] == [(1, 6), (7, 7), (8, 8), (9, 9), (10, 10)]
    record(log)
    assert progress_at(log, stream, 2) == 8
    assert marks_at(log, stream, 1) == {"s0": 4, "s1": 5}


def test_headers_fold_where_nobody_asks_for_buckets(log: Log) -> None:
    """Without a query the compactor records the bucket itself; a query that comes later finds all marks."""
    stream = log.create_stream(make_spec())
    for second in range(10):
        append(log, stream, second, source=f"s{second % 2}")
    compact(log, stream)
    assert [(h.first_position, h.position) for h in log.headers(stream)] == [(1, 10)]
    append(log, stream, 50, source="s1")
    record(log)
    assert (progress_at(log, stream, 1), progress_at(log, stream, 2)) == (8, 8)
    assert marks_at(log, stream, 2) == {"s0": 8, "s1": 50}


def compact(log: Log, stream: StreamState) -> None:
    """Fold the headers; rewriting segments is Spark's."""
    with log.catalog.read() as connection:
        row = connection.execute(sa.select(tables.streams).where(tables.streams.c.id == stream.id)).one()
        plan = plan_compaction(connection, row, least_segments=1 << 30)
    log.commit_compaction(CompactionPlan(plan.stream_id, plan.up_to), [], None)


# Buckets of a size.


@pytest.fixture
def sized(open_log: Callable[..., Log], clock: FakeClock) -> Log:
    clock.now = START_US + SECOND // 10  # a tenth into the interval that begins at the start
    return open_log(bucket_us=SECOND)


def test_a_bucket_is_an_interval_of_stream_time(sized: Log, clock: FakeClock) -> None:
    first = START_US // SECOND
    stream = sized.create_stream(make_spec())
    append(sized, stream, 1)
    append(sized, stream, 2)
    clock.pass_seconds(3)
    append(sized, stream, 3)
    assert [record(sized).number for _ in range(2)] == [first, first + 3]
    assert bounds(sized, stream) == [(first, 0, 2), (first + 3, 2, 3)]
    assert record(sized) is None
    assert sized.register.buckets_after(0)[0].stime == START_US + SECOND - 1
    assert append(sized, stream, 4).stime == START_US + 4 * SECOND, "that interval has ended"
    assert record(sized, early=False) is None, "this one has not"
    clock.pass_seconds(2)
    assert record(sized, early=False).number == first + 4


def test_forced_buckets_of_a_size_are_intervals_too(sized: Log, clock: FakeClock) -> None:
    first = START_US // SECOND
    assert record(sized, force=True).number == first - 1, "the last one that is over"
    assert record(sized, force=True, early=False) is None, "the next one is not"
    assert record(sized, force=True).number == first
    clock.pass_seconds(10)
    assert record(sized, force=True).number == first + 9


def test_ends_of_sized_buckets_are_their_own(sized: Log, clock: FakeClock) -> None:
    first = START_US // SECOND
    stream = sized.create_stream(make_spec())
    append(sized, stream, 1)
    clock.pass_seconds(2)
    append(sized, stream, 2)
    for end in (End(stime=START_US + 1), End(positions={stream.id: 1})):
        with pytest.raises(AnabranchError) as caught:
            record(sized, end=end)
        assert caught.value.need == "a multiple of the warehouse's bucket size, 1000000"
    with pytest.raises(AnabranchError) as caught:
        record(sized, end=End(stime=START_US + 3 * SECOND))
    assert caught.value.need == f"bucket {first} first, for which runs are waiting"
    assert record(sized, end=End(stime=START_US + SECOND)).number == first
    assert record(sized, end=End(stime=START_US + 2 * SECOND)) is None, "nothing is in it"
    assert record(sized, end=End(stime=START_US + 3 * SECOND)).number == first + 2


def test_the_size_of_buckets_is_fixed(open_log: Callable[..., Log]) -> None:
    assert open_log(bucket_us=SECOND).bucket_us == SECOND
    assert open_log().bucket_us == SECOND, "whoever does not say takes what is there"
    assert open_log(bucket_us=SECOND).bucket_us == SECOND
    with pytest.raises(AnabranchError) as caught:
        open_log(bucket_us=2 * SECOND)
    assert (caught.value.id, caught.value.need, caught.value.got) == ("BUCKET_SIZE", "buckets of 1 second", "2 seconds")


def test_a_size_is_not_given_later(open_log: Callable[..., Log]) -> None:
    assert open_log().bucket_us is None
    with pytest.raises(AnabranchError) as caught:
        open_log(bucket_us=SECOND)
    assert caught.value.id == "BUCKET_SIZE"


def test_an_older_warehouse_goes_on_from_its_marks(tmp_path: Path, catalog_url: str | None, clock: FakeClock) -> None:
    """Format 4 kept the marks of now alone: they are those of its last bucket, and of none before."""
    root = tmp_path / "old"
    root.mkdir()
    (root / IDENTITY_FILE).write_text(json.dumps({"id": "x", "format": 4}))
    catalog = Catalog(root, catalog_url)
    config = Config()
    config.set_main_option("script_location", "anabranch:log/migrations")
    with catalog.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0004")
        connection.exec_driver_sql(
            "INSERT INTO warehouse (id, entry_point, format, last_stime, last_bucket) VALUES ('x', 'wx', 4, 5, 7)"
        )
        spec = sa.literal(make_spec("old").to_json(), sa.JSON())
        values = {"id": 1, "name": "old", "spec": spec, "schema_version": 1, "last_position": 0, "runs": 0, "rows": 0,
                  "quarantined": 0, "size": 0, "width_classes": 0, "trimmed": 0, "role": "base", "bucket_position": 0,
                  "bucket_progress": START_US}  # fmt: skip
        old = sa.table("streams", *map(sa.column, values))
        connection.execute(old.insert().values(values))
        connection.exec_driver_sql(
            f"INSERT INTO sources (stream_id, source, mark) VALUES (1, 'a', {START_US}), (1, 'b', {START_US + SECOND})"
        )
    catalog.close()
    with Log(root, catalog_url, clock=clock) as log:
        stream = log.stream("old")
        append(log, stream, 9, source="a")
        assert record(log).number == 8
        assert progress_at(log, stream, 8) == 1, "b is at 1"
        assert (marks_at(log, stream, 7), marks_at(log, stream, 8)) == ({"a": 0, "b": 1}, {"a": 9, "b": 1})
        with log.catalog.read() as connection:
            assert connection.execute(sa.select(tables.warehouse.c.marks_since)).scalar() == 7
