"""Who has read how far: queries, subscriptions and retained points in the past.

A position is the last one that its holder no longer needs. Retention and the compactor leave alone what
comes after the least of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.model.errors import AnabranchError

KINDS = ("query", "subscription", "sink", "as_of", "hold")
# These let go of their positions themselves.
_OWN = ("query", "sink")


@dataclass(frozen=True)
class Position:
    name: str
    kind: str
    position: int
    ordinal: int | None = None  # of the position after it, the last item that is no longer needed


def set_position(
    connection: sa.Connection, stream_id: int, name: str, position: int, kind: str, ordinal: int | None = None
) -> None:
    """Record how far a holder has come."""
    if kind not in KINDS:
        raise AnabranchError(
            "BAD_ARGUMENT", place="kind=", need=f"one of {', '.join(KINDS)}", got=repr(kind), next_step="Choose one."
        )
    table, streams = tables.positions, tables.streams
    stream = connection.execute(sa.select(streams).where(streams.c.id == stream_id)).one()
    if not 0 <= position <= stream.last_position:
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=f"position {name!r} on stream {stream.name!r}",
            need=f"a position from 0 to {stream.last_position}",
            got=str(position),
            next_step="Choose a position that the log has reached.",
        )
    here = (table.c.stream_id == stream_id) & (table.c.name == name)
    held = connection.execute(sa.select(table.c.kind).where(here)).scalar()
    if held is not None and held != kind:
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=f"position {name!r} on stream {stream.name!r}",
            need=f"a name that no other kind of reader has, for a {kind}",
            got=f"the name of a {held}",
            next_step="Choose another name.",
        )
    if held is not None:
        connection.execute(table.update().where(here).values(position=position, ordinal=ordinal))
    else:
        connection.execute(
            table.insert().values(stream_id=stream_id, name=name, position=position, kind=kind, ordinal=ordinal)
        )


def acknowledge(connection: sa.Connection, stream_id: int, name: str, position: int, ordinal: int | None) -> None:
    """Move a subscription forward; it never goes back."""
    held = {p.name: p for p in positions_of(connection, stream_id)}.get(name)
    if held is None or held.kind != "subscription":
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=f"subscription {name!r}",
            need="a subscription that is there",
            got="one that was dropped meanwhile" if held is None else f"the name of a {held.kind}",
            next_step="Subscribe again.",
        )
    if (held.position, -1 if held.ordinal is None else held.ordinal) < (position, -1 if ordinal is None else ordinal):
        set_position(connection, stream_id, name, position, "subscription", ordinal)


def drop_position(connection: sa.Connection, stream_id: int, name: str) -> bool:
    """Let a holder go. Queries and sinks let go of their own positions themselves."""
    table = tables.positions
    here = (table.c.stream_id == stream_id) & (table.c.name == name) & table.c.kind.not_in(_OWN)
    return connection.execute(table.delete().where(here)).rowcount > 0


def positions_of(connection: sa.Connection, stream_id: int) -> Sequence[Position]:
    table = tables.positions
    rows = connection.execute(sa.select(table).where(table.c.stream_id == stream_id).order_by(table.c.name))
    return [Position(row.name, row.kind, row.position, row.ordinal) for row in rows]
