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

KINDS = ("query", "subscription", "as_of", "hold")


@dataclass(frozen=True)
class Position:
    name: str
    kind: str
    position: int


def set_position(connection: sa.Connection, stream_id: int, name: str, position: int, kind: str) -> None:
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
        connection.execute(table.update().where(here).values(position=position))
    else:
        connection.execute(table.insert().values(stream_id=stream_id, name=name, position=position, kind=kind))


def drop_position(connection: sa.Connection, stream_id: int, name: str) -> bool:
    """Let a holder go. Queries let go of their own positions themselves."""
    table = tables.positions
    here = (table.c.stream_id == stream_id) & (table.c.name == name) & (table.c.kind != "query")
    return connection.execute(table.delete().where(here)).rowcount > 0


def positions_of(connection: sa.Connection, stream_id: int) -> Sequence[Position]:
    table = tables.positions
    rows = connection.execute(sa.select(table).where(table.c.stream_id == stream_id).order_by(table.c.name))
    return [Position(row.name, row.kind, row.position) for row in rows]
