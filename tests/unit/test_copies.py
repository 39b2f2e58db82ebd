"""Copied runs: staged in any order, and given positions when a bucket is recorded. On SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from anabranch.log import marks, tables
from anabranch.log.compaction import CompactionPlan
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadRange
from anabranch.log.recording import End
from anabranch.log.segments import write_segments
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunDraft, RunHeader, RunId, RunKind, Segment
from tests.conftest import SECOND, START_US, FakeClock, make_spec, rows_at

ALL_TIME = [(0, 1 << 61)]


@dataclass(frozen=True)
class Run:
    """A run as it is elsewhere."""

    stream: str
    entry_point: str
    sequence: int
    stime: int
    second: int
    source: str | None = None
    punctuates: bool = False


def copy(log: Log, run: Run, **options: Any) -> RunHeader:
    """Take a run into a log."""
    stream = log.stream(run.stream)
    run_id = RunId(run.entry_point, run.sequence)
    if run.punctuates:
        mark = START_US + run.second * SECOND
        draft = RunDraft(RunKind.PUNCTUATION, source=run.source, run_id=run_id, stime=run.stime, mark=mark)
        return log.copies.take(stream.id, [draft], **options)[0]
    work = log.unit_of_work(stream, source=run.source, run_id=run_id, stime=run.stime)
    with work:
        work.append(rows_at(run.second))
        return work.commit()


def record(log: Log, **options: Any) -> Any:
    lease = log.leases.acquire()
    try:
        return log.register.record_bucket(lease, **options)
    finally:
        log.leases.release(lease)


def files(log: Log, name: str = "impsns") -> list[str]:
    return [s.segment.path for s in log.plan(name, ReadRange()).segments]


@pytest.fixture
def stream(log: Log) -> StreamState:
    return log.create_stream(make_spec())


def test_a_staged_run_is_read_once_its_bucket_is_recorded(log: Log, stream: StreamState) -> None:
    header = copy(log, Run("impsns", "far", 7, START_US + 5, 3, "a"))
    assert (header.position, header.stime, header.run_id, header.duplicate) == (0, START_US + 5, ("far", 7), False)
    assert header.progress is None
    assert log.headers(stream) == []
    assert files(log) == []
    assert log.plan_panes(stream, ALL_TIME) == []
    assert log.plan("impsns", ReadRange(from_time=0, to_time=1 << 61)).segments == ()
    assert log.stream("impsns").rows == 0
    assert log.register.anything_waiting()
    bucket = record(log)
    assert (bucket.number, bucket.stime) == (1, START_US + 5)
    (logged,) = log.headers(stream)
    assert (logged.position, logged.run_id, logged.stime, logged.source) == (1, ("far", 7), START_US + 5, "a")
    assert replace(logged, position=0, first_position=0, progress=None) == header
    assert log.stream("impsns").rows == len(files(log)) == len(log.plan_panes(stream, ALL_TIME)) == 1
    assert not log.register.anything_waiting()
    (segment,) = log.plan("impsns", ReadRange()).segments
    assert (segment.run_id, segment.stime) == (("far", 7), START_US + 5), "versions of a key are compared by these"


def test_positions_follow_stamps_then_names_then_numbers(log: Log, stream: StreamState) -> None:
    at = START_US
    runs = [("b", 1, at), ("a", 9, at + 1), ("a", 2, at), ("B", 5, at), ("a", 10, at + 1), ("ä", 1, at), ("a", 1, at)]
    for entry_point, sequence, stime in runs:
        copy(log, Run("impsns", entry_point, sequence, stime, 1))
    record(log)
    assert [tuple(h.run_id) for h in log.headers(stream)] == [
        ("B", 5), ("a", 1), ("a", 2), ("b", 1), ("ä", 1), ("a", 9), ("a", 10),
    ]  # fmt: skip


def test_a_run_is_taken_once(open_log: Callable[..., Log]) -> None:
    log = open_log()
    stream = log.create_stream(make_spec())
    run = Run("impsns", "far", 7, START_US, 3)
    copy(log, run)
    again = copy(log, run)
    assert (again.duplicate, again.position, again.rows) == (True, 0, 1)
    log.close()
    log = open_log()
    assert log.moments.knows(stream.id, RunId("far", 7))
    assert copy(log, run).duplicate, "also after a restart"
    record(log)
    assert copy(log, run).duplicate, "also once it has a position"
    copy(log, Run("impsns", "far", 8, START_US + 1, 4))
    record(log)
    log.commit_compaction(CompactionPlan(stream.id, 2), [], None)
    assert len(log.headers(stream)) == 1
    assert copy(log, run).duplicate, "also after its header has folded"
    assert copy(log, Run("impsns", "far", 8, START_US + 1, 4)).duplicate
    assert record(log) is None
    assert log.stream("impsns").rows == 2
    log.close()
    assert len(list((log.root / "data").rglob("*.parquet"))) == 2, "the files of duplicates are gone"


def test_what_is_staged_is_spared_by_collection(log: Log, stream: StreamState, clock: FakeClock) -> None:
    copy(log, Run("impsns", "far", 7, START_US, 3))
    clock.pass_seconds(100_000)
    log.collect_garbage(grace_us=0)
    log.collect_garbage(grace_us=0)
    record(log)
    (path,) = files(log)
    assert (log.root / path).exists()
    copy(log, Run("impsns", "far", 8, START_US, 3))
    log.drop_stream("impsns")
    log.collect_garbage(grace_us=0)
    assert list((log.root / "data").rglob("*.parquet")) == []


def test_files_by_reference_are_not_copied(log: Log, stream: StreamState, tmp_path: Path) -> None:
    file = Segment(str(tmp_path / "there.parquet"), 5, 100, START_US, START_US + 9, reference=True, footer="x")
    draft = RunDraft(RunKind.ROWS, (file,), run_id=RunId("far", 1), stime=START_US, cause={"copied_from": "b"})
    log.copies.take(stream.id, [draft])
    record(log)
    (header,) = log.headers(stream)
    assert (header.rows, header.event_max, header.cause) == (5, START_US + 9, {"copied_from": "b"})
    with log.catalog.read() as connection:
        row = connection.execute(sa.select(tables.segments)).one()
    assert (row.path, row.reference, row.footer, row.intent_id) == (file.path, True, "x", None)


def test_segments_written_under_an_intent(log: Log, stream: StreamState) -> None:
    """One transaction takes many runs and ends the intent."""
    from anabranch.log.rows import to_table
    from anabranch.log.segments import numbered

    intent = log.intents.begin(stream.id)
    layout = log.layout(stream, intent)
    drafts = []
    for n in (2, 1):
        written = write_segments(layout, numbered(to_table(rows_at(n, n), stream.spec), 0))
        drafts.append(RunDraft(RunKind.ROWS, tuple(written), run_id=RunId("far", n), stime=START_US + n))
    log.copies.take(stream.id, drafts, intent_id=intent.id)
    log.intents.forget(intent)
    log.collect_garbage(grace_us=0)
    record(log)
    assert [(h.run_id.sequence, h.rows) for h in log.headers(stream)] == [(1, 2), (2, 2)]
    assert all((log.root / path).exists() for path in files(log))


def test_a_run_below_a_recorded_bucket_goes_into_the_next_one(log: Log, stream: StreamState) -> None:
    copy(log, Run("impsns", "far", 1, START_US + 10, 1))
    record(log, end=End(stime=START_US + 20))
    draft = RunDraft(RunKind.ROWS, run_id=RunId("far", 2), stime=START_US + 5)
    with pytest.raises(AnabranchError) as caught:
        log.copies.take(stream.id, [draft], refuse_late=True)
    assert (caught.value.id, caught.value.place) == ("RUN_TOO_LATE", "run far:2 of stream 'impsns'")
    assert not log.register.anything_waiting(), "nothing was staged"
    copy(log, Run("impsns", "far", 1, START_US + 10, 1), refuse_late=True)  # a duplicate is none
    log.copies.take(stream.id, [draft])
    assert record(log, end=End(stime=START_US + 30)).number == 2
    assert [(h.position, h.stime - START_US) for h in log.headers(stream)] == [(1, 10), (2, 5)]
    timely = RunDraft(RunKind.ROWS, run_id=RunId("far", 3), stime=START_US + 30)
    assert log.copies.take(stream.id, [timely], refuse_late=True)[0].stime == START_US + 30


def test_runs_beyond_the_end_stay_staged(log: Log, stream: StreamState) -> None:
    for n in (30, 10, 20):
        copy(log, Run("impsns", "far", n, START_US + n, n, "a"))
    record(log, end=End(stime=START_US + 20))
    assert [h.stime - START_US for h in log.headers(stream)] == [10]
    assert log.register.bounds_at(stream.id, 1).progress == START_US + 10 * SECOND
    record(log, end=End(positions={}), force=True)
    assert len(log.headers(stream)) == 1, "positions name what has one"
    record(log)
    assert [h.stime - START_US for h in log.headers(stream)] == [10, 20, 30]


def test_own_runs_of_a_stream_that_takes_copies_wait_too(log: Log, stream: StreamState, clock: FakeClock) -> None:
    log.copies.expect(stream.id)
    with log.unit_of_work(stream) as work:
        work.append(rows_at(1))
        own = work.commit()
    assert (own.position, own.run_id, own.stime) == (0, RunId(log.entry_point, 1), clock.now)
    assert log.punctuate(stream, START_US + 5 * SECOND).position == 0
    copy(log, Run("impsns", "far", 1, clock.now - 1, 2))
    record(log)
    assert [h.run_id.entry_point for h in log.headers(stream)] == ["far", log.entry_point, log.entry_point]
    assert log.register.bounds_at(stream.id, 1).progress == START_US + 5 * SECOND


def test_own_runs_that_come_back_are_not_numbered_again(log: Log, stream: StreamState, clock: FakeClock) -> None:
    """A site that lost its disk takes its own runs from its peers."""
    copy(log, Run("impsns", log.entry_point, 41, clock.now + 1_000, 1))
    with log.unit_of_work(stream) as work:
        work.append(rows_at(1))
        own = work.commit()
    assert (own.run_id.sequence, own.stime) == (42, clock.now + 1_001)


def test_what_was_there_before_the_first_copy_goes_first(log: Log, stream: StreamState, clock: FakeClock) -> None:
    with log.unit_of_work(stream) as work:
        work.append(rows_at(1))
    clock.pass_seconds(10)
    with log.unit_of_work(stream) as work:
        work.append(rows_at(2))
    copy(log, Run("impsns", "far", 1, START_US + 5, 3))
    record(log, end=End(stime=START_US + 10))
    assert log.register.bounds_at(stream.id, 1).end == 1, "the copy waits for what has a position already"
    copy(log, Run("impsns", "far", 2, START_US + 3, 3))
    record(log)
    own = log.entry_point
    assert [tuple(h.run_id) for h in log.headers(stream)] == [(own, 1), (own, 2), ("far", 2), ("far", 1)]


# The law.


@pytest.fixture
def several(tmp_path: Path, catalog_url: str | None, request: pytest.FixtureRequest) -> Iterator[Callable[[], Log]]:
    """Opens new warehouses; on PostgreSQL each in a schema of its own."""
    with ExitStack() as opened:

        def open_one() -> Log:
            url = None if catalog_url is None else request.getfixturevalue("postgres")()
            number = len(list(tmp_path.iterdir()))
            return opened.enter_context(Log(tmp_path / f"w{number}", url, clock=FakeClock(), bucket_us=SECOND))

        yield open_one


def draw_runs(chance: np.random.Generator) -> list[Run]:
    runs = []
    for stream in ("one", "two"):
        for entry_point in ("a", "b", "c"):
            stime = START_US
            for sequence in range(1, int(chance.integers(2, 6))):
                stime += int(chance.choice([0, 1, SECOND // 3, SECOND, 3 * SECOND]))
                source = (None, "x", "y")[chance.integers(3)]
                punctuates = bool(chance.random() < 0.3)
                runs.append(Run(stream, entry_point, sequence, stime, int(chance.integers(0, 50)), source, punctuates))
                stime += 1
    return runs


def everything(log: Log) -> dict[str, Any]:
    """All that may not depend on when runs came, except for files."""
    found: dict[str, Any] = {"buckets": log.register.buckets_after(0)}
    for name in ("one", "two"):
        stream = log.stream(name)
        found[name] = [
            (h.position, h.run_id, h.stime, h.source, h.kind, h.event_max, h.mark, h.progress)
            for h in log.headers(stream)
        ]
        found[f"bounds of {name}"] = log.register.bounds_after(stream.id, 0, 1 << 62)
        with log.catalog.read() as connection:
            found[f"marks of {name}"] = [
                marks.marks_at(connection, stream.id, bucket.number) for bucket in found["buckets"]
            ]
    return found


def play(log: Log, runs: Sequence[Run], ends: Sequence[int], chance: np.random.Generator) -> dict[str, Any]:
    """Runs come in some order, each before its bucket ends, some of them twice."""
    for name in ("one", "two"):
        log.create_stream(make_spec(name, slack="2 seconds", drift="9 seconds"))
    waiting = [runs[n] for n in chance.permutation(len(runs))]
    for end in ends:
        early = [run for run in waiting if run.stime < end or chance.random() < 0.3]
        for run in early:
            copy(log, run)
            if chance.random() < 0.2:
                assert copy(log, run).duplicate
        waiting = [run for run in waiting if run not in early]
        record(log, end=End(stime=end))
    assert not waiting
    return everything(log)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_arrival_does_not_matter(several: Callable[[], Log], seed: int) -> None:
    runs = draw_runs(np.random.default_rng(seed))
    last = max(run.stime for run in runs)
    ends = range(START_US + SECOND, last + 2 * SECOND, SECOND)
    one, other = (play(several(), runs, ends, np.random.default_rng(seed * 10 + n)) for n in (1, 2))
    assert one == other
    assert sum(len(one[name]) for name in ("one", "two")) == len(runs)
    for name in ("one", "two"):
        stamps = [(h[2], *h[1]) for h in one[name]]
        assert stamps == sorted(stamps), "where nothing comes too late, positions follow stamps"
