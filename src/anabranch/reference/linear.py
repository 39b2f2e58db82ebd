"""Boxes that take rows one by one: Source, Filter, Map, Union."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.boxes.union import Union
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import unknown_column
from anabranch.reference.expressions import compile_expression
from anabranch.reference.joining import columns_seen
from anabranch.reference.keys import Keyed, live_rows
from anabranch.reference.rows import WeightedRow, netted
from anabranch.reference.values import Value, plain

Tables = Mapping[str, Sequence[WeightedRow] | Keyed]


def source(box: Source, tables: Tables) -> list[WeightedRow]:
    """What the stream's rows come to. From here on every weight is +1: a deletion without its row waits here."""
    if box.stream not in tables:
        raise AnabranchError(
            "UNKNOWN_STREAM",
            place="reference executor",
            need=f"the rows of the streams that the diagram reads; there are {', '.join(tables) or 'none'}",
            got=repr(box.stream),
            next_step="Pass its rows, or an empty list.",
        )
    found = tables[box.stream]
    rows = live_rows(found) if isinstance(found, Keyed) else found
    return netted(replace(row, values={name: _value_of(box, row, name) for name in box.names}) for row in rows)


def _value_of(box: Source, row: WeightedRow, name: str) -> Value:
    for column, value in row.values.items():
        if column.lower() == name.lower():
            return plain(value)
    raise unknown_column(f"a row of stream {box.stream!r}", name, list(row.values), "Give the row all columns.")


def filter_rows(box: Filter, rows: Iterable[WeightedRow]) -> list[WeightedRow]:
    holds = compile_expression(box.predicate, columns_seen(box.input))
    return [row for row in rows if holds(row.values) is True]


def split_rows(box: Split, rows: Iterable[WeightedRow]) -> list[WeightedRow]:
    """The rows of which the first true condition is that of this way; or none is, if it is the last."""
    conditions = [compile_expression(condition, columns_seen(box.input)) for condition in box.conditions]

    def way(row: WeightedRow) -> int:
        return next((n for n, condition in enumerate(conditions) if condition(row.values) is True), len(conditions))

    return [row for row in rows if way(row) == box.way]


def passed(rows: Iterable[WeightedRow], progress: int | None, include_open: bool) -> list[WeightedRow]:
    """The rows that progress has passed."""
    if include_open:
        return list(rows)
    return [row for row in rows if progress is not None and row.event_time is not None and row.event_time < progress]


def map_rows(box: Map, rows: Iterable[WeightedRow]) -> list[WeightedRow]:
    outputs = [(out.name, compile_expression(out.expression, columns_seen(box.input))) for out in box.outputs]
    time = None if box.time is None else compile_expression(box.time, columns_seen(box.input))
    return [
        replace(
            row,
            values={name: value(row.values) for name, value in outputs},
            event_time=row.event_time if time is None else time(row.values),
        )
        for row in rows
    ]


def union(box: Union, parts: Sequence[Iterable[WeightedRow]]) -> list[WeightedRow]:
    """All rows, under the first part's names. Groups of different parts are different, whatever their keys."""
    return [
        replace(
            row,
            values=dict(zip(box.columns, row.values.values(), strict=True)),
            group=None if row.group is None else (number, *row.group),
        )
        for number, rows in enumerate(parts)
        for row in rows
    ]
