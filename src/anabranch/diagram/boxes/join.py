"""Join: each pair of rows, one from either side, for which a predicate is true.

A pair's event time is the later of the two. A band bounds how far apart the two may be in event time: `within`
says so for both directions, both ends included; `between` gives, from columns of one side, the first and the
last event time that a row of the other side may have. Without a band all rows of both sides are compared,
down to the history bound. A left outer Join also says each left row that has no partner, with nulls beside
it: once progress has passed the end of its band, or at once where there is no band, or where its own bound is
missing so that it can have no partner; it is taken back when a partner comes.

The columns of a Join are its sides, each a struct under the side's name, and every column that only one side
has, under its own name. So `l.price` means what it does in SQL.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.expression import Expression


@dataclass(frozen=True)
class Side:
    """One of the streams that are joined: what it is called, and its columns."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Band:
    """The event times that rows of one side may have for a row of the other, from columns of that one."""

    of_left: bool  # whether it is the left row's columns that bound the right row's event time
    low: Expression
    high: Expression


@dataclass(frozen=True)
class Join(Box):
    """`parts` are the left and the right input; `sides` all that have been joined so far, the right one last."""

    parts: tuple[Box, ...]
    sides: tuple[Side, ...]
    on: Expression | None = None
    within: int | None = None
    between: Band | None = None
    outer: bool = False

    @property
    def alone(self) -> tuple[tuple[str, str], ...]:
        """The columns that only one side has: the side, and the column."""
        times = Counter(column.lower() for side in self.sides for column in side.columns)
        return tuple((side.name, c) for side in self.sides for c in side.columns if times[c.lower()] == 1)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*(side.name for side in self.sides), *(column for _, column in self.alone))

    @property
    def banded(self) -> bool:
        return self.within is not None or self.between is not None
