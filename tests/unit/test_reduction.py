"""Which partial results are reduced together, and that no amount of them is too much."""

from __future__ import annotations

import uuid

import sqlalchemy as sa

from anabranch.log import reduction, tables
from anabranch.log.commit import Output, commit_runs
from anabranch.log.log import Log
from anabranch.model.run import RunDraft, RunKind, Segment
from tests.conftest import START_US, make_spec

HOUR = 3_600_000_000
ROWS = 100


def segment(hour: int, rows: int = ROWS) -> Segment:
    low = START_US + hour * HOUR
    return Segment(f"data/{uuid.uuid4().hex}", rows, 10 * rows, low, low + HOUR - 1)


def store_of(log: Log, runs: int, hours: int) -> int:
    """A stream of partial results: runs that have a segment in each of some hours."""
    stream = log.create_stream(make_spec("partials"))
    drafts = [
        RunDraft(RunKind.PARTIALS, tuple(map(segment, range(hours))), bucket=number, stime=number)
        for number in range(1, runs + 1)
    ]
    with log.catalog.write() as connection:
        commit_runs(connection, [Output(stream.id, draft) for draft in drafts], clock=0)
    return stream.id


def reduce_once(log: Log, stream_id: int, most_rows: int) -> reduction.ReductionPlan | None:
    """One reduction, whose tasks merge the rows of each hour into as many as one run has."""
    with log.catalog.write() as connection:
        plan = reduction.plan_reduction(connection, stream_id, 1 << 40, most_rows=most_rows)
        if plan is not None:
            hours = sorted({(s.segment.event_min or 0) - START_US for s in plan.rewritten})
            written = [segment(low // HOUR) for low in hours]
            reduction.commit_reduction(connection, plan, written, None, 0)
    return plan


def counted(log: Log, stream_id: int) -> tuple[int, int, int]:
    """Runs, segments, and the rows that the newest header tells."""
    runs, segments = tables.runs, tables.segments
    with log.catalog.read() as connection:
        headers = connection.execute(sa.select(runs.c.rows).where(runs.c.stream_id == stream_id)).scalars().all()
        many = connection.execute(
            sa.select(sa.func.count()).select_from(segments).where(segments.c.stream_id == stream_id)
        ).scalar_one()
    return len(headers), many, headers[-1]


def test_what_is_more_than_one_reduction_takes_is_reduced_in_several(log: Log) -> None:
    stream_id = store_of(log, runs=reduction.FAN, hours=3)
    most = reduction.FAN * ROWS  # what overlaps in one hour
    plans = []
    for _ in range(5):
        plans.append(reduce_once(log, stream_id, most))
    assert [plan and (plan.rows, plan.folds) for plan in plans] == [
        (most, False),
        (most, False),
        (most, True),
        None,
        None,
    ]
    assert counted(log, stream_id) == (1, 3, 3 * ROWS)


def test_what_overlaps_is_rewritten_together_however_much_it_is(log: Log) -> None:
    stream_id = store_of(log, runs=reduction.FAN, hours=1)
    plan = reduce_once(log, stream_id, most_rows=ROWS)
    assert plan is not None
    assert (plan.rows, plan.folds) == (reduction.FAN * ROWS, True)
    assert counted(log, stream_id) == (1, 1, ROWS)


def test_runs_that_come_meanwhile_wait_for_the_next_reduction(log: Log) -> None:
    """A level that is rewritten in part goes on with what has come since: nothing is left out, nothing twice."""
    stream_id = store_of(log, runs=reduction.FAN, hours=2)
    reduce_once(log, stream_id, reduction.FAN * ROWS)
    draft = RunDraft(RunKind.PARTIALS, (segment(0), segment(1)), bucket=reduction.FAN + 1, stime=reduction.FAN + 1)
    with log.catalog.write() as connection:
        commit_runs(connection, [Output(stream_id, draft)], clock=0)
    while reduce_once(log, stream_id, reduction.FAN * ROWS) is not None:
        pass
    assert counted(log, stream_id) == (1, 2, 2 * ROWS)
