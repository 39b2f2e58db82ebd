"""Apply: a function of the user's own makes rows of the rows of each window, or of each so many rows.

The function gets, for each window and group, the computed columns of its rows and gives rows of the declared
columns. They have the window's last instant as their event time. What changes in a window runs the
function again, and only the difference is said.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import RowWindow
from anabranch.diagram.expression import Expression, Named
from anabranch.model.window import Window


@dataclass(frozen=True)
class Apply(Box):
    input: Box
    window: Window | RowWindow | None
    keys: tuple[Expression, ...]
    given: tuple[Named, ...]
    function: Expression  # 'package.module:function', quoted
    returns: tuple[tuple[str, str], ...]  # columns and their types

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.returns)
