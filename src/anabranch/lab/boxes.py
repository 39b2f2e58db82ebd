"""Boxes of a line, run by the reference executor, bucket by bucket.

In the lab an item's event time is its stream time and progress is the end of the bucket. What a bucket says is what the
reference executor says of all rows so far at event times within the bucket; rows that no such result can depend on any
more, those further back than the boxes reach, are let go. A window is a whole number of buckets, so each of its
results lies in the bucket that closes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Join, Side
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.expression import Expression, Named
from anabranch.model.window import Window
from anabranch.protocol.dpc.items import Item, serialised
from anabranch.reference.rows import WeightedRow
from anabranch.reference.run import answer

COLUMNS = ("k", "v")


class Boxes(Protocol):
    """The boxes of a line with what they remember."""

    @property
    def reach(self) -> int: ...

    def run(self, start: int, end: int, inputs: Mapping[str, Sequence[Item]]) -> list[Item]:
        """What the input of a span of stream time makes them say."""

    def copy(self) -> Boxes: ...

    def fresh(self) -> Boxes: ...


class Merge:
    """A union, without looking at rows: what the reference executor says of one, item by item."""

    reach = 0

    def run(self, start: int, end: int, inputs: Mapping[str, Sequence[Item]]) -> list[Item]:
        return serialised(inputs.values())

    def copy(self) -> Merge:
        return self

    def fresh(self) -> Merge:
        return self


class Diagram:
    """Any boxes, by the reference executor."""

    def __init__(self, box: Box, rows: Mapping[str, list[WeightedRow]] | None = None) -> None:
        self.box = box
        self.reach = reach(box)
        self._closes = _closes(box)
        self._rows = dict(rows or {})

    def run(self, start: int, end: int, inputs: Mapping[str, Sequence[Item]]) -> list[Item]:
        oldest = start - self.reach
        for name, items in inputs.items():
            kept = [row for row in self._rows.get(name, ()) if (row.event_time or 0) >= oldest]
            self._rows[name] = kept + [_row(item) for item in serialised([items])]
        if self._closes and end % self._closes:
            return []  # no window closes here
        if not any(self._rows.values()):
            return []
        progress: dict[str, int | None] = dict.fromkeys(inputs, end)
        said = answer(self.box, self._rows, progress).rows
        return [
            Item(row.event_time, tuple(row.values.values()))
            for row in said
            if row.event_time is not None and start <= row.event_time < end
        ]

    def copy(self) -> Diagram:
        return Diagram(self.box, self._rows)

    def fresh(self) -> Diagram:
        return Diagram(self.box)


def _row(item: Item) -> WeightedRow:
    return WeightedRow(dict(zip(COLUMNS, item.body, strict=True)), item.stime)


def reach(box: Box) -> int:
    """How far back in event time a result can depend on rows."""
    own = 0
    if isinstance(box, Aggregate):
        assert box.window is not None, "a running aggregate never forgets"
        own = box.window.size
    elif isinstance(box, Join):
        assert box.within is not None, "a Join without a band never forgets"
        own = box.within
    return own + max((reach(part) for part in box.inputs), default=0)


def _closes(box: Box) -> int:
    """The advance of the window on top, at whose multiples alone anything is said; 0 without one."""
    while isinstance(box, Map | Filter):
        box = box.input
    if isinstance(box, Aggregate) and box.window is not None:
        return box.window.advance
    return 0


# The boxes of which drawn worlds are made. All have the columns k and v.


def union(*streams: str) -> Box:
    sources: list[Box] = [Source(name, COLUMNS) for name in streams]
    return sources[0] if len(sources) == 1 else Union(tuple(sources))


def some(box: Box) -> Box:
    return Filter(box, Expression("v % 3 <> 0"))


def shifted(box: Box) -> Box:
    return Map(box, (Named("k", Expression("k")), Named("v", Expression("v + 1"))))


def summed(box: Box, size: int) -> Box:
    calls = (Call("_a0", "sum", (Expression("v"),)),)
    grouped = Aggregate(box, Window(size, size), (Named("_k0", Expression("k")),), calls)
    return Map(grouped, (Named("k", Expression("_k0")), Named("v", Expression("_a0"))))


def joined(left: str, right: str, within: int) -> Box:
    sides = (Side("l", COLUMNS), Side("r", COLUMNS))
    parts = (Source(left, COLUMNS), Source(right, COLUMNS))
    pairs = Join(parts, sides, Expression("l.k = r.k"), within)
    return Map(pairs, (Named("k", Expression("l.k")), Named("v", Expression("l.v + r.v"))))
