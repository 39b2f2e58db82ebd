"""Runs in the catalog: identity, stamps, positions, progress. On SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadRange
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunDraft, RunHeader, RunId, RunKind, Stability
from anabranch.model.stream import StreamSpec
from tests.conftest import SECOND, START_US, FakeClock, make_spec, rows_at


def append(log: Log, stream: StreamState, *seconds: float, **options: Any) -> RunHeader:
    with log.unit_of_work(stream, single=True, **options) as work:
        work.append(rows_at(*seconds))
        return work.commit()


def test_a_header_says_everything(log: Log, clock: FakeClock) -> None:
    stream = log.create_stream(make_spec(slack="1 second", key="user"))
    header = append(log, stream, 3, 5, source="web-1")
    assert header == log.headers(stream)[0]
    assert header.run_id == RunId(log.entry_point, 1)
    assert (header.position, header.stime, header.source, header.kind) == (1, clock.now, "web-1", RunKind.ROWS)
    assert (header.rows, header.event_min, header.event_max) == (2, START_US + 3 * SECOND, START_US + 5 * SECOND)
    assert (header.key_min, header.key_max) == ("1", "1")
    assert header.progress == START_US + 4 * SECOND
    assert (header.stability, header.schema_version, header.bucket) == (Stability.STABLE, 1, None)
    (segment,) = log.plan(stream.name, ReadRange()).segments
    assert header.size == segment.segment.size > 0


def test_a_retry_is_a_no_op(log: Log) -> None:
    stream = log.create_stream(make_spec())
    first = append(log, stream, 1, run_id=("web-7", 42))
    again = append(log, stream, 1, run_id=RunId("web-7", 42))
    other = append(log, stream, 1, run_id=("web-8", 42))
    assert again.duplicate
    assert again.position == first.position
    assert other.position == 2
    assert log.stream(stream.name).rows == 2
    log.close()
    assert len(list((log.root / "data").rglob("*.parquet"))) == 2, "the retry's own segment is gone"


def test_own_sequence_goes_on_beside_foreign_ones(log: Log) -> None:
    stream = log.create_stream(make_spec())
    ids = [append(log, stream, 1, run_id=run_id).run_id for run_id in (None, ("x", 9), None, ("x", 3))]
    assert ids == [(log.entry_point, 1), ("x", 9), (log.entry_point, 2), ("x", 3)]


@pytest.mark.parametrize("run_id", ["web-7", ("web-7",), ("web-7", 0), ("", 1), (7, 1), ("web-7", "1")])
def test_bad_run_ids(log: Log, run_id: Any) -> None:
    stream = log.create_stream(make_spec())
    with pytest.raises(AnabranchError) as caught:
        append(log, stream, 1, run_id=run_id)
    assert caught.value.id == "BAD_ARGUMENT"


def test_stamps_rise_when_the_clock_does_not(open_log: Callable[..., Log], clock: FakeClock) -> None:
    log = open_log()
    stream = log.create_stream(make_spec())
    stamps = [append(log, stream, 1).stime]
    clock.pass_seconds(-3600)
    stamps += [append(log, stream, 1).stime, append(log, stream, 1).stime]
    log.close()
    reopened = open_log()
    stamps.append(append(reopened, reopened.stream(stream.name), 1).stime)
    assert stamps == [START_US, START_US + 1, START_US + 2, START_US + 3], "also after a restart"


def test_stamps_are_one_order_across_streams(log: Log) -> None:
    one, two = log.create_stream(make_spec("one")), log.create_stream(make_spec("two"))
    stamps = [append(log, stream, 1).stime for stream in (one, two, one, two)]
    assert stamps == sorted(set(stamps))


def test_a_boundary_is_a_run_of_no_rows(log: Log, clock: FakeClock) -> None:
    stream = log.create_stream(make_spec())
    run = append(log, stream, 5)
    clock.pass_seconds(1)
    boundary = log.boundary(stream)
    later = append(log, stream, 6)
    assert (boundary.kind, boundary.rows, boundary.progress) == (RunKind.BOUNDARY, 0, run.progress)
    assert run.stime < boundary.stime < later.stime
    assert boundary.run_id.sequence == 2


def test_punctuation_raises_a_source_or_progress_itself(log: Log) -> None:
    stream = log.create_stream(make_spec(slack="2 seconds"))
    append(log, stream, 10, source="a")
    append(log, stream, 4, source="b")
    assert log.punctuate(stream, START_US + 6 * SECOND, "b").progress == START_US + 8 * SECOND
    b = log.punctuate(stream, START_US + 20 * SECOND, "b")
    assert b.progress == START_US + 8 * SECOND, "a is at 8"
    assert log.punctuate(stream, START_US + 15 * SECOND).progress == START_US + 15 * SECOND
    assert log.punctuate(stream, START_US).progress == START_US + 15 * SECOND, "never back"


def test_copied_runs_keep_their_stamp(log: Log) -> None:
    from anabranch.log.commit import commit_run

    stream = log.create_stream(make_spec())
    append(log, stream, 1)
    draft = RunDraft(RunKind.BOUNDARY, run_id=RunId("far-away", 7), stime=123, cause={"copied_from": "b"},
                     supersedes=(RunId("x", 1),))  # fmt: skip
    with log.catalog.write() as connection:
        commit_run(connection, stream.id, draft, clock=log.clock())
    header = log.headers(stream, newest=1)[0]
    assert (header.run_id, header.stime, header.position) == (("far-away", 7), 123, 2)
    assert header.cause == {"copied_from": "b"}
    assert header.supersedes == (RunId("x", 1),)


def test_a_stream_is_created_once(log: Log, spec: StreamSpec) -> None:
    assert log.create_stream(spec) == log.create_stream(spec)
    with pytest.raises(AnabranchError) as caught:
        log.create_stream(make_spec(slack="1 hour"))
    assert caught.value.id == "STREAM_EXISTS"
    assert "slack 1 hour instead of 0 seconds" in caught.value.got


def test_unknown_streams_are_named(log: Log, spec: StreamSpec) -> None:
    with pytest.raises(AnabranchError, match="there is none yet"):
        log.stream("nope")
    log.create_stream(spec)
    with pytest.raises(AnabranchError, match="need one of impsns; got 'nope'"):
        log.stream("nope")


def test_a_dropped_stream_is_gone_for_its_writers_too(log: Log, spec: StreamSpec) -> None:
    stream = log.create_stream(spec)
    append(log, stream, 1)
    work = log.unit_of_work(stream)
    work.append(rows_at(2))
    log.drop_stream(spec.name)
    with pytest.raises(AnabranchError) as caught:
        work.commit()
    assert caught.value.id in ("UNKNOWN_STREAM", "INTENT_LAPSED")
    fresh = log.create_stream(spec)
    assert (fresh.last_position, fresh.rows) == (0, 0)
    assert append(log, fresh, 1).position == 1
    log.collect_garbage(grace_us=0)
    kept = {s.segment.path for s in log.plan(spec.name, ReadRange()).segments}
    found = {str(p.relative_to(log.root)) for p in (log.root / "data").rglob("*.parquet")}
    assert found == kept


def test_many_threads_append_at_once(log: Log, spec: StreamSpec) -> None:
    stream = log.create_stream(spec)
    with ThreadPoolExecutor(4) as pool:
        headers = list(pool.map(lambda n: append(log, stream, n, source=f"s{n % 3}"), range(40)))
    assert sorted(h.position for h in headers) == list(range(1, 41))
    by_position = sorted(headers, key=lambda h: h.position)
    assert [h.stime for h in by_position] == sorted({h.stime for h in headers})
    assert [h.position for h in log.headers(stream)] == list(range(1, 41))
    assert log.stream(stream.name).rows == 40


def test_two_logs_open_the_same_new_warehouse(open_log: Callable[..., Log]) -> None:
    with ThreadPoolExecutor(4) as pool:
        opened = [f.result() for f in [pool.submit(open_log) for _ in range(4)]]
    assert len({log.id for log in opened}) == 1
