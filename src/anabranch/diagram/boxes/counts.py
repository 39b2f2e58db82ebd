"""Counts: an aggregate over windows of so many rows.

The rows of a group are numbered in the order of their event times, ties broken by the remaining columns in the
order of the schema. Window k holds the rows from number k times the advance on, as many as its size. It closes
when it is full and progress has reached its last row, whose event time it takes. A late row or a
deletion revises every later window of its group.

Its columns are internal: `_open` and `_close`, the event times of the window's first and last row, its number
`_number` and how many rows of the group are before that first instant, `_before`; then keys and results.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.aggregate import WINDOW_COLUMNS, Call
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.expression import Named

PLACE_COLUMNS = (*WINDOW_COLUMNS, "_number", "_before")


@dataclass(frozen=True)
class RowWindow:
    """Size and advance in rows."""

    size: int
    advance: int

    def __str__(self) -> str:
        if self.size == self.advance:
            return f"<SLICES {self.size} ROWS>"
        return f"<VISIBLE {self.size} ROWS ADVANCE {self.advance} ROWS>"


@dataclass(frozen=True)
class Counts(Box):
    input: Box
    window: RowWindow
    keys: tuple[Named, ...]
    calls: tuple[Call, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*PLACE_COLUMNS, *(key.name for key in self.keys), *(call.name for call in self.calls))
