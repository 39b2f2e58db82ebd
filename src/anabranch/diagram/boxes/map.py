"""Map: each row becomes one row, whose columns are expressions over the old ones. Its event time stays."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.expression import Named


@dataclass(frozen=True)
class Map(Box):
    input: Box
    outputs: tuple[Named, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)
