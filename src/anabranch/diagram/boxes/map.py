"""Map: each row becomes one row, whose columns are expressions over the old ones.

Its event time stays, unless the Map says which expression is the event time from here on.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.expression import Expression, Named


@dataclass(frozen=True)
class Map(Box):
    input: Box
    outputs: tuple[Named, ...]
    time: Expression | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)
