"""How far back the log is still needed, and by whom.

The horizon of a stream is the highest position that nothing needs any more as it is: the least of the
positions of queries, subscriptions and retained points, and of what lies before the first item of every
view. The compactor rewrites only at or below it.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.views import POSITION, View, views_of


def horizon(connection: sa.Connection, stream: Any) -> int:
    """The highest position that may be compacted."""
    table = tables.positions
    least = connection.execute(sa.select(sa.func.min(table.c.position)).where(table.c.stream_id == stream.id)).scalar()
    limits: list[int] = [stream.last_position if least is None else least]
    for view in views_of(connection, stream.id):
        first = _first_position(connection, stream, view)
        if first is not None:
            limits.append(first - 1)
    return min(limits)


def _first_position(connection: sa.Connection, stream: Any, view: View) -> int | None:
    if view.axis == POSITION:
        return max(view.start.resolve(stream.last_position) or 1, 1)
    segments = tables.segments
    return connection.execute(
        sa.select(sa.func.min(segments.c.first_position)).where(
            segments.c.stream_id == stream.id, segments.c.overlay_id.is_(None), in_view(stream, view)
        )
    ).scalar()


def in_view(stream: Any, view: View) -> Any:
    """The condition under which a segment can hold rows of a view."""
    segments = tables.segments
    newest = stream.last_position if view.axis == POSITION else stream.event_max
    start, end = view.start.resolve(newest), view.end.resolve(newest)
    if view.axis == POSITION:
        low = segments.c.last_position >= (start or 1)
        return low if end is None else low & (segments.c.first_position <= end)
    conditions = []
    if start is not None:
        conditions.append(segments.c.event_max >= start)
    if end is not None:
        conditions.append(segments.c.event_min < end)
    return segments.c.width_class.is_(None) | sa.and_(sa.true(), *conditions)
