"""Lookup: each row of a stream with the rows that a table had for it when it came.

The table is a stream with a key. A row is answered from what the table holds at the end of the row's bucket; with
nulls beside it where there is nothing. What becomes of the table later changes nothing. A row that is
deleted takes back what was said for it, whatever the table holds by then; of equal rows the oldest one goes first.
So the answer depends on when rows came, and is exempt from being what a batch would say. (Where a change of the
table shall revise what was said, a Join says so.)

Its columns are those of a Join of the two, `_matched`, whether the table had a row, and `_came`, the bucket in which
the row came.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.join import Join, Side
from anabranch.diagram.expression import Expression


@dataclass(frozen=True)
class Lookup(Box):
    """`parts` are the stream and the table."""

    parts: tuple[Box, ...]
    sides: tuple[Side, ...]
    on: Expression | None = None

    @property
    def pairs(self) -> Join:
        """The Join whose columns it has."""
        return Join(self.parts, self.sides, self.on, outer=True)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.pairs.columns, "_matched", "_came")
