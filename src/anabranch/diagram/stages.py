"""Stages: a diagram cut where answers are kept.

A stage is the part of a diagram between logs: it reads streams and what other stages keep, and what it says
goes into a log. The boxes of a stage are computed together, in one or two Spark jobs a step.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.sort import Sort
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.boxes.view import View

Leaf = Source | Keep
# Boxes that take the rows of one input one by one.
Single = View | Filter | Split | Map
# Boxes that look at earlier rows of their inputs when others come.
Reread = Join | Sort | Counts | Lookup


def boxes_of(box: Box) -> Iterator[Box]:
    """The boxes of a stage, from its answer down to its leaves."""
    yield box
    if not isinstance(box, Keep):
        for part in box.inputs:
            yield from boxes_of(part)


def leaves_of(box: Box) -> tuple[Leaf, ...]:
    """What a stage reads, each once."""
    return tuple(dict.fromkeys(b for b in boxes_of(box) if isinstance(b, Source | Keep)))


def kept_in(box: Box) -> tuple[Keep, ...]:
    """All that is kept anywhere in a diagram, inputs before what reads them, each once."""
    found = [b for b in box.walk() if isinstance(b, Keep)]
    return tuple(dict.fromkeys(reversed(found)))


def core(box: Box) -> Box:
    """The first box below those that take rows one by one."""
    while isinstance(box, Single):
        box = box.input
    return box
