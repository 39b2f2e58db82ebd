"""Retention: rows leave the log when nobody can need them any more.

A segment is removed when its whole event-time range lies below progress minus the stream's history
bound, and no position, view or subscription still reaches it. Streams without a history bound keep
everything. Headers stay, and say how many of their rows are gone. Files taken by reference are let go,
not deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import Catalog
from anabranch.log.gc import release_files
from anabranch.log.horizon import in_view
from anabranch.log.views import views_of
from anabranch.model.run import Role
from anabranch.model.stream import StreamSpec


@dataclass(frozen=True)
class Retained:
    """What retention let go of in one stream."""

    segments: int = 0
    rows: int = 0
    size: int = 0


def retain(catalog: Catalog, stream_id: int, now: int) -> Retained:
    """Apply the history bound of a stream."""
    with catalog.write() as connection:
        stream = connection.execute(sa.select(tables.streams).where(tables.streams.c.id == stream_id)).one()
        history = StreamSpec.from_json(stream.spec).history
        if history is None or stream.progress is None:
            return Retained()
        gone = _removable(connection, stream, stream.progress - history)
        if gone:
            _remove(connection, stream, gone, now)
        return Retained(len(gone), sum(s.rows for s in gone), sum(s.size for s in gone))


def _removable(connection: sa.Connection, stream: Any, before: int) -> list[Any]:
    segments, positions = tables.segments, tables.positions
    held = connection.execute(
        sa.select(sa.func.min(positions.c.position)).where(positions.c.stream_id == stream.id)
    ).scalar()
    conditions = [
        segments.c.stream_id == stream.id,
        segments.c.role == str(Role.ROWS),
        segments.c.overlay_id.is_(None),
        segments.c.event_max < before,
    ]
    if held is not None:
        conditions.append(segments.c.last_position <= held)
    conditions += [sa.not_(in_view(stream, view)) for view in views_of(connection, stream.id)]
    return list(connection.execute(sa.select(segments).where(*conditions)))


def _remove(connection: sa.Connection, stream: Any, gone: list[Any], now: int) -> None:
    segments, runs, streams = tables.segments, tables.runs, tables.streams
    for segment in gone:
        cover = connection.execute(
            sa.select(sa.func.min(runs.c.position)).where(
                runs.c.stream_id == stream.id, runs.c.position >= segment.last_position
            )
        ).scalar_one()
        connection.execute(
            runs.update()
            .where(runs.c.stream_id == stream.id, runs.c.position == cover)
            .values(trimmed=runs.c.trimmed + segment.rows)
        )
        connection.execute(segments.delete().where(segments.c.id == segment.id))
    release_files(connection, [s.path for s in gone if not s.reference], now)
    connection.execute(
        streams.update()
        .where(streams.c.id == stream.id)
        .values(trimmed_position=max(stream.trimmed_position, *(s.last_position for s in gone)))
    )
    _note_trimmed(connection, stream.id, [(s.event_min, s.event_max) for s in gone])


def _note_trimmed(connection: sa.Connection, stream_id: int, gone: list[tuple[int, int]]) -> None:
    """Remember which stretches of event time are no longer whole, as few of them as will do."""
    table = tables.trimmed
    known = connection.execute(sa.select(table.c.event_min, table.c.event_max).where(table.c.stream_id == stream_id))
    merged: list[tuple[int, int]] = []
    for low, high in sorted([*gone, *((row.event_min, row.event_max) for row in known)]):
        if merged and (low <= merged[-1][1] or _nothing_between(connection, stream_id, merged[-1][1], low)):
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    connection.execute(table.delete().where(table.c.stream_id == stream_id))
    connection.execute(
        table.insert(), [{"stream_id": stream_id, "event_min": low, "event_max": high} for low, high in merged]
    )


def _nothing_between(connection: sa.Connection, stream_id: int, low: int, high: int) -> bool:
    """Whether no row is left between two stretches, so that they may as well be one."""
    segments = tables.segments
    return (
        connection.execute(
            sa.select(segments.c.id)
            .where(
                segments.c.stream_id == stream_id,
                segments.c.overlay_id.is_(None),
                segments.c.event_max > low,
                segments.c.event_min < high,
            )
            .limit(1)
        ).first()
        is None
    )
