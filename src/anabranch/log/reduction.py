"""Keeping partial results few: which runs of a store are reduced together, and the commit of the result.

Every step adds a run of partial results. Eight neighbouring runs of the same level become one of the next
level, so a store has few runs for each level and few levels, however long it grows, and each partial
result is rewritten once per level. Where partial results have no event time, older runs that are not much larger go
with them. Within the runs only segments that overlap in event time are rewritten;
one that stands alone is kept as it is. Runs above the horizon, the last bucket up to which every query
has said its revisions, stay as they are: what was said of them may still be asked for.

One reduction rewrites a bounded number of rows. Where neighbouring runs have more that overlap, some stretches of
event time are rewritten now and the others next time; the headers fold with the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.gc import release_files
from anabranch.log.headers import insert_segments, logged_from, note_classes, segment_values
from anabranch.log.intents import end_intents, require_open
from anabranch.model.errors import AnabranchError
from anabranch.model.run import LoggedSegment, Segment

FAN = 8
MOST_ROWS = 20_000_000
# A run without event time is rewritten together with newer rows once they are one in so many of its own.
_RATIO = 4
_SMALL_ROWS = 4_096


@dataclass(frozen=True)
class ReductionPlan:
    """Neighbouring runs of one level, and the segments of them that must be rewritten."""

    stream_id: int
    first_position: int
    last_position: int
    level: int
    rewritten: tuple[LoggedSegment, ...]
    ids: tuple[int, ...]  # of the segments that are rewritten
    folds: bool = True  # whether this is all that there is to rewrite, so that the headers become one

    @property
    def rows(self) -> int:
        return sum(s.segment.rows for s in self.rewritten)


def plan_reduction(
    connection: sa.Connection, stream_id: int, horizon: int, fan: int = FAN, *, most_rows: int = MOST_ROWS
) -> ReductionPlan | None:
    """The lowest level that has enough runs below the horizon, a bucket; None if there is none."""
    runs, segments = tables.runs, tables.segments
    found = connection.execute(
        sa.select(runs.c.first_position, runs.c.position, runs.c.cause, runs.c.rows, runs.c.event_min)
        .where(runs.c.stream_id == stream_id, runs.c.bucket <= horizon)
        .order_by(runs.c.position)
    ).all()
    levels: dict[int, list[Any]] = {}
    for row in found:
        levels.setdefault(_level_of(row), []).append(row)
    for level, batch in sorted(levels.items()):
        if len(batch) < fan:
            continue
        batch = _with_small_elders(found, batch)
        first, last = batch[0].first_position, batch[-1].position
        rows = connection.execute(
            sa.select(segments).where(
                segments.c.stream_id == stream_id,
                segments.c.first_position >= first,
                segments.c.last_position <= last,
            )
        ).all()
        overlapping = [c for c in _overlapping([(row.id, logged_from(row)) for row in rows]) if len(c) > 1]
        clusters = _bounded(overlapping, most_rows)
        chosen = [item for cluster in clusters for item in cluster]
        ids, rewritten = tuple(number for number, _ in chosen), tuple(logged for _, logged in chosen)
        reached = max(level + 1, *(_level_of(row) for row in batch))
        return ReductionPlan(stream_id, first, last, reached, rewritten, ids, folds=len(clusters) == len(overlapping))
    return None


def _level_of(run: Any) -> int:
    return int((run.cause or {}).get("level", 0))


def _with_small_elders(runs: Sequence[Any], batch: Sequence[Any]) -> list[Any]:
    """Some runs, and those before them that are not much larger together, where every step reads all runs.

    That is so where partial results have no event time: there are as few rows as there are groups, so the runs'
    sizes must not grow with the number of steps. Elsewhere steps read what is at their times.
    """
    chosen, rows = list(batch), sum(row.rows for row in batch)
    elders = [row for row in runs if row.position < batch[0].first_position]
    while elders and elders[-1].event_min is None and batch[0].event_min is None:
        more = elders[-1].rows
        if more > max(_RATIO * rows, _SMALL_ROWS - rows):
            break
        chosen.insert(0, elders.pop())
        rows += more
    return chosen


Cluster = list[tuple[int, LoggedSegment]]


def _bounded(clusters: Sequence[Cluster], most_rows: int) -> list[Cluster]:
    """As many of the first clusters as have so few rows, and one at least: what overlaps is rewritten together."""
    chosen: list[Cluster] = []
    rows = 0
    for cluster in clusters:
        rows += sum(logged.segment.rows for _, logged in cluster)
        if chosen and rows > most_rows:
            break
        chosen.append(cluster)
    return chosen


def _overlapping(found: Sequence[tuple[int, LoggedSegment]]) -> list[Cluster]:
    """Segments whose event times meet, directly or through others, together."""
    clusters: list[Cluster] = []
    reach: int | None = None
    timeless = [item for item in found if item[1].segment.event_min is None]
    timed = [item for item in found if item[1].segment.event_min is not None]
    for item in sorted(timed, key=lambda i: (i[1].segment.event_min, i[0])):
        low, high = item[1].segment.event_min, item[1].segment.event_max
        assert low is not None
        assert high is not None
        if reach is None or low > reach:
            clusters.append([])
        clusters[-1].append(item)
        reach = high if reach is None else max(reach, high)
    return [*clusters, timeless] if timeless else clusters


def commit_reduction(
    connection: sa.Connection,
    plan: ReductionPlan,
    written: Sequence[Segment],
    intent_id: str | None,
    now: int,
) -> None:
    """Put the reduced segments in the place of the old ones, and fold the headers of their runs.

    It needs no lease: it changes no answer, and whoever comes second finds the segments gone.
    """
    if intent_id is not None:
        again = "Nothing was changed; the next reduction plans anew."
        require_open(connection, intent_id, now=now, place="reduction of partial results", next_step=again)
    segments = tables.segments
    old = connection.execute(sa.select(segments.c.path).where(segments.c.id.in_(plan.ids))).scalars().all()
    if len(old) != len(plan.ids):
        raise AnabranchError(
            "POSITION_CONFLICT",
            place=f"reduction of stream number {plan.stream_id}",
            need="the segments that were read",
            got="some that are gone",
            next_step="Nothing was changed; the next reduction plans anew.",
        )
    connection.execute(segments.delete().where(segments.c.id.in_(plan.ids)))
    release_files(connection, list(old), now)
    insert_segments(
        connection,
        [segment_values(s, plan.stream_id, intent_id, plan.first_position, plan.last_position) for s in written],
    )
    note_classes(connection, plan.stream_id, written)
    if plan.folds:
        _fold(connection, plan)
    if intent_id is not None:
        end_intents(connection, intent_id)


def _fold(connection: sa.Connection, plan: ReductionPlan) -> None:
    """One header for the runs of a plan, whose segments are all of the new level now."""
    segments, runs = tables.segments, tables.runs
    inside = (segments.c.stream_id == plan.stream_id) & (segments.c.first_position >= plan.first_position)
    inside &= segments.c.last_position <= plan.last_position
    positions = {"first_position": plan.first_position, "last_position": plan.last_position}
    connection.execute(segments.update().where(inside).values(positions))
    mine = (runs.c.stream_id == plan.stream_id) & runs.c.position.between(plan.first_position, plan.last_position)
    low, high = connection.execute(
        sa.select(sa.func.min(runs.c.event_min), sa.func.max(runs.c.event_max)).where(mine)
    ).one()
    rows = connection.execute(sa.select(sa.func.coalesce(sa.func.sum(segments.c.rows), 0)).where(inside)).scalar_one()
    connection.execute(runs.delete().where(mine, runs.c.position < plan.last_position))
    connection.execute(
        runs.update()
        .where(mine)
        .values(
            first_position=plan.first_position,
            event_min=low,
            event_max=high,
            rows=int(rows),
            cause={"level": plan.level},
        )
    )
