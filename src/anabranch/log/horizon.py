"""How far back the log is still needed, and by whom.

The horizon of a stream is the highest position that nothing needs any more as it is: the least of the
positions of queries, subscriptions and retained points, and of what lies before the first item of every
view. Headers are folded only at or below it, and the compactor rewrites only what is.

A query that has halted does not hold up the compaction of the base streams that it reads: their rows say their
positions in whatever segment they are, so it goes on from where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.views import POSITION, View, views_of


def compaction_horizon(connection: sa.Connection, stream: Any) -> int:
    """The highest position that may be compacted."""
    return _horizon(connection, stream, _halted(connection) if stream.role == "base" else [])


def horizon(connection: sa.Connection, stream: Any) -> int:
    """The highest position that nobody needs as it is."""
    return _horizon(connection, stream, [])


def _halted(connection: sa.Connection) -> list[str]:
    """The names under which queries that have halted hold positions, and partial results that only they use."""
    queries, links = tables.queries, tables.query_stores
    rows = connection.execute(sa.select(queries.c.id, queries.c.name, queries.c.halted)).all()
    halted = {row.id for row in rows if row.halted is not None}
    if not halted:
        return []
    users: dict[int, set[int]] = {}
    for link in connection.execute(sa.select(links)):
        users.setdefault(link.store_id, set()).add(link.query_id)
    names = [f"query {row.name}" for row in rows if row.id in halted]
    return names + [f"partials {store}" for store, its in users.items() if its <= halted]


def _horizon(connection: sa.Connection, stream: Any, without: Sequence[str]) -> int:
    table = tables.positions
    mine = (table.c.stream_id == stream.id) & table.c.name.not_in(without)
    least = connection.execute(sa.select(sa.func.min(table.c.position)).where(mine)).scalar()
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
