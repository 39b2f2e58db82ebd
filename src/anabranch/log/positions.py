"""Who has read how far: queries, subscriptions and retained points in the past.

A position is the last one that its holder no longer needs. Retention and the compactor leave alone what
comes after the least of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.model.errors import AnabranchError

KINDS = ("query", "subscription", "sink", "as_of", "hold")
# These let go of their positions themselves.
_OWN = ("query", "sink")
_REACHED = sa.select(tables.streams.c.last_position).where(tables.streams.c.id == tables.positions.c.stream_id)
_MOVE = (
    tables.positions.update()
    .where(tables.positions.c.stream_id == sa.bindparam("its_stream_id"))
    .where(tables.positions.c.name == sa.bindparam("its_name"))
    .where(tables.positions.c.kind == sa.bindparam("its_kind"))
    .where(sa.bindparam("its_position", type_=sa.BigInteger).between(0, _REACHED.scalar_subquery()))
    .values(position=sa.bindparam("its_position"), ordinal=sa.bindparam("its_ordinal"))
)


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
    set_positions(connection, [(stream_id, Position(name, kind, position, ordinal))])


def set_positions(connection: sa.Connection, wanted: Sequence[tuple[int, Position]]) -> None:
    """Record how far some holders have come, each with a stream."""
    known = {(number, at.name): {"stream_id": number, **asdict(at)} for number, at in wanted}
    values = list(known.values())
    moves = [{f"its_{name}": value for name, value in row.items()} for row in values]
    if not wanted or connection.execute(_MOVE, moves).rowcount == len(moves):
        return
    # Some are new, or wrong.
    table, streams = tables.positions, tables.streams
    ids, names = {stream_id for stream_id, _ in wanted}, {at.name for _, at in wanted}
    reached = {row.id: row for row in connection.execute(sa.select(streams).where(streams.c.id.in_(ids)))}
    rows = connection.execute(sa.select(table).where(table.c.stream_id.in_(ids), table.c.name.in_(names)))
    held = {(row.stream_id, row.name): row.kind for row in rows}
    for stream_id, at in wanted:
        _check(reached[stream_id], at, held.get((stream_id, at.name)))
    fresh = [row for row in values if (row["stream_id"], row["name"]) not in held]
    if fresh:
        connection.execute(table.insert(), fresh)


def _check(stream: sa.Row[Any], at: Position, held: str | None) -> None:
    place = f"position {at.name!r} on stream {stream.name!r}"
    if at.kind not in KINDS:
        need = f"one of {', '.join(KINDS)}"
        raise AnabranchError("BAD_ARGUMENT", place="kind=", need=need, got=repr(at.kind), next_step="Choose one.")
    if not 0 <= at.position <= stream.last_position:
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=place,
            need=f"a position from 0 to {stream.last_position}",
            got=str(at.position),
            next_step="Choose a position that the log has reached.",
        )
    if held is not None and held != at.kind:
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=place,
            need=f"a name that no other kind of reader has, for a {at.kind}",
            got=f"the name of a {held}",
            next_step="Choose another name.",
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
