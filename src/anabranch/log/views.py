"""Named views over a range of a log (BOREALIS 4.2).

A view has a start and an end, each absolute or relative to the newest item. Both absolute: the view is
fixed. Otherwise it moves as the log grows. Ranges are over event time or over positions:

    start=100                       from position 100 on
    start=-50                       the last 50 positions
    start="2026-01-01T00:00:00Z"    from that event time on
    start="-1 hour", end="-5 min"   from an hour to five minutes behind the highest event time

Starts are inclusive. Ends are inclusive for positions and exclusive for event times.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import check_name
from anabranch.model.time import duration_us, instant_us

EVENT, POSITION = "event", "position"
ViewEnd = int | str | datetime | None


@dataclass(frozen=True)
class Bound:
    """One end of a view: `value` itself, or counted from the newest item when it `moves`."""

    value: int | None = None
    moves: bool = False

    def resolve(self, newest: int | None) -> int | None:
        if self.value is None or not self.moves:
            return self.value
        return None if newest is None else newest + self.value


@dataclass(frozen=True)
class View:
    name: str
    stream: str
    axis: str
    start: Bound
    end: Bound

    @property
    def fixed(self) -> bool:
        return not (self.start.moves or self.end.moves) and None not in (self.start.value, self.end.value)


def declare_view(name: str, stream: str, start: ViewEnd, end: ViewEnd) -> View:
    """Read what a person wrote; both ends must be on the same axis."""
    check_name(name, "view")
    place = f"view {name!r}"
    first_axis, first = _bound(start, f"{place}, start")
    last_axis, last = _bound(end, f"{place}, end")
    axes = {axis for axis in (first_axis, last_axis) if axis}
    if len(axes) > 1:
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=place,
            need="both ends as positions, or both as times",
            got=f"start={start!r}, end={end!r}",
            next_step="Use one kind for both.",
        )
    if first.moves == last.moves and None not in (first.value, last.value) and last.value < first.value:  # type: ignore[operator]
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=place,
            need="an end that is not before the start",
            got=f"start={start!r}, end={end!r}",
            next_step="Swap the two.",
        )
    return View(name, stream, axes.pop() if axes else POSITION, first, last)


def _bound(value: ViewEnd, place: str) -> tuple[str | None, Bound]:
    if value is None:
        return None, Bound()
    if isinstance(value, int) and not isinstance(value, bool):
        return POSITION, Bound(value + 1, True) if value < 0 else Bound(value)
    if isinstance(value, str) and value.strip().startswith("-"):
        return EVENT, Bound(-duration_us(value.strip()[1:], place), True)
    return EVENT, Bound(instant_us(value, place))  # type: ignore[arg-type]


def save_view(connection: sa.Connection, stream_id: int, view: View) -> None:
    values = {
        "name": view.name,
        "stream_id": stream_id,
        "axis": view.axis,
        "start_value": view.start.value,
        "start_moves": view.start.moves,
        "end_value": view.end.value,
        "end_moves": view.end.moves,
    }
    table = tables.views
    row = connection.execute(sa.select(table).where(table.c.name == view.name)).mappings().first()
    if row is None:
        connection.execute(table.insert().values(values))
    elif dict(row) != values:
        raise AnabranchError(
            "VIEW_EXISTS",
            place=f"view {view.name!r}",
            need="a new name, or the same range",
            got="a view of that name with another stream or range",
            next_step="Drop the view first, or choose another name.",
        )


def find_view(connection: sa.Connection, name: str) -> View:
    query = sa.select(tables.views, tables.streams.c.name.label("stream")).join(tables.streams)
    row = connection.execute(query.where(tables.views.c.name == name)).first()
    if row is None:
        known = connection.execute(sa.select(tables.views.c.name)).scalars().all()
        raise AnabranchError(
            "UNKNOWN_VIEW",
            place=f"view {name!r}",
            need=f"one of {', '.join(known)}" if known else "a view; there is none yet",
            got=repr(name),
            next_step="Check the spelling, or create the view.",
        )
    return _from_row(row)


def views_of(connection: sa.Connection, stream_id: int) -> list[View]:
    query = sa.select(tables.views, tables.streams.c.name.label("stream")).join(tables.streams)
    rows = connection.execute(query.where(tables.views.c.stream_id == stream_id).order_by(tables.views.c.name))
    return [_from_row(row) for row in rows]


def drop_view(connection: sa.Connection, name: str) -> None:
    find_view(connection, name)
    connection.execute(tables.views.delete().where(tables.views.c.name == name))


def _from_row(row: Any) -> View:
    start = Bound(row.start_value, row.start_moves)
    return View(row.name, row.stream, row.axis, start, Bound(row.end_value, row.end_moves))
