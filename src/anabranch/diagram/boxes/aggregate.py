"""Aggregate: rows grouped by window and keys, each group reduced to one row.

Its columns are internal: the window's ends `_open` and `_close`, the keys `_k0`, `_k1`, ..., and the
results of the calls `_a0`, `_a1`, ...; a Map above it makes of these what the user asked for. Without a
window it is a running aggregate: one row per group for all of time, updated as rows come.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.expression import Expression, Named
from anabranch.model.window import Window

WINDOW_COLUMNS = ("_open", "_close")


@dataclass(frozen=True)
class Call:
    """One aggregate function applied to expressions over the input's columns."""

    name: str  # the column in which the result comes out
    function: str  # a name of `aggregates.LAWS`
    arguments: tuple[Expression, ...] = ()  # none: count(*)
    where: Expression | None = None  # FILTER (WHERE ...)
    at: int | None = field(default=None, compare=False)

    @property
    def meaning(self) -> tuple[str, tuple[Expression, ...], Expression | None]:
        """What it computes, whatever its result is called."""
        return self.function, self.arguments, self.where

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """What is evaluated for each row."""
        return (*self.arguments, *([self.where] if self.where else []))

    def __str__(self) -> str:
        inside = ", ".join(map(str, self.arguments)) or "*"
        return f"{self.function}({inside})" + (f" FILTER (WHERE {self.where})" if self.where else "")


@dataclass(frozen=True)
class Aggregate(Box):
    input: Box
    window: Window | None
    keys: tuple[Named, ...]
    calls: tuple[Call, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        window = WINDOW_COLUMNS if self.window else ()
        return (*window, *(key.name for key in self.keys), *(call.name for call in self.calls))
