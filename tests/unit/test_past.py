"""Branches at a past bucket, as the catalog has them. On SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.commit import Output
from anabranch.log.compaction import CompactionPlan
from anabranch.log.folding import Grid, fold_buckets
from anabranch.log.headers import insert_segments, logged_from, segment_values
from anabranch.log.leases import Lease
from anabranch.log.log import Log, StreamState
from anabranch.log.past import Past
from anabranch.log.reading import ReadRange
from anabranch.log.register import NewQuery, NewStore
from anabranch.log.steps import Move, Reading
from anabranch.model.errors import AnabranchError
from anabranch.model.run import Role, RunDraft, RunKind, Segment
from tests.conftest import SECOND, START_US, FakeClock, make_spec, rows_at

ALL_TIME = [(0, 1 << 61)]
# What becomes of each table of the catalog on a branch at a past bucket.
CUT = {"streams", "runs", "segments", "sources", "positions", "buckets", "bucket_bounds", "bucket_marks", "warehouse"}
BEGUN_AGAIN = {"queries", "stores", "query_stores", "sinks"}
EMPTIED = {"staged_runs", "states", "overlay", "leases", "intents", "garbage", "branches"}
AS_IT_IS = {"folded_runs", "sequences", "trimmed", "views"}  # of base streams; of others it is emptied
# Of each bucket, the second that its runs are at, and their sources.
BUCKETS = [[(10, "a"), (20, "b")], [(30, "a"), (5, None)], [(25, "b"), (60, "c"), (70, None)], [(90, "a")]]


@pytest.fixture
def lease(log: Log) -> Lease:
    return log.leases.acquire()


@pytest.fixture
def base(log: Log, lease: Lease, clock: FakeClock) -> StreamState:
    """A stream with four buckets, a second apart; a query that was there from the start, and one from bucket 2 on."""
    base = log.create_stream(make_spec("base"))
    create(log, "early")
    log.create_stream(make_spec("idle"))
    for number, runs in enumerate(BUCKETS, 1):
        for second, source in runs:
            with log.unit_of_work(base, source=source) as work:
                work.append(rows_at(second, second))
        log.register.record_bucket(lease)
        for query in log.register.queries():
            answer(log, lease, query.name, number)
        if number == 2:
            create(log, "late")
        clock.pass_seconds(1)
    return log.stream("base")


def create(log: Log, name: str) -> None:
    number = log.stream("base").id
    store = NewStore(make_spec().schema, "ts", {"of": name})
    log.register.create_queries([NewQuery(make_spec(name), {"reads": {"base": number}}, [store])])


def answer(log: Log, lease: Lease, name: str, bucket: int) -> None:
    query = next(q for q in log.register.queries() if q.name == name)
    draft = RunDraft(RunKind.ROWS, bucket=bucket, stime=bucket, progress=bucket)
    end = log.register.bounds_at(log.stream("base").id, bucket).end
    moves = [Move("query", query.id, query.bucket, bucket, released=bucket)]
    reading = Reading(log.stream("base").id, f"query {name}", end)
    log.register.commit_step(lease, moves, [reading], [Output(query.stream_id, draft)])


def at(log: Log, bucket: int | None = None, stime: int | None = None, **options: Any) -> Log:
    return log.fork(past=Past(bucket, stime, **options))


def refused(log: Log, bucket: int | None = None, stime: int | None = None, **options: Any) -> AnabranchError:
    with pytest.raises(AnabranchError) as caught:
        at(log, bucket, stime, **options)
    assert log.branches.all() == [], "nothing is left of it"
    return caught.value


def marks(log: Log) -> dict[str, tuple[int, int]]:
    with log.catalog.read() as connection:
        rows = connection.execute(sa.select(tables.sources)).all()
    return {r.source: ((r.mark - START_US) // SECOND, (r.bucket_mark - START_US) // SECOND) for r in rows}


def test_every_table_has_its_place_in_the_past() -> None:
    known = CUT | BEGUN_AGAIN | EMPTIED | AS_IT_IS
    new = set(tables.metadata.tables) - known
    assert not new, f"let log/past.py cut back {new}, so that nothing of a later bucket is left, and name it here"


def test_base_streams_are_cut_back(log: Log, base: StreamState) -> None:
    with at(log, 2) as branch:
        cut = branch.stream("base")
        assert (cut.last_position, cut.runs, cut.rows, cut.event_max) == (4, 4, 8, START_US + 30 * SECOND)
        assert [h.position for h in branch.headers(cut)] == [1, 2, 3, 4]
        assert {s.last_position for s in branch.plan("base", ReadRange()).segments} == {1, 2, 3, 4}
        assert {s.last_position for s in branch.plan_panes(cut, ALL_TIME)} == {1, 2, 3, 4}
        assert marks(branch) == {"a": (30, 30), "b": (20, 20), "": (5, 5)}
        assert branch.register.bounds_at(base.id, 2) == log.register.bounds_at(base.id, 2)
        assert [b.number for b in branch.register.buckets_after(0)] == [1, 2]
        assert not branch.register.anything_waiting()
        assert branch.stream("idle").last_position == 0
    assert (log.stream("base").last_position, len(log.headers(base))) == (8, 8), "main is as it was"


def test_states_of_later_are_no_part_of_the_past(log: Log, base: StreamState) -> None:
    """What a stream amounts to now is neither read nor held on a branch of what it was."""
    stream = {"stream_id": base.id}
    state = segment_values(Segment("data/state", 9, 9, role=Role.STATE), base.id, None, 1, 3)
    with log.catalog.write() as connection:
        insert_segments(connection, [state])
        connection.execute(tables.states.insert().values(**stream, hashed=[], bucket=4, position=8, segments=[1]))
    with at(log, 2) as branch, branch.catalog.read() as connection:
        assert connection.execute(sa.select(tables.states)).all() == []
        of_states = tables.segments.c.role == str(Role.STATE)
        assert connection.execute(sa.select(tables.segments).where(of_states)).all() == []


def test_what_comes_on_the_branch_comes_after_it(log: Log, base: StreamState, clock: FakeClock) -> None:
    """Progress goes on from the marks of then: those that came later are not known."""
    with at(log, 2) as branch:
        with branch.unit_of_work(branch.stream("base"), source="b") as work:
            work.append(rows_at(40))
            header = work.commit()
        assert (header.position, header.progress) == (5, START_US + 10 * SECOND)
        bucket = branch.register.record_bucket(branch.leases.acquire())
        assert bucket is not None
        assert bucket.number == 3
        assert branch.register.bounds_at(base.id, 3).progress == START_US + 10 * SECOND
        assert len(branch.plan("base", ReadRange()).segments) == 5


def test_queries_of_then_begin_again(log: Log, base: StreamState) -> None:
    with at(log, 1) as branch:
        (query,) = branch.register.queries()
        assert (query.name, query.bucket, query.released, query.definition["after"]) == ("early", None, None, 0)
        (store,) = branch.register.stores()
        assert (store.id in query.stores, store.bucket, store.definition["after"]) == (True, None, 0)
        derived = branch.stream("early")
        assert (derived.last_position, derived.rows, branch.headers(derived)) == (0, 0, [])
        assert not branch.positions_of(branch.stream("base"))
        assert [s.name for s in branch.streams()] == ["base", "early", "idle"]
    with at(log, 3) as branch:
        assert {q.name: q.definition["after"] for q in branch.register.queries()} == {"early": 2, "late": 2}
    assert [q.bucket for q in log.register.queries()] == [4, 4]


def test_a_bucket_is_found_by_stream_time(log: Log, base: StreamState) -> None:
    ends = [bucket.stime for bucket in log.register.buckets_after(0)]
    for stime, number in ((ends[0], 1), (ends[1] - 1, 1), (ends[1], 2), (ends[3] + 5, 4)):
        with at(log, stime=stime) as branch:
            assert branch.register.buckets_after(0)[-1].number == number
    error = refused(log, stime=ends[0] - 1)
    assert (error.id, error.got) == ("BAD_ARGUMENT", "a time before any bucket had ended")
    assert error.need == "bucket 1, the first one, or a later one"


def test_buckets_that_are_not_there(log: Log, base: StreamState) -> None:
    assert refused(log, 9).need == "one of the buckets up to 4"
    assert refused(log, 0).need == "bucket 1, the first one, or a later one"


def test_a_folded_bucket_names_its_neighbours(log: Log, base: StreamState) -> None:
    ends = [bucket.stime for bucket in log.register.buckets_after(0)]
    fold(log, 2)
    assert [bucket.number for bucket in log.register.buckets_after(0)] == [2, 4]
    for error in (refused(log, 3), refused(log, stime=ends[2]), refused(log, stime=ends[3] - 1)):
        assert error.id == "BUCKET_FOLDED"
        assert error.need.startswith("bucket 2, which ended at 2026-01-01 00:00:01")
        assert "or bucket 4, which ended at 2026-01-01 00:00:03" in error.need
    assert refused(log, 1).need.startswith("bucket 2, which ended")
    with at(log, 2) as branch:
        assert (branch.stream("base").last_position, branch.stream("base").rows) == (4, 8)
        assert marks(branch) == {"a": (30, 30), "b": (20, 20), "": (5, 5)}
    fold(log, 4)
    assert [bucket.number for bucket in log.register.buckets_after(0)] == [4]
    assert refused(log, 1).need.startswith("bucket 4, which ended"), "it stands for all of them"


def fold(log: Log, seconds: int) -> None:
    """One bucket stays for each stretch of so many seconds."""
    grid = Grid(seconds * SECOND, START_US + 100 * SECOND)
    with log.catalog.write() as connection:
        assert fold_buckets(connection, grid, 0, 4) == 4


def test_answers_that_depend_on_buckets_need_all_of_them(log: Log, base: StreamState) -> None:
    with at(log, 3, in_turn={"late"}) as branch:
        assert {q.name: q.definition["after"] for q in branch.register.queries()} == {"early": 0, "late": 2}
    with at(log, 1, in_turn={"late"}) as branch:
        assert [q.definition["after"] for q in branch.register.queries()] == [0], "that one is not there yet"
    fold(log, 2)
    error = refused(log, 4, in_turn={"early"})
    assert (error.id, error.need) == (
        "BUCKET_FOLDED", "every bucket after 0 as it was recorded, since the answers of early depend on them"
    )  # fmt: skip
    with at(log, 4) as branch:
        assert len(branch.register.queries()) == 2


def test_rows_that_are_gone_are_an_error(log: Log, base: StreamState) -> None:
    with log.catalog.write() as connection:
        connection.execute(
            tables.trimmed.insert(), {"stream_id": base.id, "axis": "position", "low": 5, "high": 5}
        )  # as retention leaves it
    error = refused(log, 3)
    assert (error.id, error.need) == ("HISTORY_GONE", "all rows of 'base' up to the end of bucket 3")
    assert error.next_step.startswith("The nearest that can be had is bucket 2")
    with at(log, 2) as branch:
        assert branch.stream("base").last_position == 4


def test_older_marks_were_not_recorded(log: Log, base: StreamState) -> None:
    with log.catalog.write() as connection:
        connection.execute(tables.warehouse.update().values(marks_since=2))
    assert refused(log, 1).need == "bucket 2 or a later one"
    at(log, 2).close()


def test_compacted_segments_are_read_up_to_the_bucket(log: Log, base: StreamState) -> None:
    """One file holds rows of positions on both sides, and one header covers them."""
    with log.catalog.read() as connection:
        rows = connection.execute(sa.select(tables.segments).where(tables.segments.c.stream_id == base.id)).all()
    segments = tuple(map(logged_from, rows))
    events = [t for s in segments for t in (s.segment.event_min, s.segment.event_max) if t is not None]
    whole = Segment("data/whole.parquet", 16, 1, min(events), max(events), options={"positions": [1, 8]})
    log.commit_compaction(CompactionPlan(base.id, 8, tuple(r.id for r in rows), (segments,)), [whole], None)
    assert len(log.headers(base)) == 1
    with at(log, 2) as branch:
        cut = branch.stream("base")
        assert (cut.last_position, cut.rows, cut.runs) == (4, 8, 1)
        (logged,) = branch.plan("base", ReadRange()).segments
        assert (logged.first_position, logged.last_position, logged.cut) == (1, 4, 4)
        assert [s.cut for s in branch.plan_panes(cut, ALL_TIME)] == [4]
        assert [(h.first_position, h.position, h.rows) for h in branch.headers(cut)] == [(1, 4, 8)]
        with branch.unit_of_work(cut) as work:
            work.append(rows_at(1))
            assert work.commit().position == 5
        assert [s.cut for s in branch.plan("base", ReadRange()).segments] == [4, None], "of its own run all counts"
        plan = branch.plan_compaction(cut, least_segments=1)
        assert plan.segments == (), "it is never rewritten"
        with branch.fork(past=Past(1)) as nested:
            assert [s.cut for s in nested.plan("base", ReadRange()).segments] == [2]
            assert nested.stream("base").rows == 4
    assert [s.cut for s in log.plan("base", ReadRange()).segments] == [None]
