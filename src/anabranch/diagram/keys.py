"""Which columns of a query tell its rows apart: the group of an aggregate and its window, the key of a stream.

A key is known where it can be read off the diagram. An aggregate has one row per window and group; Filter,
View and Keep leave that alone; a Map leaves it alone if it passes every part of the key on as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.diagram.boxes.aggregate import WINDOW_COLUMNS, Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.view import View

# Each part of a key is a set of columns with the same meaning, of which one will do.
Parts = tuple[frozenset[str], ...]


def key_of(box: Box, of_stream: Callable[[str], tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """The columns that tell the rows of a diagram apart, in its own order; None if that cannot be told."""
    parts = _parts(box, of_stream)
    if parts is None:
        return None
    chosen = {next(name for name in box.columns if name in part) for part in parts}
    return tuple(name for name in box.columns if name in chosen)


def _parts(box: Box, of_stream: Callable[[str], tuple[str, ...] | None]) -> Parts | None:
    match box:
        case Source():
            key = of_stream(box.stream)
            return None if key is None else tuple(frozenset((name,)) for name in key)
        case View() | Filter() | Keep():
            return _parts(box.input, of_stream)
        case Aggregate():
            window = (frozenset(WINDOW_COLUMNS),) if box.window else ()
            return (*window, *(frozenset((key.name,)) for key in box.keys))
        case Map():
            return _passed_on(box, _parts(box.input, of_stream))
    return None


def _passed_on(box: Map, below: Parts | None) -> Parts | None:
    if below is None:
        return None
    passed: list[frozenset[str]] = []
    for part in below:
        names = frozenset(o.name for o in box.outputs if _bare(o.expression.text) in part)
        if not names:
            return None
        passed.append(names)
    return tuple(passed)


def _bare(text: str) -> str:
    """A column's name, without its qualifier and backticks; expressions stay what they are, and match nothing."""
    return text.strip().rpartition(".")[2].strip("`")
