"""Partials and Consolidate: an Aggregate in two halves (TRUVISO 4.2, 4.3).

Partials reduces rows to partial results per pane and group, and keeps them; they need no order and no
exchange. Consolidate merges the partial results of a window's panes and finishes them, when asked. It
may use wider windows and fewer keys than the partials have: that is a roll-up.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.aggregate import WINDOW_COLUMNS, Call
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.expression import Named
from anabranch.model.window import Window


@dataclass(frozen=True)
class Partials(Box):
    input: Box
    pane: int | None  # None: one pane for all of time
    keys: tuple[Named, ...]
    calls: tuple[Call, ...]
    offset: int = 0  # how far after multiples of its length a pane begins

    @property
    def columns(self) -> tuple[str, ...]:
        return (*(key.name for key in self.keys), *(call.name for call in self.calls))


@dataclass(frozen=True)
class Consolidate(Box):
    input: Partials
    window: Window | None
    keys: tuple[tuple[str, str], ...]  # name here, name in the partials
    calls: tuple[tuple[str, str], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        window = WINDOW_COLUMNS if self.window else ()
        return (*window, *(name for name, _ in self.keys), *(name for name, _ in self.calls))
