"""Counts: the rows of a group in order, cut into windows by their numbers."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.diagram.boxes.counts import Counts
from anabranch.reference.expressions import compile_expression
from anabranch.reference.grouping import finish, reducer
from anabranch.reference.joining import columns_seen
from anabranch.reference.rows import WeightedRow
from anabranch.reference.values import Timestamp, Value, canonical


def windows(box: Counts, rows: Iterable[WeightedRow], progress: int | None, include_open: bool) -> list[WeightedRow]:
    """The windows that are full and that progress has reached; with `include_open`, the others too."""
    seen = columns_seen(box.input)
    keys = [compile_expression(key.expression, seen) for key in box.keys]
    groups: dict[tuple[Value, ...], list[WeightedRow]] = {}
    for row in rows:
        groups.setdefault(tuple(canonical(key(row.values)) for key in keys), []).append(row)
    said = []
    for of, members in groups.items():
        members.sort(key=lambda row: row.order)
        for number, start in enumerate(range(0, len(members), box.window.advance)):
            held = members[start : start + box.window.size]
            last = held[-1].event_time
            full = len(held) == box.window.size and progress is not None and last is not None and last <= progress
            if full or include_open:
                said.append(_result(box, of, number, start, members))
    return said


def _result(box: Counts, of: tuple[Value, ...], number: int, start: int, members: list[WeightedRow]) -> WeightedRow:
    held = members[start : start + box.window.size]
    seen = columns_seen(box.input)
    first, last = held[0].event_time, held[-1].event_time
    assert first is not None
    assert last is not None
    before = sum(row.event_time is not None and row.event_time < first for row in members)
    results = [finish(call.function, reducer(call, seen)(held)) for call in box.calls]
    values = dict(zip(box.columns, (Timestamp(first), Timestamp(last), number, before, *of, *results), strict=True))
    return WeightedRow(values, last, group=(number, *of))
