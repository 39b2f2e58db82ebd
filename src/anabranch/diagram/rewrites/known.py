"""What a rewrite may know, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View


@dataclass(frozen=True)
class Known:
    """The derived streams of the warehouse as diagrams, and the partials that are kept already."""

    derived: Mapping[str, Box] = field(default_factory=dict)
    partials: tuple[Partials, ...] = ()


@dataclass(frozen=True)
class Note:
    """What one rewrite did to one box, and why; or why it let it be."""

    rewrite: str
    what: str
    why: str


Rewrite = Callable[[Box, Known], tuple[Box, list[Note]]]


def is_linear(box: Box) -> bool:
    """Whether every row is answered by itself: no aggregate anywhere upstream."""
    return all(isinstance(b, Source | View | Filter | Map | Union) for b in box.walk())


def bottom_up(box: Box, change: Callable[[Box], Box]) -> Box:
    """Rebuild a diagram from its sources, changing each box on the way."""
    inputs = tuple(bottom_up(b, change) for b in box.inputs)
    return change(box.with_inputs(*inputs) if inputs != box.inputs else box)
