"""Which segments a reader must open.

A plan is made from the catalog alone, in one consistent view of it. It names the segments that can hold
rows of the asked positions and event times, and no others. A segment that only partly belongs is
filtered by row when it is read. Deletions by key have no event time; they may concern any stretch of
it, so every plan over event time includes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.headers import logged_from
from anabranch.log.intents import OPEN
from anabranch.log.intervals import merge_ranges, starts_to_search
from anabranch.log.views import EVENT, POSITION
from anabranch.model.errors import AnabranchError
from anabranch.model.run import LoggedSegment, Role
from anabranch.model.stream import StreamSpec
from anabranch.model.time import instant_text


@dataclass(frozen=True)
class ReadRange:
    """What is asked for: positions inclusive, event times from inclusive to exclusive."""

    first_position: int | None = None
    last_position: int | None = None
    from_time: int | None = None
    to_time: int | None = None
    tentative: bool = False
    role: Role = Role.ROWS
    held: bool = False  # what is held will do; otherwise a range must be whole

    @property
    def timed(self) -> bool:
        """Whether event times matter; rows set aside have none to go by."""
        return self.role is Role.ROWS and (self.from_time is not None or self.to_time is not None)


@dataclass(frozen=True)
class ReadPlan:
    """The segments to open, and the row filters that remain."""

    spec: StreamSpec
    range: ReadRange
    segments: tuple[LoggedSegment, ...]

    @property
    def filters_positions(self) -> bool:
        """Whether some segment has rows of positions that were not asked for."""
        low, high = self.range.first_position, self.range.last_position
        return any(
            s.compacted
            and s.first_position is not None
            and s.last_position is not None
            and ((low is not None and s.first_position < low) or (high is not None and s.last_position > high))
            for s in self.segments
        )


def plan_read(connection: sa.Connection, stream: Any, wanted: ReadRange, now: int) -> ReadPlan:
    """Plan a read of a stream, given its row of the catalog."""
    _require_history(connection, stream, wanted)
    spec = StreamSpec.from_json(stream.spec)
    table = tables.segments
    conditions = [table.c.stream_id == stream.id, table.c.role == str(wanted.role)]
    positions = _position_conditions(wanted)
    if wanted.timed:
        # One index range scan per width class: cheap, however long the log is.
        queries = [
            sa.select(table).where(*conditions, table.c.overlay_id.is_(None), *positions, *stretch)
            for stretch in _stretches(stream, spec, wanted)
        ]
    else:
        in_log = positions or [table.c.last_position >= 1]
        queries = [sa.select(table).where(*conditions, *those) for those in _plain_and_compacted(wanted, in_log)]
    rows = connection.execute(sa.union_all(*queries) if len(queries) > 1 else queries[0]).all() if queries else []
    found = [logged_from(row) for row in sorted(rows, key=lambda row: (row.last_position, row.id))]
    if wanted.tentative and wanted.last_position is None:  # what is not committed comes after every position
        found += _overlay_segments(connection, conditions, stream, spec, wanted, now)
    return ReadPlan(spec, wanted, tuple(found))


_ALL_TIME = 1 << 62  # longer than any stretch between two event times


def plan_times(
    connection: sa.Connection,
    stream: Any,
    times: Sequence[tuple[int, int]],
    *,
    now: int,
    tentative: bool = False,
    whole_from: int | None = None,
    role: Role = Role.ROWS,
) -> list[LoggedSegment]:
    """The segments that can hold rows at some event times: few queries for many times.

    From `whole_from` on, nothing may be missing; what is older is given as far as it is held.
    """
    if whole_from is not None:
        _require_whole(connection, stream, times, whole_from)
    spec = StreamSpec.from_json(stream.spec)
    times = sorted(times)
    found: dict[int, Any] = {}
    for width, _ in starts_to_search(stream.width_classes, None):
        # Where the times lie closer than segments are wide, one range scan finds those of many.
        for low, high in merge_ranges([(low - (1 << width), high) for low, high in times]):
            given = {"stream": stream.id, "width": width, "low": low, "high": high, "role": str(role)}
            found |= {row.id: row for row in connection.execute(_BEGINNING_AT, given)}
    all_time = any(high - low >= _ALL_TIME for low, high in times)
    if spec.key or all_time:
        found |= {row.id: row for row in connection.execute(_WITHOUT_TIME, {"stream": stream.id, "role": str(role)})}
    rows = sorted(found.values(), key=lambda row: (row.last_position, row.id))
    logged = [logged_from(row) for row in rows]
    if tentative and times:
        first = None if all_time else min(low for low, _ in times)
        last = None if all_time else max(high for _, high in times) + 1
        wanted = ReadRange(None, None, first, last, tentative, held=True)
        table = tables.segments
        conditions = [table.c.stream_id == stream.id, table.c.role == str(Role.ROWS)]
        logged += _overlay_segments(connection, conditions, stream, spec, wanted, now)
    return [segment for segment in logged if segment.segment.meets(times)]


def _in_log(*conditions: Any) -> Any:
    table = tables.segments
    own = [table.c.stream_id == sa.bindparam("stream"), table.c.role == sa.bindparam("role")]
    return sa.select(table).where(*own, table.c.overlay_id.is_(None), *conditions)


_BEGINNING_AT = _in_log(
    tables.segments.c.width_class == sa.bindparam("width"),
    tables.segments.c.event_min >= sa.bindparam("low"),
    tables.segments.c.event_min <= sa.bindparam("high"),
)
_WITHOUT_TIME = _in_log(tables.segments.c.width_class.is_(None))


def _position_conditions(wanted: ReadRange) -> list[Any]:
    table = tables.segments
    conditions: list[Any] = []
    if wanted.first_position is not None:
        conditions.append(table.c.last_position >= wanted.first_position)
    if wanted.last_position is not None:
        conditions.append(table.c.first_position <= wanted.last_position)
    return conditions


def _plain_and_compacted(wanted: ReadRange, conditions: list[Any]) -> list[list[Any]]:
    """Two range scans where there is an upper end: a segment of one run ends with it; of others there are few."""
    table = tables.segments
    if wanted.last_position is None:
        return [conditions]
    plain = [table.c.first_position == table.c.last_position, table.c.last_position <= wanted.last_position]
    compacted = [table.c.first_position < table.c.last_position]  # as the index of those says it
    return [[*conditions, *plain], [*conditions, *compacted]]


def _stretches(stream: Any, spec: StreamSpec, wanted: ReadRange) -> list[list[Any]]:
    """For each width class, the conditions on segments that can hold the event times asked for."""
    table = tables.segments
    stretches: list[list[Any]] = []
    for width, start in starts_to_search(stream.width_classes, wanted.from_time):
        conditions: list[Any] = [table.c.width_class == width]
        if wanted.from_time is not None:
            conditions += [table.c.event_min >= start, table.c.event_max >= wanted.from_time]
        if wanted.to_time is not None:
            conditions.append(table.c.event_min < wanted.to_time)
        stretches.append(conditions)
    if spec.key:
        stretches.append([table.c.width_class.is_(None)])
    return stretches


def _overlay_segments(
    connection: sa.Connection, conditions: list[Any], stream: Any, spec: StreamSpec, wanted: ReadRange, now: int
) -> list[LoggedSegment]:
    """Segments of speculative units of work whose leases still run."""
    table, overlay, intents = tables.segments, tables.overlay, tables.intents
    query = (
        sa.select(table)
        .join(overlay, overlay.c.id == table.c.overlay_id)
        .join(intents, intents.c.id == overlay.c.generation)
        .where(*conditions, intents.c.state == OPEN, intents.c.expires_at > now)
        .order_by(overlay.c.id, table.c.id)
    )
    if wanted.timed:
        query = query.where(sa.or_(sa.false(), *(sa.and_(*s) for s in _stretches(stream, spec, wanted))))
    return [logged_from(row) for row in connection.execute(query)]


def _require_history(connection: sa.Connection, stream: Any, wanted: ReadRange) -> None:
    """A range that is asked for by name must be whole: rows that are gone are never quietly missing."""
    if stream.trimmed == 0 or wanted.held:
        return
    if wanted.first_position is not None or wanted.last_position is not None:
        high = _trimmed_until(connection, stream, POSITION, wanted.first_position, wanted.last_position)
        if high is not None:
            raise _gone(stream, f"positions after {high}, since rows of positions up to {high} are gone",
                        f"positions {wanted.first_position or 1} to {wanted.last_position or 'the newest'}",
                        "Start later, or read by event time.")  # fmt: skip
    if wanted.timed:
        until = None if wanted.to_time is None else wanted.to_time - 1
        high = _trimmed_until(connection, stream, EVENT, wanted.from_time, until)
        if high is not None:
            raise _gone(stream, f"event times after {instant_text(high)}, since rows up to there are gone",
                        f"event times from {instant_text(wanted.from_time) or 'the beginning'}",
                        "Start later, or declare a longer history before rows are removed.")  # fmt: skip


def _require_whole(connection: sa.Connection, stream: Any, times: Sequence[tuple[int, int]], whole_from: int) -> None:
    """Rows that a bound still promises are never quietly missing."""
    if stream.trimmed == 0 or not times:
        return
    wanted = [(max(low, whole_from), high) for low, high in times if high >= whole_from]
    table = tables.trimmed
    gone = connection.execute(
        sa.select(table.c.low, table.c.high).where(
            table.c.stream_id == stream.id, table.c.axis == EVENT, table.c.high >= whole_from
        )
    ).all()
    missing = [g.high for g in gone if any(low <= g.high and g.low <= high for low, high in wanted)]
    if missing:
        raise _gone(stream, f"all rows from {instant_text(wanted[0][0])} on, which a history bound promises",
                    f"a log without some rows up to {instant_text(max(missing))}",
                    "Drop the query that reads them and create it again: it takes what is held.")  # fmt: skip


def _trimmed_until(connection: sa.Connection, stream: Any, axis: str, low: int | None, high: int | None) -> int | None:
    """The end of the last stretch that is no longer whole and that a range touches."""
    table = tables.trimmed
    query = sa.select(sa.func.max(table.c.high)).where(table.c.stream_id == stream.id, table.c.axis == axis)
    if low is not None:
        query = query.where(table.c.high >= low)
    if high is not None:
        query = query.where(table.c.low <= high)
    return connection.execute(query).scalar()


def _gone(stream: Any, need: str, got: str, next_step: str) -> AnabranchError:
    return AnabranchError("HISTORY_GONE", place=f"stream {stream.name!r}", need=need, got=got, next_step=next_step)
