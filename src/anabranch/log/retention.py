"""Retention: rows leave the log when nobody can need them any more.

What is promised is logical: so far behind progress, or so many rows back, what came can be read again, whichever
files are there. A segment is removed when its whole event-time range lies below all of these:

    declared   the history bound of a stream that people declared, from progress at the last recorded bucket
    readers    for each query and each store that reads the stream, what it can still have to read again. Its next
               bucket ignores whatever would need more than that: progress before that bucket, less the
               normalised bound. One that is behind, or has halted, needs more; one that has not begun needs all.

and when no position, view or subscription still reaches it. The log knows no diagrams, so the engine says what readers
need, and which readers it has asked. Readers only ever move forward, so what they needed when they were asked is
never too little later; but a reader that has come since may need more, and then nothing is removed until it is asked
too. That is checked where the segments are removed, so retention may be called at any time, from any process.

Streams without a history bound keep everything that people have put into them; what queries have said is kept for
those who read it. Headers stay, and say how many of their rows are gone; so do the stretches of event time and
of positions that are no longer whole. Files taken by reference are let go, not deleted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.buckets import BASE
from anabranch.log.catalog import Catalog
from anabranch.log.gc import release_files
from anabranch.log.horizon import in_view
from anabranch.log.intervals import merge_ranges
from anabranch.log.views import EVENT, POSITION, views_of
from anabranch.model.run import Role
from anabranch.model.stream import StreamSpec

# So many segments in a transaction, so that writers need not wait long.
MOST = 1_000
# Event times before and after all that there are.
ALL, NOTHING = -(1 << 62), 1 << 62


@dataclass(frozen=True)
class Readers:
    """What the readers of streams need: of each stream that has some, the event time before which none reads it."""

    asked: frozenset[tuple[str, int]] = frozenset()  # all queries and stores that there were
    needs: Mapping[int, int] = field(default_factory=dict)  # by stream


NO_READERS = Readers()


@dataclass(frozen=True)
class Retained:
    """What retention let go of."""

    segments: int = 0
    rows: int = 0
    size: int = 0
    more: bool = False  # whether there is more to let go of, or readers have come that must be asked

    def __add__(self, other: Retained) -> Retained:
        return Retained(
            self.segments + other.segments, self.rows + other.rows, self.size + other.size, self.more or other.more
        )


def retain(catalog: Catalog, stream_id: int, now: int, readers: Readers = NO_READERS, most: int = MOST) -> Retained:
    """Let go of what nobody needs of a stream, in one transaction, at most so many segments."""
    with catalog.read() as connection:
        if not _due(connection, stream_id, readers, 1):
            return Retained()
    with catalog.write() as connection:
        if _unasked(connection, readers):
            return Retained(more=True)
        gone = _due(connection, stream_id, readers, most)
        if gone:
            _remove(connection, _row(connection, stream_id), gone, now)
    return _counted(gone, more=len(gone) == most)


def _due(connection: sa.Connection, stream_id: int, readers: Readers, most: int) -> list[Any]:
    stream = _row(connection, stream_id)
    limit = _limit(stream, readers)
    if limit <= ALL:
        return []
    return _removable(connection, stream, tables.segments.c.event_max < limit, most)


def _limit(stream: Any, readers: Readers) -> int:
    """The event time before which nobody needs a stream."""
    needed = readers.needs.get(stream.id)
    spec = StreamSpec.from_json(stream.spec)
    if stream.role != BASE:
        return ALL if needed is None else needed
    if spec.history_rows is not None:
        return ALL if needed is None else needed
    # While there has been no bucket, there is nobody who was promised anything by buckets.
    progress = stream.progress if needed is None and stream.bucket_progress is None else stream.bucket_progress
    if spec.history is None or progress is None:
        return ALL
    return int(min(progress - spec.history, NOTHING if needed is None else needed))


def _unasked(connection: sa.Connection, readers: Readers) -> bool:
    """Whether there are queries or stores that nobody has asked what they need."""
    found = {("query", number) for number in connection.execute(sa.select(tables.queries.c.id)).scalars()}
    found |= {("store", number) for number in connection.execute(sa.select(tables.stores.c.id)).scalars()}
    return not found <= readers.asked


def trim(catalog: Catalog, stream_id: int, bucket: int, now: int) -> Retained:
    """Let go of what a derived stream has said up to a bucket, whatever its event time."""
    runs = tables.runs
    said = sa.select(sa.func.max(runs.c.position)).where(runs.c.stream_id == stream_id, runs.c.bucket <= bucket)
    which = tables.segments.c.last_position <= said.scalar_subquery()
    total = Retained()
    while True:
        with catalog.write() as connection:
            stream = _row(connection, stream_id)
            gone = _removable(connection, stream, which, MOST)
            if gone:
                _remove(connection, stream, gone, now)
        total += _counted(gone)
        if len(gone) < MOST:
            return total


def _counted(gone: Sequence[Any], *, more: bool = False) -> Retained:
    return Retained(len(gone), sum(s.rows for s in gone), sum(s.size for s in gone), more)


def _row(connection: sa.Connection, stream_id: int) -> Any:
    return connection.execute(sa.select(tables.streams).where(tables.streams.c.id == stream_id)).one()


def _removable(connection: sa.Connection, stream: Any, which: Any, most: int) -> list[Any]:
    segments, positions = tables.segments, tables.positions
    held = connection.execute(
        sa.select(sa.func.min(positions.c.position)).where(positions.c.stream_id == stream.id)
    ).scalar()
    conditions = [
        segments.c.stream_id == stream.id,
        segments.c.role == str(Role.ROWS),
        segments.c.overlay_id.is_(None),
        which,
    ]
    if held is not None:
        conditions.append(segments.c.last_position <= held)
    conditions += [sa.not_(in_view(stream, view)) for view in views_of(connection, stream.id)]
    query = sa.select(segments).where(*conditions).order_by(segments.c.event_max, segments.c.id).limit(most)
    return list(connection.execute(query))


def _remove(connection: sa.Connection, stream: Any, gone: list[Any], now: int) -> None:
    segments, streams = tables.segments, tables.streams
    connection.execute(segments.delete().where(segments.c.id.in_([s.id for s in gone])))
    release_files(connection, [s.path for s in gone if not s.reference], now)
    rows = sum(s.rows for s in gone)
    connection.execute(streams.update().where(streams.c.id == stream.id).values(trimmed=streams.c.trimmed + rows))
    _note_in_headers(connection, stream.id, gone)
    _note_stretches(connection, stream.id, POSITION, [(s.first_position, s.last_position) for s in gone])
    timed = [(s.event_min, s.event_max) for s in gone if s.event_min is not None]  # results of all time have none
    if timed:
        _note_stretches(connection, stream.id, EVENT, timed)


def _note_in_headers(connection: sa.Connection, stream_id: int, gone: list[Any]) -> None:
    """Each header says how many of its rows are gone. Where a segment has rows of several, nobody knows of which."""
    runs = tables.runs
    low, high = min(s.first_position for s in gone), max(s.last_position for s in gone)
    headers = connection.execute(
        sa.select(runs.c.position, runs.c.rows, runs.c.trimmed)
        .where(runs.c.stream_id == stream_id, runs.c.position >= low, runs.c.first_position <= high)
        .order_by(runs.c.position)
    ).all()
    ends = [header.position for header in headers]
    left = [header.rows - header.trimmed for header in headers]
    counts: Counter[int] = Counter()
    for segment in sorted(gone, key=lambda s: s.last_position - s.first_position):  # those of one run first
        rows = segment.rows
        for at in range(bisect_left(ends, segment.first_position), bisect_left(ends, segment.last_position) + 1):
            some = min(rows, left[at])
            left[at] -= some
            rows -= some
            counts[ends[at]] += some
    here = (runs.c.stream_id == stream_id) & (runs.c.position == sa.bindparam("header"))
    connection.execute(
        runs.update().where(here).values(trimmed=runs.c.trimmed + sa.bindparam("more")),
        [{"header": position, "more": more} for position, more in counts.items()],
    )


def _note_stretches(connection: sa.Connection, stream_id: int, axis: str, gone: list[tuple[int, int]]) -> None:
    """Remember which stretches are no longer whole, as few of them as will do."""
    table = tables.trimmed
    mine = (table.c.stream_id == stream_id) & (table.c.axis == axis)
    known = [(row.low, row.high) for row in connection.execute(sa.select(table).where(mine))]
    stretches = merge_ranges([*known, *gone])
    if axis == EVENT:
        stretches = _joined(stretches, _left_below(connection, stream_id, stretches[-1][1]))
    connection.execute(table.delete().where(mine))
    connection.execute(
        table.insert(),
        [{"stream_id": stream_id, "axis": axis, "low": low, "high": high} for low, high in stretches],
    )


def _left_below(connection: sa.Connection, stream_id: int, high: int) -> list[tuple[int, int]]:
    """The ranges of the segments that are still there and begin below `high`: few, since most have gone."""
    segments = tables.segments
    rows = connection.execute(
        sa.select(segments.c.event_min, segments.c.event_max).where(
            segments.c.stream_id == stream_id, segments.c.overlay_id.is_(None), segments.c.event_min < high
        )
    )
    return merge_ranges([(row.event_min, row.event_max) for row in rows])


def _joined(stretches: list[tuple[int, int]], left: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches with nothing left between them may as well be one."""
    joined = stretches[:1]
    for low, high in stretches[1:]:
        between = any(a < low and b > joined[-1][1] for a, b in left)
        if between:
            joined.append((low, high))
        else:
            joined[-1] = (joined[-1][0], high)
    return joined
