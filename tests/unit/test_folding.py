"""Folding of the catalog: one mark a minute of the last day, then one an hour, and the past exact or an error."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import pytest
import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.commit import Output
from anabranch.log.folding import DAY_US, HOUR_US, MINUTE_US, Grid, Mark, grids, groups_to_fold
from anabranch.log.leases import Lease
from anabranch.log.log import Log, StreamState
from anabranch.log.register import NewQuery
from anabranch.log.steps import Move, Reading
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunDraft, RunId, RunKind
from tests.conftest import SECOND, FakeClock, make_spec, rows_at

EVERY = 1 << 62


class Warehouse:
    """A base stream and a query over it, stepped without an engine."""

    def __init__(self, log: Log, clock: FakeClock) -> None:
        self.log, self.clock = log, clock
        self.base = log.create_stream(make_spec("base"))
        log.register.create_queries([NewQuery(make_spec("derived"), {})])
        self.derived = log.stream("derived")
        self.lease: Lease = log.leases.acquire()
        self.bucket: int | None = None
        self.ends: dict[int, tuple[int, int, int]] = {}  # of each bucket: stream time, positions of base and derived

    def step(self, seconds: float) -> None:
        self.clock.pass_seconds(seconds)
        with self.log.unit_of_work(self.base, single=True) as work:
            work.append(rows_at(1))
        made = self.log.register.record_bucket(self.lease)
        assert made is not None
        (query,) = self.log.register.queries()
        end = self.log.stream("base").last_position
        draft = RunDraft(RunKind.ROWS, bucket=made.number, stime=made.stime, progress=made.number)
        self.log.register.commit_step(
            self.lease,
            [Move("query", query.id, self.bucket, made.number, released=made.number)],
            [Reading(self.base.id, "query derived", end)],
            [Output(self.derived.id, draft)],
        )
        self.bucket = made.number
        self.ends[made.number] = (made.stime, end, self.log.stream("derived").last_position)

    def fold(self, needed: int = EVERY) -> None:
        """All there is to fold, as the chore does it."""
        upkeep = self.log.upkeep
        for grid in grids(self.clock()):
            after = 0
            while (came := upkeep.fold_buckets(self.lease, grid, after, needed)) is not None and came > after:
                after = came
            cursors, before = {self.base.id: 0, self.derived.id: 0}, {}
            while cursors != before:
                before = cursors
                cursors = cursors | upkeep.fold_runs(self.lease, grid, cursors)

    def buckets(self) -> list[int]:
        with self.log.catalog.read() as connection:
            return list(
                connection.execute(sa.select(tables.buckets.c.number).order_by(tables.buckets.c.number)).scalars()
            )

    def headers(self, stream: StreamState) -> list[tuple[int, int]]:
        return [(h.first_position, h.position) for h in self.log.headers(stream)]


@pytest.fixture
def warehouse(log: Log, clock: FakeClock) -> Warehouse:
    return Warehouse(log, clock)


def test_what_belongs_together() -> None:
    grid = Grid(10, 40)
    marks = [Mark(n, stime) for n, stime in enumerate([1, 5, 9, 12, 38, 39, 41], 1)]
    assert groups_to_fold(marks, grid, 99, whole=True) == [[1, 2, 3], [4], [5, 6]]
    assert groups_to_fold(marks, grid, 2, whole=True) == [], "a stretch is folded once all of it may be"
    assert groups_to_fold(marks, grid, 3, whole=True) == [[1, 2, 3]]
    assert groups_to_fold(marks[:4], grid, 99, whole=False) == [[1, 2, 3]], "the last may have more"
    assert groups_to_fold(marks[:2], grid, 99, whole=False) == [[1, 2]], "but something is always done"


def test_one_bucket_a_minute_and_then_one_an_hour(warehouse: Warehouse, clock: FakeClock) -> None:
    for _ in range(90):
        warehouse.step(20)
    warehouse.step(2 * DAY_US / SECOND)
    for _ in range(40):
        warehouse.step(20)
    stimes = {number: end[0] for number, end in warehouse.ends.items()}
    warehouse.fold()
    left = warehouse.buckets()
    assert left[-1] == warehouse.bucket
    assert left == [n for n in warehouse.ends if n in left], "no bucket that there was not"
    hours = {stimes[n] // HOUR_US for n in stimes if stimes[n] < clock() - DAY_US}
    minutes = {stimes[n] // MINUTE_US for n in stimes if stimes[n] >= clock() - DAY_US}
    open_minute = [n for n in stimes if stimes[n] // MINUTE_US == clock() // MINUTE_US]
    assert len(left) == len(hours) + len(minutes) + len(open_minute) - 1
    for _, found in groupby(left, key=lambda n: stimes[n] // HOUR_US):
        assert sum(stimes[n] < clock() - DAY_US for n in found) <= 1
    assert len(warehouse.headers(warehouse.base)) <= len(left) + len(hours)


def test_what_stays_is_as_it_was(warehouse: Warehouse, clock: FakeClock) -> None:
    for number in range(60):
        warehouse.step(7 if number % 9 else 4000)
    clock.pass_seconds(3 * DAY_US / SECOND)
    warehouse.fold()
    left = warehouse.buckets()
    assert 1 < len(left) < 20
    with warehouse.log.catalog.read() as connection:
        bounds = connection.execute(sa.select(tables.bucket_bounds).order_by(tables.bucket_bounds.c.bucket)).all()
    assert [row.bucket for row in bounds] == left
    assert [row.start_position for row in bounds] == [0, *(row.end_position for row in bounds[:-1])]
    for number in left:
        stime, base, derived = warehouse.ends[number]
        assert warehouse.log.register.bounds_at(warehouse.base.id, number).end == base
        assert warehouse.log.moments.position_at(warehouse.base.id, stime) == base
        assert warehouse.log.moments.position_at(warehouse.derived.id, stime) == derived
        assert warehouse.log.moments.before_bucket(warehouse.derived.id, number + 1) == derived
        assert warehouse.log.moments.first_after(warehouse.derived.id, number) in (derived + 1, None)


def test_marks_of_sources_stay_with_their_bucket(warehouse: Warehouse, clock: FakeClock) -> None:
    """A branch at a bucket that stays goes on from the marks of then: each source's last one at or before it."""
    exact: dict[int, dict[str, int]] = {}
    for number in range(30):
        with warehouse.log.unit_of_work(warehouse.base, single=True, source="ab"[number % 7 == 0]) as work:
            work.append(rows_at(number))
        warehouse.step(600)
        exact[number + 1] = _marks(warehouse.log, number + 1)
    clock.pass_seconds(3 * DAY_US / SECOND)
    warehouse.fold()
    left = warehouse.buckets()
    assert 2 < len(left) < 10
    assert {number: _marks(warehouse.log, number) for number in left} == {number: exact[number] for number in left}
    with warehouse.log.catalog.read() as connection:
        rows = connection.execute(sa.select(tables.bucket_marks)).all()
    assert {row.bucket for row in rows} <= set(left)
    assert len(rows) <= 3 * len(left)


def _marks(log: Log, bucket: int) -> dict[str, int]:
    """The marks as of a bucket."""
    with log.catalog.read() as connection:
        table = tables.bucket_marks
        rows = connection.execute(sa.select(table).where(table.c.bucket <= bucket).order_by(table.c.bucket)).all()
    return {row.source: row.mark for row in rows}


def test_between_two_that_stay_is_an_error(warehouse: Warehouse, clock: FakeClock) -> None:
    """`position_at` gives None, which the engine reports as HISTORY_GONE: never the position of another moment."""
    for _ in range(60):
        warehouse.step(20)
    clock.pass_seconds(3 * DAY_US / SECOND)
    exact = dict(warehouse.ends)
    warehouse.fold()
    left = set(warehouse.buckets())
    for number, (stime, base, derived) in exact.items():
        found = (warehouse.log.moments.position_at(warehouse.base.id, stime),
                 warehouse.log.moments.position_at(warehouse.derived.id, stime))  # fmt: skip
        assert found == ((base, derived) if number in left else (None, None)), number
    first = exact[1][0]
    assert warehouse.log.moments.position_at(warehouse.base.id, first - 1) == 0, "before all of it is exact"


def test_positions_of_a_folded_stream_are_never_too_late(warehouse: Warehouse, clock: FakeClock) -> None:
    """Who reads by bucket begins at or before what it asked for, and leaves out by row what it has."""
    for _ in range(30):
        warehouse.step(20)
    clock.pass_seconds(3 * DAY_US / SECOND)
    exact = dict(warehouse.ends)
    warehouse.fold()
    for number, (_, _, derived) in exact.items():
        assert warehouse.log.moments.bucket_of(warehouse.derived.id, derived) <= number
        assert warehouse.log.moments.before_bucket(warehouse.derived.id, number) <= derived - 1


@pytest.mark.parametrize("needed", [17, 30])
def test_nothing_above_what_is_needed_is_folded(warehouse: Warehouse, clock: FakeClock, needed: int) -> None:
    for _ in range(40):
        warehouse.step(20)
    clock.pass_seconds(3 * DAY_US / SECOND)
    warehouse.fold(needed)
    assert [n for n in warehouse.buckets() if n > needed] == list(range(needed + 1, 41))
    assert warehouse.log.register.bounds_at(warehouse.base.id, needed).end == warehouse.ends[needed][1]


def test_a_subscription_holds_the_headers_of_its_stream(warehouse: Warehouse, clock: FakeClock) -> None:
    for _ in range(40):
        warehouse.step(20)
    clock.pass_seconds(3 * DAY_US / SECOND)
    warehouse.log.hold(warehouse.derived, "reader", 20, "subscription")
    warehouse.fold()
    above = [(first, last) for first, last in warehouse.headers(warehouse.derived) if last > 20]
    assert above == [(n, n) for n in range(21, 41)]
    assert len(warehouse.headers(warehouse.base)) <= 3


def test_portions_smaller_than_a_stretch_come_to_the_same(
    warehouse: Warehouse, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(50):
        warehouse.step(1)
    clock.pass_seconds(3 * DAY_US / SECOND)
    monkeypatch.setattr("anabranch.log.folding.fold_buckets.__defaults__", (7,))
    monkeypatch.setattr("anabranch.log.header_folding.fold_runs.__defaults__", (7,))
    warehouse.fold()
    assert warehouse.buckets() == [50]
    assert warehouse.headers(warehouse.base) == [(1, 50)]
    assert warehouse.headers(warehouse.derived) == [(1, 50)]


def test_retries_of_folded_runs_are_no_ops(warehouse: Warehouse, clock: FakeClock) -> None:
    log = warehouse.log
    for sequence in (1, 2, 5):
        with log.unit_of_work(warehouse.base, single=True, run_id=RunId("far", sequence)) as work:
            work.append(rows_at(sequence))
    warehouse.step(1)
    clock.pass_seconds(3 * DAY_US / SECOND)
    warehouse.fold()
    assert len(warehouse.headers(warehouse.base)) == 1
    for sequence, known in ((1, True), (2, True), (3, False), (5, True)):
        with log.unit_of_work(warehouse.base, single=True, run_id=RunId("far", sequence)) as work:
            work.append(rows_at(sequence))
            assert work.commit().duplicate is known


def test_a_replaced_engine_folds_nothing(open_log: Callable[..., Log], clock: FakeClock) -> None:
    warehouse = Warehouse(open_log(), clock)
    for _ in range(10):
        warehouse.step(1)
    clock.pass_seconds(DAY_US / SECOND)
    open_log().leases.acquire("another")
    with pytest.raises(AnabranchError) as caught:
        warehouse.fold()
    assert caught.value.id == "FENCED"
    assert warehouse.buckets() == list(range(1, 11))
