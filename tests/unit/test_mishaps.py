"""What can go wrong between a plan and its commit, and must not lose or double a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import Catalog
from anabranch.log.compaction import CompactionPlan
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadRange
from anabranch.log.rewrite import piece_of, rewrite
from anabranch.log.segments import SegmentLayout
from anabranch.log.units import UnitOfWork
from anabranch.log.views import declare_view
from anabranch.model.errors import AnabranchError
from anabranch.model.run import Segment
from tests.conftest import SECOND, START_US, FakeClock, make_spec, rows_at
from tests.unit.test_commit import append

HOUR = 3600


def users(log: Log, name: str = "impsns", **wanted: Any) -> list[int]:
    plan = log.plan(name, ReadRange(**wanted))
    return sorted(u for s in plan.segments for u in pq.read_table(log.root / s.segment.path)["user"].to_pylist())


def put(log: Log, stream: StreamState, *numbers: int) -> None:
    for number in numbers:
        with log.unit_of_work(stream, single=True) as work:
            work.append(rows_at(number, user=number))


class Compactor:
    """A compactor whose plan, work and commit a test can pull apart."""

    def __init__(self, log: Log, stream: StreamState) -> None:
        self.log, self.stream = log, stream
        self.plan: CompactionPlan = log.plan_compaction(stream, least_segments=2)
        self.intent = log.intents.begin(stream.id)
        directory = log.storage.directory(stream.id, self.intent.id)
        log.storage.make_directory(directory)
        layout = SegmentLayout(str(log.root), directory, "ts")
        pieces = [list(map(piece_of, group)) for group in self.plan.groups]
        self.written: list[Segment] = [s for group in pieces for s in rewrite(layout, stream.spec.schema, group)]

    def commit(self) -> None:
        self.log.commit_compaction(self.plan, self.written, self.intent.id)
        self.log.intents.forget(self.intent)


def test_a_compactor_that_lapsed_commits_nothing(open_log: Callable[..., Log], clock: FakeClock) -> None:
    log, other = open_log(), open_log()
    stream = log.create_stream(make_spec())
    put(log, stream, *range(8))
    compactor = Compactor(log, stream)
    clock.pass_seconds(120)
    other.collect_garbage(grace_us=0)
    with pytest.raises(AnabranchError) as caught:
        compactor.commit()
    assert caught.value.id == "INTENT_LAPSED"
    assert users(log) == list(range(8))


def test_a_slow_compactor_takes_nobody_elses_segments(log: Log) -> None:
    stream = log.create_stream(make_spec())
    put(log, stream, *range(8))
    slow, fast = Compactor(log, stream), Compactor(log, stream)
    fast.commit()
    put(log, stream, *range(100, 107))
    log.collect_garbage(grace_us=0)
    with pytest.raises(AnabranchError) as caught:
        slow.commit()
    assert caught.value.id == "POSITION_CONFLICT"
    assert users(log) == [*range(8), *range(100, 107)]


def test_a_reader_that_comes_during_compaction_is_not_passed_over(log: Log) -> None:
    stream = log.create_stream(make_spec())
    put(log, stream, *range(8))
    compactor = Compactor(log, stream)
    log.hold(stream, "subscriber", 3)
    with pytest.raises(AnabranchError) as caught:
        compactor.commit()
    assert caught.value.id == "POSITION_CONFLICT"
    assert len(log.headers(stream)) == 8


def test_compaction_comes_to_rest(log: Log) -> None:
    stream = log.create_stream(make_spec())
    put(log, stream, *range(0, 40 * HOUR, HOUR))
    Compactor(log, stream).commit()
    assert len(log.plan("impsns", ReadRange()).segments) == 1
    assert log.plan_compaction(stream, least_segments=2).segments == ()


def test_a_retry_of_a_folded_run_is_a_no_op(log: Log) -> None:
    stream = log.create_stream(make_spec())
    for sequence in (1, 2, 3, 7):
        append(log, stream, sequence, run_id=("far", sequence))
    Compactor(log, stream).commit()
    assert len(log.headers(stream)) == 1
    assert append(log, stream, 2, run_id=("far", 2)).duplicate
    assert not append(log, stream, 5, run_id=("far", 5)).duplicate
    assert log.stream("impsns").rows == 5


def test_an_interrupt_after_the_commit_loses_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = log.create_stream(make_spec())
    put(log, stream, 1)
    _raise_after_commit(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        put(log, stream, 2)
    monkeypatch.undo()
    log.collect_garbage(grace_us=0)
    assert users(log) == [1, 2]


def test_an_interrupt_before_the_commit_leaves_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = log.create_stream(make_spec())

    def interrupted(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("anabranch.log.units.commit_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        put(log, stream, 2)
    monkeypatch.undo()
    assert users(log) == []
    assert list((log.root / "data").rglob("*.parquet")) == []


def _raise_after_commit(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Once, after the first commit of a run: the transaction is through, but its caller hears of trouble."""
    real = Catalog.write
    raised = []

    @contextmanager
    def write(self: Catalog) -> Iterator[sa.Connection]:
        with real(self) as connection:
            yield connection
            committing = connection.execute(sa.select(sa.func.count()).select_from(tables.runs)).scalar_one() > 1
        if committing and not raised:
            raised.append(error)
            raise error

    monkeypatch.setattr(Catalog, "write", write)


def _lost() -> AnabranchError:
    return AnabranchError("CATALOG_UNREACHABLE", place="catalog", need="an answer", got="connection lost", next_step="")


def test_a_connection_lost_at_the_commit_is_looked_into(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = log.create_stream(make_spec())
    put(log, stream, 1)
    _raise_after_commit(monkeypatch, _lost())
    put(log, stream, 2)
    monkeypatch.undo()
    assert users(log) == [1, 2]


def test_an_uncertain_commit_says_how_to_be_certain(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = log.create_stream(make_spec())
    put(log, stream, 1)
    _raise_after_commit(monkeypatch, _lost())

    def unreachable(self: UnitOfWork, header: object) -> Any:
        raise _lost()

    monkeypatch.setattr(UnitOfWork, "_find_out", unreachable)
    with pytest.raises(AnabranchError) as caught:
        put(log, stream, 2)
    monkeypatch.undo()
    assert caught.value.id == "COMMIT_UNCERTAIN"
    assert f"run {log.entry_point}:2" in caught.value.next_step
    assert users(log) == [1, 2]


def test_an_uncertain_commit_with_an_identity_is_sent_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = log.create_stream(make_spec())
    put(log, stream, 1)
    _raise_after_commit(monkeypatch, _lost())
    monkeypatch.setattr(UnitOfWork, "_find_out", lambda self, header: None)
    with pytest.raises(AnabranchError) as caught:
        append(log, stream, 2, run_id=("web", 7))
    monkeypatch.undo()
    assert "run_id=('web', 7)" in caught.value.next_step
    assert append(log, stream, 2, run_id=("web", 7)).duplicate
    assert log.stream("impsns").rows == 2


def test_a_failed_speculation_does_not_stand_in_the_way(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = log.create_stream(make_spec())
    work = log.unit_of_work(stream, speculative=True)
    work.append(rows_at(1))

    def fails(*args: Any, **options: Any) -> None:
        raise RuntimeError("in the transaction")

    monkeypatch.setattr("anabranch.log.units.commit_run", fails)
    with pytest.raises(RuntimeError):
        work.commit()
    monkeypatch.undo()
    assert users(log, tentative=True) == []


def test_a_failed_append_does_not_disturb_other_threads(
    log: Log, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = log.create_stream(make_spec())
    slow = log.unit_of_work(stream, single=True)
    slow.append(rows_at(1))

    def fails(*args: Any, **options: Any) -> None:
        raise RuntimeError("in the transaction")

    monkeypatch.setattr("anabranch.log.units.commit_run", fails)
    with pytest.raises(RuntimeError):
        put(log, stream, 2)
    monkeypatch.undo()
    for _ in range(5):
        clock.pass_seconds(20)
        log.intents.renew()
    assert slow.commit().position == 1


def test_deletions_by_key_are_in_every_stretch(log: Log) -> None:
    stream = log.create_stream(make_spec(key="user", history="1 hour"))
    put(log, stream, 1, 9 * 86_400)
    deletion = {"user": 1, "campaign": None, "ts": None, "_change_type": "delete"}
    with log.unit_of_work(stream) as work:
        work.append([{**rows_at(5, user=2)[0], "_change_type": "insert"}, deletion])

    def deletions() -> int:
        plan = log.plan("impsns", ReadRange(from_time=START_US + 9 * 86_400 * SECOND))
        found = [pq.read_table(log.root / s.segment.path).to_pylist() for s in plan.segments]
        return sum(row.get("_change_type") == "delete" for rows in found for row in rows)

    assert deletions() == 1
    assert log.retain(stream).rows == 2, "the old rows, not the deletion"
    assert deletions() == 1
    Compactor(log, stream).commit()
    assert deletions() == 1


def test_a_view_stays_readable_when_what_is_around_it_goes(log: Log) -> None:
    stream = log.create_stream(make_spec(history="1 hour"))
    put(log, stream, *range(0, 20 * HOUR, HOUR))
    log.create_view(declare_view("v", "impsns", "2026-01-01T05:00:00Z", "2026-01-01T06:00:00Z"))
    assert log.retain(stream).rows == 17
    plan = log.plan("impsns", log.view_range(log.view("v")))
    assert sum(s.segment.rows for s in plan.segments) == 1
    for start in (4, 6):
        with pytest.raises(AnabranchError) as caught:
            users(log, from_time=START_US + start * HOUR * SECOND, to_time=START_US + 7 * HOUR * SECOND)
        assert caught.value.id == "HISTORY_GONE"


def test_a_directory_and_a_catalog_must_belong_together(tmp_path: Path, postgres: Callable[[], str]) -> None:
    url = postgres()
    with Log(tmp_path / "one", url) as log:
        log.create_stream(make_spec())
    for place in ("two", "three"):
        if place == "three":
            Log(tmp_path / place).close()
        with pytest.raises(AnabranchError) as caught:
            Log(tmp_path / place, url)
        assert caught.value.id == "WAREHOUSE_MISMATCH"
    Log(tmp_path / "one", url, create=False).close()


def test_an_engine_that_closes_aborts_its_speculations(open_log: Callable[..., Log]) -> None:
    log, other = open_log(), open_log()
    stream = log.create_stream(make_spec())
    log.unit_of_work(stream, speculative=True).append(rows_at(1))
    assert users(other, tentative=True) == [1]
    log.close()
    assert users(other, tentative=True) == []
    other.collect_garbage()
    assert list((other.root / "data").rglob("*.parquet")) == []


def test_a_speculative_retry_is_not_seen_twice(log: Log) -> None:
    stream = log.create_stream(make_spec())
    append(log, stream, 1, run_id=("far", 1))
    with log.unit_of_work(stream, speculative=True, run_id=("far", 1)) as work:
        work.append(rows_at(1))
        assert users(log, tentative=True) == [1]
    assert log.stream("impsns").rows == 1


def test_an_intent_is_not_ended_under_another_thread(log: Log, clock: FakeClock) -> None:
    stream = log.create_stream(make_spec())
    slow = log.unit_of_work(stream, single=True)
    slow.append(rows_at(1))
    clock.pass_seconds(50)  # so old that the next append begins another one
    put(log, stream, 2)
    assert slow.commit().position == 2


def test_an_intent_that_lapsed_elsewhere_is_replaced(open_log: Callable[..., Log], clock: FakeClock) -> None:
    log, other = open_log(), open_log()
    stream = log.create_stream(make_spec())
    put(log, stream, 1)
    clock.pass_seconds(61)
    other.collect_garbage()
    clock.pass_seconds(-61)
    log.intents.renew()
    put(log, stream, 2)
    assert users(log) == [1, 2]


def test_many_new_warehouses_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        for log in pool.map(lambda n: Log(tmp_path / str(n)), range(6)):
            log.create_stream(make_spec())
            log.close()


@pytest.mark.parametrize("source", [5, "", "a\0b", "x" * 300])
def test_bad_sources(log: Log, source: Any) -> None:
    stream = log.create_stream(make_spec())
    for call in (
        lambda: append(log, stream, 1, source=source),
        lambda: log.punctuate(stream, START_US, source),
        lambda: log.boundary(stream, source),
    ):
        with pytest.raises(AnabranchError) as caught:
            call()
        assert caught.value.id == "BAD_ARGUMENT"
    assert log.headers(stream) == []


def test_absurd_punctuation(log: Log) -> None:
    stream = log.create_stream(make_spec())
    with pytest.raises(AnabranchError) as caught:
        log.punctuate(stream, 2**60)
    assert caught.value.id == "BAD_EVENT_TIME"
    assert log.stream("impsns").progress is None


def test_a_subscription_cannot_take_a_querys_name(log: Log) -> None:
    stream = log.create_stream(make_spec())
    log.hold(stream, "q", 0, kind="query")
    with pytest.raises(AnabranchError) as caught:
        log.hold(stream, "q", 0)
    assert caught.value.id == "BAD_ARGUMENT"


def test_compaction_does_not_keep_old_rows_alive(log: Log) -> None:
    stream = log.create_stream(make_spec(history="4 hours"))
    put(log, stream, *range(0, 48 * HOUR, HOUR // 4))
    Compactor(log, stream).commit()
    compacted = len(log.plan("impsns", ReadRange()).segments)
    assert compacted < 100
    assert log.retain(stream).rows >= 4 * 42
    assert log.plan_compaction(stream, least_segments=2).segments == (), "and it comes to rest"


def test_what_is_whole_can_be_read_after_a_fold(log: Log) -> None:
    stream = log.create_stream(make_spec(history="1 hour"))
    put(log, stream, *range(0, 10 * HOUR, HOUR))
    log.retain(stream)
    Compactor(log, stream).commit()
    assert len(log.headers(stream)) == 1
    assert users(log, first_position=9) == [8 * HOUR, 9 * HOUR]
    for gone in ({"first_position": 8}, {"last_position": 3}, {"to_time": START_US + HOUR * SECOND}):
        with pytest.raises(AnabranchError) as caught:
            users(log, **gone)
        assert caught.value.id == "HISTORY_GONE"
    assert users(log) == [8 * HOUR, 9 * HOUR], "what is held, when nothing is asked for by name"


def test_uncommitted_rows_come_after_every_position(log: Log) -> None:
    stream = log.create_stream(make_spec())
    put(log, stream, 1, 2)
    with log.unit_of_work(stream, speculative=True) as work:
        work.append(rows_at(3, user=3))
        assert users(log, tentative=True, first_position=2) == [2, 3]
        assert users(log, tentative=True, last_position=1) == [1]


@pytest.mark.parametrize(
    ("file", "content"), [("anabranch.json", b"{"), ("catalog.sqlite", b"SQLite format 3\x00" + b"\x07" * 4000)]
)
def test_broken_files_of_a_warehouse(tmp_path: Path, file: str, content: bytes) -> None:
    Log(tmp_path).close()
    (tmp_path / file).write_bytes(content)
    with pytest.raises(AnabranchError) as caught:
        Log(tmp_path)
    assert caught.value.id in ("FILE_UNREADABLE", "CATALOG_UNREACHABLE")
