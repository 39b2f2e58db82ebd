"""Units of work: one commit, abort, speculation, lapse; and what garbage collection makes of them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.gc import release_files
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadRange
from anabranch.model.errors import AnabranchError
from anabranch.model.run import Role, RunKind, Stability
from anabranch.model.stream import StreamSpec
from tests.conftest import FakeClock, make_spec, rows_at

TENTATIVE = ReadRange(tentative=True)


def files(log: Log) -> set[str]:
    return {str(p.relative_to(log.root)) for p in (log.root / "data").rglob("*.parquet")}


def referred(log: Log, name: str = "impsns") -> set[str]:
    return {s.segment.path for s in log.plan(name, ReadRange()).segments}


def rows(log: Log, wanted: ReadRange = ReadRange(), name: str = "impsns") -> int:  # noqa: B008
    return sum(s.segment.rows for s in log.plan(name, wanted).segments)


@pytest.fixture
def stream(log: Log) -> StreamState:
    return log.create_stream(make_spec())


def test_many_appends_are_one_run(log: Log, stream: StreamState) -> None:
    with log.unit_of_work(stream, source="web-7") as work:
        work.append(rows_at(1, 2))
        work.append(rows_at(3))
        assert rows(log) == 0, "not yet"
    (header,) = log.headers(stream)
    assert (header.position, header.rows, header.source) == (1, 3, "web-7")
    ordinals = [o for s in referred(log) for o in pq.read_table(log.root / s)["_ordinal"].to_pylist()]
    assert sorted(ordinals) == [0, 1, 2]


def test_an_exception_aborts(log: Log, stream: StreamState) -> None:
    def fail() -> None:
        with log.unit_of_work(stream) as work:
            work.append(rows_at(1))
            raise RuntimeError("loader")

    with pytest.raises(RuntimeError, match="loader"):
        fail()
    assert log.headers(stream) == []
    assert files(log) == set()


def test_a_bad_append_changes_nothing(log: Log, stream: StreamState) -> None:
    def fail() -> None:
        with log.unit_of_work(stream) as work:
            work.append(rows_at(1))
            work.append([{"user": "x", "campaign": "a", "ts": None}])

    with pytest.raises(AnabranchError):
        fail()
    assert log.headers(stream) == []
    assert files(log) == set()


def test_an_ended_unit_takes_nothing_more(log: Log, stream: StreamState) -> None:
    work = log.unit_of_work(stream)
    work.append(rows_at(1))
    work.commit()
    with pytest.raises(AnabranchError) as caught:
        work.append(rows_at(2))
    assert caught.value.id == "ENGINE_CLOSED"
    work.abort()
    assert rows(log) == 1, "too late to abort"


def test_speculative_rows_are_for_those_who_ask(log: Log, stream: StreamState) -> None:
    with log.unit_of_work(stream) as work:
        work.append(rows_at(1))
    work = log.unit_of_work(stream, speculative=True, source="s")
    work.append(rows_at(2, 3))
    work.append(rows_at(4))
    assert (rows(log), rows(log, TENTATIVE)) == (1, 4)
    overlay = [s for s in log.plan("impsns", TENTATIVE).segments if s.stability is Stability.TENTATIVE]
    assert [s.source for s in overlay] == ["s", "s"]
    assert log.stream("impsns").progress == log.headers(stream)[0].progress, "the stable log has not moved"
    header = work.commit()
    assert (header.position, header.rows) == (2, 3)
    assert (rows(log), rows(log, TENTATIVE)) == (4, 4)


def test_an_aborted_speculation_is_gone(log: Log, stream: StreamState) -> None:
    work = log.unit_of_work(stream, speculative=True)
    work.append(rows_at(2, 3))
    assert rows(log, TENTATIVE) == 2
    work.abort()
    assert rows(log, TENTATIVE) == 0
    assert log.headers(stream) == []
    assert files(log) == set()


def test_a_speculation_of_another_time_is_not_read(log: Log, stream: StreamState) -> None:
    work = log.unit_of_work(stream, speculative=True)
    work.append(rows_at(2))
    now = log.clock()
    assert rows(log, ReadRange(from_time=now, tentative=True)) == 1
    assert rows(log, ReadRange(from_time=now + 10**9, tentative=True)) == 0
    work.abort()


def test_a_silent_writer_lapses(open_log: Callable[..., Log], clock: FakeClock) -> None:
    paused, other = open_log(), open_log()
    stream = paused.create_stream(make_spec())
    work = paused.unit_of_work(stream, speculative=True)
    work.append(rows_at(1))
    assert rows(other, TENTATIVE) == 1
    clock.pass_seconds(61)
    assert rows(other, TENTATIVE) == 0, "a unit whose lease lapsed is aborted"
    collected = other.collect_garbage()
    assert (collected.lapsed_intents, len(collected.orphans)) == (1, 1)
    with pytest.raises(AnabranchError) as caught:
        work.commit()
    assert caught.value.id == "INTENT_LAPSED"
    assert other.headers(stream) == []


def test_a_lapsed_writer_cannot_commit_even_before_collection(log: Log, stream: StreamState, clock: FakeClock) -> None:
    work = log.unit_of_work(stream)
    work.append(rows_at(1))
    clock.pass_seconds(61)
    with pytest.raises(AnabranchError) as caught:
        work.commit()
    assert caught.value.id == "INTENT_LAPSED"


def test_a_writer_that_renews_does_not_lapse(log: Log, stream: StreamState, clock: FakeClock) -> None:
    work = log.unit_of_work(stream)
    work.append(rows_at(1))
    for _ in range(5):
        clock.pass_seconds(40)
        log.intents.renew()
        assert log.collect_garbage().orphans == ()
    assert work.commit().position == 1


def test_plain_appends_survive_a_pause_between_them(log: Log, stream: StreamState, clock: FakeClock) -> None:
    for _ in range(3):
        with log.unit_of_work(stream, single=True) as work:
            work.append(rows_at(1))
        clock.pass_seconds(3600)
        log.collect_garbage()
    assert rows(log) == 3
    assert files(log) == referred(log)


def test_collection_takes_orphans_and_nothing_else(open_log: Callable[..., Log], clock: FakeClock) -> None:
    dead, living = open_log(), open_log()
    stream = dead.create_stream(make_spec())
    with dead.unit_of_work(stream, single=True) as work:
        work.append(rows_at(1))
    orphan = dead.unit_of_work(stream)
    orphan.append(rows_at(2))
    clock.pass_seconds(50)
    busy = living.unit_of_work(stream)
    busy.append(rows_at(3))
    stranger = living.root / "data" / "notes.txt"
    stranger.write_text("not ours")
    before = files(living)
    assert living.collect_garbage().orphans == ()
    clock.pass_seconds(20)  # now the dead writer has been silent for too long, the busy one has not
    collected = living.collect_garbage()
    assert len(collected.orphans) == 1
    assert files(living) == before - set(collected.orphans)
    busy.commit()
    assert rows(living) == 2
    assert living.collect_garbage().orphans == ()
    assert files(living) == referred(living)
    assert stranger.exists()


def test_keyed_revisions(log: Log) -> None:
    stream = log.create_stream(make_spec("orders", key="user"))
    with log.unit_of_work(stream) as work:
        work.append(rows_at(1, user=1))
        work.replace(rows_at(2, user=1))
        work.delete([7, 8])
        work.delete([{"user": 9}])
    (header,) = log.headers(stream)
    assert (header.kind, header.rows) == (RunKind.REVISIONS, 5)
    found = [row for s in sorted(referred(log, "orders")) for row in pq.read_table(log.root / s).to_pylist()]
    found.sort(key=lambda row: row["_ordinal"])
    assert [(r["user"], r.get("_change_type")) for r in found] == [
        (1, None), (1, "update_postimage"), (7, "delete"), (8, "delete"), (9, "delete")
    ]  # fmt: skip


def test_revisions_by_key_need_a_key(log: Log, stream: StreamState) -> None:
    for call in ("replace", "delete"):
        with pytest.raises(AnabranchError) as caught:
            getattr(log.unit_of_work(stream), call)([1])
        assert caught.value.id == "NOT_KEYED"


def test_change_types_are_accepted_in_append(log: Log, stream: StreamState) -> None:
    changes = [{**rows_at(1)[0], "_change_type": "insert"}, {**rows_at(1)[0], "_change_type": "delete"}]
    with log.unit_of_work(stream) as work:
        work.append(changes)
    assert log.headers(stream)[0].kind is RunKind.REVISIONS


def test_without_a_key_a_deletion_is_a_whole_row(log: Log, stream: StreamState) -> None:
    with pytest.raises(AnabranchError) as caught, log.unit_of_work(stream) as work:
        work.append([{"user": 1, "campaign": "a", "ts": None, "_change_type": "delete"}])
    assert caught.value.id == "BAD_EVENT_TIME"


def test_quarantined_rows_are_committed_with_their_run(log: Log, spec: StreamSpec) -> None:
    stream = log.create_stream(spec)
    with log.unit_of_work(stream, on_bad_rows="quarantine") as work:
        work.append([*rows_at(1), {"user": 2, "campaign": "b", "ts": None}])
    (header,) = log.headers(stream)
    assert (header.rows, header.quarantined) == (1, 1)
    (aside,) = log.plan(spec.name, ReadRange(role=Role.QUARANTINE)).segments
    assert pq.read_table(log.root / aside.segment.path)["_reason"].to_pylist() == ["no event time"]
    assert rows(log) == 1


def test_an_empty_run_is_a_run(log: Log, stream: StreamState) -> None:
    with log.unit_of_work(stream) as work:
        work.append([])
    assert [h.rows for h in log.headers(stream)] == [0]


def test_collection_looks_at_each_ended_intent_once(log: Log, stream: StreamState, clock: FakeClock) -> None:
    """A neglected warehouse costs in proportion to what has ended: as many statements for each of twice as many."""

    def collect_after(units: int) -> int:
        for _ in range(units):
            with log.unit_of_work(stream) as work:
                work.append(rows_at(1))
        statements: list[str] = []
        listener = lambda *args: statements.append(args[2])  # noqa: E731
        sa.event.listen(log.catalog.engine, "before_cursor_execute", listener)
        log.collect_garbage()
        sa.event.remove(log.catalog.engine, "before_cursor_execute", listener)
        assert not any("LIKE" in statement for statement in statements)
        return len(statements)

    assert collect_after(60) <= collect_after(6)
    with log.catalog.read() as connection:
        left = connection.execute(sa.select(sa.func.count()).select_from(tables.intents)).scalar_one()
    assert left == 0, "what was looked at is forgotten"
    assert files(log) == referred(log)


def test_a_released_file_outlives_the_look_at_its_intent(log: Log, stream: StreamState, clock: FakeClock) -> None:
    for second in range(3):
        with log.unit_of_work(stream) as work:
            work.append(rows_at(second))
    before = files(log)
    with log.catalog.write() as connection:
        paths = connection.execute(sa.select(tables.segments.c.path)).scalars().all()
        connection.execute(tables.segments.delete())
        release_files(connection, list(paths), clock())
    assert log.collect_garbage().orphans == (), "readers that planned before may still want them"
    assert files(log) == before
    clock.pass_seconds(601)
    assert len(log.collect_garbage().released) == 3
    assert files(log) == set()
    assert not list((log.root / "data" / str(stream.id)).iterdir()), "directories go with their last file"
