"""Ablations of the engine: with one of its parts switched off, a law that we name must fail."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import anabranch as ab
from anabranch.engine import answers, kernels, reduce, saying
from anabranch.engine.kernel import SparkKernel
from anabranch.log import reduction, tables
from anabranch.log.headers import logged_from
from anabranch.log.register import Register
from anabranch.log.units import UnitOfWork
from tests.ablations.registry import Setting, without
from tests.laws.cases import START as ZERO
from tests.laws.cases import Action, Case, CaseQuery
from tests.laws.play import assert_replays, assert_same, open_case, oracle, table


def row(minute: float, k: str = "a", n: int = 1) -> tuple[Any, ...]:
    return (k, n, 1, 0.5, None, ZERO + timedelta(minutes=minute))


QUERY = CaseQuery(
    "q",
    "CREATE STREAM q AS SELECT k, count(*) AS c, sum(n) AS s, cq_close(*) AS t FROM s <SLICES '1 minute'> GROUP BY k",
    "SELECT k, count(*) AS c, sum(n) AS s, window.end AS t FROM rows GROUP BY k, window(ts, '1 minute')",
    (),
    frozenset(),
)
STORY = (
    Action("append", (row(0.5), row(1.5), row(2.5))),
    Action("append", (row(0.2, n=5), row(9))),
    Action("abort", (row(0.3, n=100),), commit=False),
    Action("append", (row(1.1), row(12))),
)


def tell(engine: ab.Engine) -> None:
    """Late rows, an aborted unit that was answered before it ended, and a step after each."""
    stream = open_case(engine, Case(0, 0, None, [QUERY], list(STORY)))
    for action in STORY:
        if action.do == "append":
            stream.append(list(action.rows))
            engine.advance()
            continue
        work = stream.unit_of_work(speculative=True)
        work.append(list(action.rows))
        engine.advance()
        stream.append([row(3.5)])
        engine.advance()
        work.abort()
        engine.advance()


def the_table_is_the_batch_answer(engine: ab.Engine) -> None:
    committed = [*STORY, Action("append", (row(3.5),))]
    case = Case(0, 0, None, [QUERY], committed)
    closed = [r for r in oracle(engine, case, QUERY) if r[3] <= row(12)[5].replace(tzinfo=None)]
    assert_same(table(engine, "q"), closed, "the table")


def the_changes_replay(engine: ab.Engine) -> None:
    assert_replays(engine, "q")


LAWS = (the_table_is_the_batch_answer, the_changes_replay)


def broken(place: Path, patch: pytest.MonkeyPatch, off: Any) -> set[str]:
    """The laws that do not hold after the story, told without a part."""
    failed = set()
    with ab.connect(place) as engine:
        with patch.context() as part:
            if off is not None:
                off(part)
            tell(engine)
        for law in LAWS:
            try:
                law(engine)
            except AssertionError:
                failed.add(law.__name__)
    return failed


STORY_TOLD = Setting("late rows and an aborted unit", broken, spark=True, proof=True)


def spark_alone(patch: pytest.MonkeyPatch) -> None:
    """What is switched off is a part of the kernel that every query can run on."""
    patch.setattr(kernels, "installed", lambda: False)


def repair_off(patch: pytest.MonkeyPatch) -> None:
    """Closed windows that new rows touch are left as they were said."""
    patch.setattr(saying, "dirty", lambda box, touched, before, after: reach_dirty(box, lambda _: (), before, after))


def reach_dirty(*args: Any) -> Any:
    from anabranch.diagram.reach import dirty

    return dirty(*args)


def abort_ignored(patch: pytest.MonkeyPatch) -> None:
    """A unit of work that aborts stays in the log."""
    patch.setattr(UnitOfWork, "abort", lambda self: self.commit() if self._done is None else None)


def undo_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What was said of a unit that aborted is never taken back."""
    from anabranch.engine.tentative import Tentative

    patch.setattr(Tentative, "undo", lambda self, now: 0)


def tentative_partials_reduced(patch: pytest.MonkeyPatch) -> None:
    """The reducer takes what is tentative for stable."""
    plan = reduction.plan_reduction

    def merging(self: Register, stream_id: int, horizon: int) -> Any:
        segments = tables.segments
        with self.catalog.write() as connection:
            last = connection.execute(
                sa.select(sa.func.max(segments.c.last_position)).where(segments.c.stream_id == stream_id)
            ).scalar()
            tentative = (segments.c.stream_id == stream_id) & segments.c.overlay_id.is_not(None)
            stable = {"first_position": last, "last_position": last, "overlay_id": None}
            connection.execute(segments.update().where(tentative).values(**stable))
            found = connection.execute(sa.select(segments).where(segments.c.stream_id == stream_id)).all()
            made = plan(connection, stream_id, horizon, fan=1)
            inside = [row for row in found if made and made.first_position <= row.first_position <= made.last_position]
            chosen = tuple(logged_from(row) for row in inside)
            return made and replace(made, rewritten=chosen, ids=tuple(row.id for row in inside))

    def merged(*args: Any, also: Any = (), **options: Any) -> Any:
        return original(*args, also=["0L AS _bucket"], **options)

    spark_alone(patch)
    original = reduce.merged
    patch.setattr(Register, "plan_reduction", merging)
    patch.setattr(reduce, "merged", merged)


def before_is_after(patch: pytest.MonkeyPatch) -> None:
    """What was said before a bucket is computed with the bucket in it."""
    spark_alone(patch)
    original = answers.Answers.__init__

    def begin(self: answers.Answers, versions: Any, *args: Any, **options: Any) -> None:
        last = versions[-1].bucket
        original(self, [replace(v, bucket=last) if v.bucket >= 0 else v for v in versions], *args, **options)

    patch.setattr(answers.Answers, "__init__", begin)


def late_rows_dropped(patch: pytest.MonkeyPatch) -> None:
    """As other systems do: rows below progress are left out."""
    spark_alone(patch)
    original = SparkKernel.scan

    def scan(self: SparkKernel, leaves: Any, leaf: Any, feed: Any, **options: Any) -> Any:
        found = original(self, leaves, leaf, feed, **options)
        progress = feed.bounds[0].progress
        if progress is None or feed.bounds[0].start == 0:
            return found
        return replace(
            found, sql=f"SELECT * FROM {found.source} WHERE UNIX_MICROS(_event_time) >= {progress - 540_000_000}L"
        )

    patch.setattr(SparkKernel, "scan", scan)


ABLATIONS = (
    without(repair_off, STORY_TOLD, "the_changes_replay"),
    without(abort_ignored, STORY_TOLD, "the_table_is_the_batch_answer"),
    without(undo_forgotten, STORY_TOLD, "the_changes_replay"),
    without(tentative_partials_reduced, STORY_TOLD, "the_table_is_the_batch_answer", "the_changes_replay"),
    without(before_is_after, STORY_TOLD, "the_changes_replay"),
    without(late_rows_dropped, STORY_TOLD, "the_table_is_the_batch_answer"),
)
