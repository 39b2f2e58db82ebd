"""Compaction, the catalog's side: which segments to rewrite, and the commit that replaces them.

The compactor takes the many small segments that lie at or below the horizon and has those of
neighbouring times rewritten into few large ones, sorted by event time, with each row's position,
ordinal, stamp and source as columns. Reads by position or event time give the same rows as before. The rewriting
itself is done by Spark (`anabranch.engine.compact`).

Upkeep compacts in tiers (`tiers`), so that a row is rewritten seldom, and leaves the headers to `folding`. Who asks for
a compaction by hand gets all small segments rewritten, and one header for everything up to the horizon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.buckets import BASE
from anabranch.log.gc import release_files
from anabranch.log.header_folding import fold_all
from anabranch.log.headers import insert_segments, logged_from, segment_values
from anabranch.log.horizon import compaction_horizon
from anabranch.log.intents import end_intents, require_open
from anabranch.log.intervals import class_mask
from anabranch.log.recording import record_for_folding
from anabranch.log.rewrite import GROUP_ROWS, group_segments
from anabranch.log.segments import SPAN_US
from anabranch.log.tiers import Cells, choose_groups
from anabranch.model.errors import AnabranchError
from anabranch.model.run import LoggedSegment, Role, Segment
from anabranch.model.stream import StreamSpec

# Groups of up to twice as many rows are written as one segment each, so all but the last are not small.
SMALL_ROWS = GROUP_ROWS // 2
LEAST_SEGMENTS = 8
MOST_SEGMENTS = 2_000


@dataclass(frozen=True)
class CompactionPlan:
    """Groups of segments, each to be rewritten as one, all at or below `up_to`."""

    stream_id: int
    up_to: int
    ids: tuple[int, ...] = ()
    groups: tuple[tuple[LoggedSegment, ...], ...] = ()
    folds: bool = True  # whether the headers up to there become one
    cells: Cells | None = None  # by which rewritten rows are kept apart

    @property
    def segments(self) -> tuple[LoggedSegment, ...]:
        return tuple(segment for group in self.groups for segment in group)

    @property
    def rows(self) -> int:
        return sum(s.segment.rows for s in self.segments)


def plan_compaction(connection: sa.Connection, stream: Any, least_segments: int = LEAST_SEGMENTS) -> CompactionPlan:
    """Choose all small segments below the horizon; none if they are too few to be worth it."""
    up_to = compaction_horizon(connection, stream)
    rows = _small(connection, stream.id, up_to)
    groups = [g for g in group_segments(map(logged_from, rows), _widest(stream)) if len(g) > 1]
    if sum(map(len, groups)) < least_segments:
        return CompactionPlan(stream.id, up_to)
    if len(rows) == MOST_SEGMENTS:
        up_to = min(up_to, rows[-1].last_position)
    return CompactionPlan(stream.id, up_to, *_chosen(rows, groups))


def plan_tiers(connection: sa.Connection, stream: Any) -> CompactionPlan:
    """Choose small segments below the horizon that are due by their size and age; headers stay as they are."""
    up_to = compaction_horizon(connection, stream)
    rows = _small(connection, stream.id, up_to)
    cells = Cells(stream.event_max, _widest(stream))
    groups = choose_groups(map(logged_from, rows), cells)
    return CompactionPlan(stream.id, up_to, *_chosen(rows, groups), folds=False, cells=cells)


def _small(connection: sa.Connection, stream_id: int, up_to: int) -> Sequence[Any]:
    segments = tables.segments
    return connection.execute(
        sa.select(segments)
        .where(
            segments.c.stream_id == stream_id,
            segments.c.last_position <= up_to,
            segments.c.role == str(Role.ROWS),
            segments.c.reference.is_(False),
            segments.c.rows < SMALL_ROWS,
        )
        .order_by(segments.c.last_position, segments.c.id)
        .limit(MOST_SEGMENTS)
    ).all()


def _widest(stream: Any) -> int | None:
    """Segments that retention will let go of at different times must not be joined."""
    spec = StreamSpec.from_json(stream.spec)
    if spec.history_rows is not None:
        return SPAN_US
    return None if spec.history is None else max(SPAN_US, spec.history // 8)


def _chosen(
    rows: Sequence[Any], groups: Sequence[Sequence[LoggedSegment]]
) -> tuple[tuple[int, ...], tuple[tuple[LoggedSegment, ...], ...]]:
    ids = {row.path: row.id for row in rows}
    return tuple(ids[s.segment.path] for group in groups for s in group), tuple(map(tuple, groups))


def commit_compaction(
    connection: sa.Connection, plan: CompactionPlan, written: Sequence[Segment], intent_id: str | None, now: int
) -> None:
    """Replace the old segments by the new ones, and end the intent: all or nothing."""
    table = tables.segments
    assert sum(s.rows for s in written) == plan.rows, "compaction must write the rows that it read"
    place = f"compaction of stream number {plan.stream_id}"
    if intent_id is not None:
        again = "Run the compaction again; nothing was committed."
        require_open(connection, intent_id, now=now, place=place, next_step=again)
    _require_unchanged(connection, plan, place)
    if plan.segments:
        connection.execute(table.delete().where(table.c.id.in_(plan.ids)))
        insert_segments(
            connection, [segment_values(s, plan.stream_id, intent_id, *s.options["positions"]) for s in written]
        )
        release_files(connection, [s.segment.path for s in plan.segments], now)
        _recount_classes(connection, plan.stream_id)
    if plan.folds:
        fold_all(connection, plan.stream_id, _foldable(connection, plan, now))
    if intent_id is not None:
        end_intents(connection, intent_id)


def _recount_classes(connection: sa.Connection, stream_id: int) -> None:
    """Which width classes still occur, now that the segments are few: searches by event time look for each."""
    table, streams = tables.segments, tables.streams
    found = connection.execute(
        sa.select(table.c.width_class)
        .where(table.c.stream_id == stream_id, table.c.width_class.is_not(None))
        .distinct()
    ).scalars()
    mask = class_mask(iter(found))
    connection.execute(streams.update().where(streams.c.id == stream_id).values(width_classes=mask))


def _require_unchanged(connection: sa.Connection, plan: CompactionPlan, place: str) -> None:
    """Nobody has removed what was read, or come to need what is about to be folded."""
    table, streams = tables.segments, tables.streams
    stream = connection.execute(sa.select(streams).where(streams.c.id == plan.stream_id)).first()
    found = connection.execute(sa.select(table.c.path).where(table.c.id.in_(plan.ids))).scalars().all()
    if stream is None or sorted(found) != sorted(s.segment.path for s in plan.segments):
        got = "some that retention, another compactor or a drop has removed meanwhile"
    elif compaction_horizon(connection, stream) < plan.up_to:
        got = "a reader that has come meanwhile and still needs them"
    else:
        return
    raise AnabranchError(
        "POSITION_CONFLICT",
        place=place,
        need="the segments that it read, with nobody else needing them",
        got=got,
        next_step="Run the compaction again; nothing was committed.",
    )


def _foldable(connection: sa.Connection, plan: CompactionPlan, now: int) -> int:
    """Headers of base streams fold once their bucket is recorded: it takes what they say of sources and stamps."""
    streams = tables.streams
    record_for_folding(connection, now)
    stream = connection.execute(sa.select(streams).where(streams.c.id == plan.stream_id)).one()
    return min(plan.up_to, int(stream.bucket_position)) if stream.role == BASE else plan.up_to
