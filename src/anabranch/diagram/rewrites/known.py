"""What a rewrite may know, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.stages import Single


@dataclass(frozen=True)
class Key:
    """The key of a base stream, and the column that has its event time."""

    columns: tuple[str, ...]
    event_time: str


@dataclass(frozen=True)
class Known:
    """The derived streams of the warehouse as diagrams, the keys of base streams, and the partials kept already."""

    derived: Mapping[str, Box] = field(default_factory=dict)
    partials: tuple[Partials, ...] = ()
    keyed: Mapping[str, Key] = field(default_factory=dict)
    upstream: bool = False  # whether what can be computed again is not kept


@dataclass(frozen=True)
class Note:
    """What one rewrite did to one box, and why; or why it let it be."""

    rewrite: str
    what: str
    why: str


Rewrite = Callable[[Box, Known], tuple[Box, list[Note]]]


def is_linear(box: Box) -> bool:
    """Whether every row is answered by itself, from streams or what is kept up."""
    if isinstance(box, Source | Keep):
        return True
    return isinstance(box, Single | Union) and all(map(is_linear, box.inputs))


def bottom_up(box: Box, change: Callable[[Box], Box], *, below_kept: bool = True) -> Box:
    """Rebuild a diagram from its sources, or from what is kept up, changing each box on the way."""
    if isinstance(box, Keep) and not below_kept:
        return box
    inputs = tuple(bottom_up(b, change, below_kept=below_kept) for b in box.inputs)
    return change(box.with_inputs(*inputs) if inputs != box.inputs else box)
