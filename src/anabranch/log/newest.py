"""The newest rows of a stream, as far as the catalog knows them: between which event times the n-th newest lies.

A history bound in rows holds the newest n rows of a log: those of the latest event times, insertions and deletions
alike, among what came up to a position. The event time of the n-th is the limit; rows of the same instant are held too.
Headers of segments tell a range for it without a look inside: how it is cut into segments does not change
the limit, only how closely it is known. Only segments of the newest rows are looked at, however long the log is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.retention import ALL
from anabranch.model.run import Role

_AT_ONCE = 256


def newest_between(connection: sa.Connection, stream_id: int, rows: int, end: int) -> tuple[int, int] | None:
    """The event times between which the n-th newest row up to a position lies; None if there are not so many."""
    runs, streams = tables.runs, tables.streams
    later = sa.select(sa.func.sum(runs.c.rows)).where(runs.c.stream_id == stream_id, runs.c.position > end)
    ever = connection.execute(sa.select(streams.c.rows).where(streams.c.id == stream_id)).scalar_one()
    if ever - int(connection.execute(later).scalar() or 0) < rows:
        return None
    seen, whole = 0, 0  # rows that may count, and those that do
    high, lows = ALL, []
    for segment in _newest_first(connection, stream_id, end):
        if seen < rows:
            seen, high = seen + segment.rows, segment.event_max
        if segment.last_position <= end:
            whole += segment.rows
            lows.append((segment.event_min, segment.rows))
        if whole >= rows:
            return _lowest(lows, rows), high
    return ALL, high  # some of them came together with later ones


def _lowest(lows: list[tuple[int, int]], rows: int) -> int:
    """The event time from which on segments that begin there have so many rows together."""
    counted = 0
    for low, many in sorted(lows, reverse=True):
        counted += many
        if counted >= rows:
            return low
    raise AssertionError("there are so many rows")


def _newest_first(connection: sa.Connection, stream_id: int, end: int) -> Iterator[Any]:
    table, found = tables.segments, 0
    mine = [table.c.stream_id == stream_id, table.c.role == str(Role.ROWS), table.c.event_max.is_not(None)]
    query = sa.select(table).where(*mine, table.c.overlay_id.is_(None), table.c.first_position <= end)
    while True:
        page = query.order_by(table.c.event_max.desc(), table.c.id).limit(_AT_ONCE).offset(found)
        rows = connection.execute(page).all()
        yield from rows
        found += len(rows)
        if len(rows) < _AT_ONCE:
            return
