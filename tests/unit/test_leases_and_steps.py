"""One engine at a time, and steps that commit whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import sqlalchemy as sa

from anabranch.engine.lease import keep
from anabranch.engine.retries import Retries
from anabranch.log.catalog import Catalog
from anabranch.log.commit import Output
from anabranch.log.compaction import CompactionPlan
from anabranch.log.leases import Lease, Leases
from anabranch.log.log import Log, StreamState
from anabranch.log.recording import record_bucket
from anabranch.log.reduction import ReductionPlan
from anabranch.log.register import NewQuery, NewStore
from anabranch.log.steps import Move, Reading
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunDraft, RunKind, Segment
from anabranch.model.stream import StreamSpec
from tests.conftest import SECOND, START_US, FakeClock, make_spec, rows_at


@dataclass(frozen=True)
class Query:
    """A query over a base stream, as the register has it."""

    base: StreamState
    derived: StreamState
    id: int


@pytest.fixture
def query(log: Log) -> Query:
    base = log.create_stream(make_spec("base"))
    for second in (1, 2, 3):
        with log.unit_of_work(base) as work:
            work.append(rows_at(second))
    log.register.create_queries([NewQuery(make_spec("derived"), {})])
    (stored,) = log.register.queries()
    return Query(base, log.stream("derived"), stored.id)


def step(log: Log, lease: Lease, query: Query, before: int | None, after: int, end: int) -> None:
    draft = RunDraft(RunKind.ROWS, bucket=after, stime=after * 10, progress=end, cause={"reader": "q"})
    log.register.commit_step(
        lease,
        [Move("query", query.id, before, after, released=after)],
        [Reading(query.base.id, "q", end)],
        [Output(query.derived.id, draft)],
    )


def test_a_lease_is_exclusive_until_it_runs_out(open_log: Callable[..., Log], clock: FakeClock) -> None:
    one, two = open_log(), open_log()
    lease = one.leases.acquire("one")
    with pytest.raises(AnabranchError) as caught:
        two.leases.acquire("two")
    assert caught.value.id == "LEASE_HELD"
    assert "one holds the lease" in caught.value.got
    clock.pass_seconds(20)
    lease = one.leases.renew(lease)
    clock.pass_seconds(20)
    with pytest.raises(AnabranchError):
        two.leases.acquire("two")
    clock.pass_seconds(11)
    taken = two.leases.acquire("two")
    assert taken.epoch == lease.epoch + 1
    with pytest.raises(AnabranchError) as caught:
        one.leases.renew(lease)
    assert caught.value.id == "FENCED"
    one.leases.release(lease)
    assert two.leases.renew(taken).epoch == taken.epoch, "a lost lease releases nothing"


def test_a_released_lease_is_free_at_once(log: Log) -> None:
    log.leases.release(log.leases.acquire("one"))
    assert log.leases.acquire("two").epoch == 2


def test_a_step_moves_positions_and_outputs_together(log: Log, query: Query) -> None:
    lease = log.leases.acquire()
    step(log, lease, query, None, 1, 2)
    step(log, lease, query, 1, 2, 3)
    assert [(p.name, p.position) for p in log.positions_of(query.base)] == [("q", 3)]
    headers = log.headers(query.derived)
    assert [(h.bucket, h.stime, h.progress) for h in headers] == [(1, 10, 2), (2, 20, 3)]
    assert [h.cause for h in headers] == [{"reader": "q"}] * 2
    (stored,) = log.register.queries()
    assert (stored.bucket, stored.released) == (2, 2)


def test_a_fenced_step_commits_nothing(log: Log, query: Query, clock: FakeClock) -> None:
    lease = log.leases.acquire("paused")
    clock.pass_seconds(31)
    log.leases.acquire("other")
    with pytest.raises(AnabranchError) as caught:
        step(log, lease, query, None, 1, 2)
    assert caught.value.id == "FENCED"
    with pytest.raises(AnabranchError):
        log.register.record_bucket(lease)
    assert log.headers(query.derived) == []
    assert log.positions_of(query.base) == []


def test_an_expired_lease_that_nobody_took_still_commits(log: Log, query: Query, clock: FakeClock) -> None:
    lease = log.leases.acquire("slow")
    clock.pass_seconds(3600)
    step(log, lease, query, None, 1, 1)
    assert len(log.headers(query.derived)) == 1


def test_a_step_from_the_wrong_bucket_commits_nothing(log: Log, query: Query) -> None:
    lease = log.leases.acquire()
    step(log, lease, query, None, 2, 2)
    with pytest.raises(AnabranchError) as caught:
        step(log, lease, query, None, 3, 3)
    assert caught.value.id == "POSITION_CONFLICT"
    assert caught.value.got == "bucket 2"
    assert len(log.headers(query.derived)) == 1


def test_a_step_of_many_is_the_same_as_steps_of_one(log: Log, query: Query) -> None:
    """Several buckets of two queries at once; a reader that reads a stream twice has come as far as it says last."""
    log.register.create_queries([NewQuery(make_spec("another"), {})])
    another = next(q for q in log.register.queries() if q.name == "another")
    lease = log.leases.acquire()

    def runs(*buckets: int) -> list[Output]:
        streams = (query.derived.id, another.stream_id)
        drafts = [RunDraft(RunKind.ROWS, bucket=b, stime=b * 10, progress=b) for b in buckets]
        return [Output(stream, draft) for draft in drafts for stream in streams]

    def commit(before: tuple[int | None, int | None], after: int, end: int, *buckets: int) -> None:
        ids = (query.id, another.id)
        moves = [Move("query", n, b, after, released=after) for n, b in zip(ids, before, strict=True)]
        readings = [Reading(query.base.id, reader, at) for reader in ("q", "a") for at in (1, end)]
        log.register.commit_step(lease, moves, readings, runs(*buckets))

    commit((None, None), 3, 2, 1, 2, 3)
    commit((3, 3), 4, 3, 4)
    for name in ("derived", "another"):
        headers = log.headers(log.stream(name))
        assert [(h.position, h.run_id.sequence, h.bucket, h.progress) for h in headers] == [
            (n, n, n, n) for n in range(1, 5)
        ]
        assert (log.stream(name).runs, log.stream(name).progress) == (4, 4)
    assert [(p.name, p.position) for p in log.positions_of(query.base)] == [("a", 3), ("q", 3)]
    with pytest.raises(AnabranchError) as caught:
        commit((4, 3), 5, 3, 5)
    assert caught.value.id == "POSITION_CONFLICT"
    assert (caught.value.place, caught.value.got) == (f"step of query number {another.id}", "bucket 4")
    assert [q.bucket for q in log.register.queries()] == [4, 4]


def test_a_failure_in_a_step_undoes_all_of_it(log: Log, query: Query) -> None:
    lease = log.leases.acquire()
    draft = RunDraft(RunKind.ROWS, bucket=1, stime=1)
    with pytest.raises(AnabranchError):
        log.register.commit_step(
            lease,
            [Move("query", query.id, None, 1)],
            [Reading(query.base.id, "q", 3)],
            [Output(query.derived.id, draft), Output(999, draft)],
        )
    assert log.headers(query.derived) == []
    assert log.positions_of(query.base) == []
    assert log.register.queries()[0].bucket is None


def test_a_bucket_takes_all_that_waits_and_is_stamped_by_it(log: Log, query: Query, clock: FakeClock) -> None:
    lease = log.leases.acquire()
    clock.pass_seconds(10)  # recording takes time, and must not show in the stamp
    bucket = log.register.record_bucket(lease)
    assert bucket is not None
    stamps = {h.position: h.stime for h in log.headers(query.base)}
    assert (bucket.number, bucket.stime) == (1, stamps[3])
    assert log.register.record_bucket(lease) is None, "nothing is waiting"
    (bounds,) = log.register.bounds_after(query.base.id, 0, 9)
    assert (bounds.start, bounds.end, bounds.progress) == (0, 3, START_US + 3 * SECOND)


def test_a_derived_run_whose_progress_is_unknown_invents_none(log: Log, query: Query) -> None:
    """Its own rows tell nothing of what is still to come: one side of a union may not have begun."""
    lease = log.leases.acquire("one")

    def run(number: int, progress: int | None, *seconds: float) -> None:
        times = [START_US + int(second * SECOND) for second in seconds]
        rows = tuple(Segment(f"{number}.parquet", 1, 1, time, time) for time in times)
        draft = RunDraft(RunKind.ROWS, rows, bucket=number, stime=number, progress=progress)
        move = Move("query", query.id, number - 1 or None, number)
        log.register.commit_step(lease, [move], [], [Output(query.derived.id, draft)])

    run(1, None, 50)
    assert log.stream("derived").progress is None
    run(2, START_US + 10 * SECOND, 60)
    assert log.stream("derived").progress == START_US + 10 * SECOND
    run(3, None, 70)
    assert [h.progress for h in log.headers(query.derived)] == [None, *[START_US + 10 * SECOND] * 2]
    assert log.stream("derived").sources == 0, "no marks"


def test_a_table_shows_no_progress(log: Log) -> None:
    spec = StreamSpec.table("prices", {"item": "STRING", "price": "INT"}, "item")
    table = log.create_stream(spec)
    with log.unit_of_work(table) as work:
        work.append([{"item": "a", "price": 1, "since": "1970-01-01T00:00:00Z"}])
    log.punctuate(table, START_US + 86_400 * 365 * SECOND)
    state = log.stream("prices")
    assert (state.progress, state.reached) == (None, START_US + 86_400 * 365 * SECOND)
    assert {(h.progress, h.progress_before, h.mark) for h in log.headers(state)} == {(None, None, None)}
    with log.catalog.write() as connection:
        record_bucket(connection, now=log.clock())
    assert log.register.bounds_at(table.id, 1).progress == state.reached, "nobody waits for it"


def test_progress_is_evaluated_once_for_a_whole_bucket(log: Log) -> None:
    """Run by run, the first source alone would carry progress away before the second is heard of."""
    base = log.create_stream(make_spec("base"))
    for source, second in (("early", 100), ("late", 10)):
        with log.unit_of_work(base, source=source) as work:
            work.append(rows_at(second))
    lease = log.leases.acquire()
    log.register.record_bucket(lease)
    assert log.register.bounds_at(base.id, 1).progress == START_US + 10 * SECOND
    log.punctuate(log.stream("base"), START_US + 50 * SECOND)
    log.register.record_bucket(lease)
    assert log.register.bounds_at(base.id, 2).progress == START_US + 50 * SECOND
    assert log.register.bounds_at(base.id, 1).progress == START_US + 10 * SECOND, "what was recorded stays"


def test_a_query_that_is_dropped_leaves_nothing(log: Log, query: Query) -> None:
    schema = make_spec().schema
    log.register.create_queries([NewQuery(make_spec("other"), {}, [NewStore(schema, "ts", {})], "kept")])
    with pytest.raises(AnabranchError) as caught:
        log.create_stream(make_spec("kept"))
    assert (caught.value.id, caught.value.got) == ("STREAM_EXISTS", "the name of an archive")
    assert [s.name for s in log.streams()] == ["base", "derived", "other"], "partial results are not shown"
    (store,) = log.register.stores()
    log.register.drop_query(next(q for q in log.register.queries() if q.name == "other"))
    assert log.register.stores() == []
    assert [s.name for s in log.streams()] == ["base", "derived"]
    with pytest.raises(Exception):  # noqa: B017
        log.stream_by_id(store.stream_id)


def test_a_store_lives_as_long_as_a_query_uses_it(log: Log, query: Query) -> None:
    log.register.create_queries([NewQuery(make_spec("one"), {}, [NewStore(make_spec().schema, "ts", {})])])
    (store,) = log.register.stores()
    log.register.create_queries([NewQuery(make_spec("two"), {}, [store.id])])
    stored = {q.name: q for q in log.register.queries()}
    log.register.drop_query(stored["one"])
    assert [s.id for s in log.register.stores()] == [store.id]
    log.register.drop_query(stored["two"])
    assert log.register.stores() == []


def lost(log: Log, monkeypatch: pytest.MonkeyPatch, *, after_commit: bool) -> pytest.MonkeyPatch:
    """From now on every answer of the catalog is lost: before anything was written, or after the commit."""
    write = Catalog.write

    @contextmanager
    def losing(self: Catalog) -> Iterator[sa.Connection]:
        if self is log.catalog and not after_commit:
            raise out_of_reach()
        with write(self) as connection:
            yield connection
        if self is log.catalog:
            raise out_of_reach()

    monkeypatch.setattr(Catalog, "write", losing)
    return monkeypatch


def out_of_reach() -> AnabranchError:
    return AnabranchError("CATALOG_UNREACHABLE", place="catalog", need="an answer", got="none", next_step="Wait.")


@pytest.mark.parametrize("after_commit", [False, True])
def test_a_lease_that_could_not_be_given_back_is_its_own_process_still(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, after_commit: bool
) -> None:
    log, other = open_log(), open_log()
    first = log.leases.acquire("one")
    with monkeypatch.context() as patch:
        lost(log, patch, after_commit=after_commit)
        log.leases.release(first)
    if not after_commit:
        with pytest.raises(AnabranchError) as caught:
            other.leases.acquire("two")
        assert caught.value.id == "LEASE_HELD", "others wait until it has run out"
    again = log.leases.acquire("one")
    assert again.epoch == first.epoch + 1
    with pytest.raises(AnabranchError):
        log.leases.acquire("one")


def test_a_lease_whose_taking_was_not_answered_is_its_own_process_still(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = open_log(), open_log()
    with monkeypatch.context() as patch:
        lost(log, patch, after_commit=True)
        with pytest.raises(AnabranchError) as caught:
            log.leases.acquire("one")
    assert caught.value.id == "CATALOG_UNREACHABLE"
    with pytest.raises(AnabranchError):
        other.leases.acquire("two")
    assert log.leases.acquire("one").epoch == 2


def test_a_lease_that_another_took_meanwhile_is_not_ones_own(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    log, other = open_log(), open_log()
    first = log.leases.acquire("one")
    with monkeypatch.context() as patch:
        lost(log, patch, after_commit=False)
        log.leases.release(first)
    clock.pass_seconds(31)
    other.leases.acquire("two")
    with pytest.raises(AnabranchError) as caught:
        log.leases.acquire("one")
    assert caught.value.id == "LEASE_HELD"


@dataclass
class Waits:
    """A stop signal that is given after so many waits; how long each was to be."""

    clock: FakeClock
    most: int
    waits: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.clock.pass_seconds(seconds)
        return len(self.waits) > self.most


def test_the_keeper_renews_again_when_the_catalog_is_back(
    log: Log, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    """Nine renewals fail in a row; the tenth finds the lease as it was, and nobody could have taken it."""
    lease, retries, failing = log.leases.acquire("one"), Retries(clock), iter(range(9))
    renew = Leases.renew

    def failing_at_first(self: Leases, of: Lease) -> Lease:
        if next(failing, None) is not None:
            raise out_of_reach()
        return renew(self, of)

    monkeypatch.setattr(Leases, "renew", failing_at_first)
    waits = Waits(clock, 10)
    keep(log.leases, retries, lease, waits)  # type: ignore[arg-type]
    assert waits.waits == [10, 0.25, 0.5, 1, 2, 4, 5, 5, 5, 5, 10]
    assert retries.shown() == {}
    clock.pass_seconds(15)
    with pytest.raises(AnabranchError) as caught:
        log.leases.acquire("two")
    assert caught.value.id == "LEASE_HELD", "it was renewed in the end"


def test_the_keeper_ends_when_another_engine_has_taken_over(log: Log, clock: FakeClock) -> None:
    lease = log.leases.acquire("one")
    clock.pass_seconds(31)
    log.leases.acquire("two")
    waits = Waits(clock, 9)
    keep(log.leases, Retries(clock), lease, waits)  # type: ignore[arg-type]
    assert waits.waits == [10]


def test_who_has_lapsed_is_told_what_fits(log: Log, query: Query, clock: FakeClock) -> None:
    """A writer appends again, an engine advances again, upkeep plans anew."""
    lease, stream = log.leases.acquire(), query.base
    intents = [log.intents.begin(stream.id) for _ in range(3)]
    step_of_many = Output(query.derived.id, RunDraft(RunKind.ROWS, bucket=1, stime=1, progress=1), intents[0].id)
    work = log.unit_of_work(stream)
    work.append(rows_at(4))
    clock.pass_seconds(61)
    commits = {
        "Append the rows again": work.commit,
        "Advance again": lambda: log.register.commit_step(lease, [], [], [step_of_many]),
        "the next reduction plans anew": lambda: log.register.commit_reduction(
            ReductionPlan(stream.id, 1, 2, 1, (), ()), [], intents[1].id
        ),
        "Run the compaction again": lambda: log.commit_compaction(CompactionPlan(stream.id, 0), [], intents[2].id),
    }
    for advice, commit in commits.items():
        with pytest.raises(AnabranchError) as caught:
            commit()
        assert caught.value.id == "INTENT_LAPSED"
        assert advice in caught.value.next_step
