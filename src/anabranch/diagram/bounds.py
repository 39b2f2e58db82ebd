"""History bounds: how far behind progress a box reads rows again, and so which deltas it must ignore (BOREALIS 3.3).

Most deltas need no row again: what comes through linear boxes is answered by itself, and partial results add, or
merge. Rows are read again behind every row of windows of rows, around a deletion under an aggregate that only
merges (the rows of its pane), and
around every row of a Join with a band (those of the other side within it). A box with a bound ignores a delta if rows
that it would have to read again could lie below progress minus the bound, whether or not they are still there.

Bounds are *normalised*: a box whose input brings nothing older than an age need not go back further than that age
and what it reads around a row. So a bound upstream also limits what is read downstream.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.diagram.aggregates import LAWS, Grade
from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.view import View

# As far back as there are rows.
EVER = 1 << 62


def stretch(box: Box) -> int | None:
    """How far before a delta a box reads rows again, at most; None for one that reads nothing again."""
    match box:
        case Join():
            if box.within is None:
                return None  # it compares with all rows that there are: under a bound it could answer nothing
            # A left row without a partner is found through the rows on the right that it may have.
            return 2 * box.within if box.outer else box.within
        case Counts():
            return 0  # from the row on, whatever window it is in
        case Aggregate() if _only_merges(box):
            return box.window.size if box.window else EVER
        case Partials() if _only_merges(box):
            return EVER if box.pane is None else box.pane
    return None


def _only_merges(box: Aggregate | Partials) -> bool:
    """Whether deletions need rows again. Of messages by key the latest counts, and none is ever deleted."""
    return any(LAWS[call.function].grade is Grade.MERGEABLE and call.function != "latest" for call in box.calls)


def normalised(
    box: Box, own: int | None, bounds: Mapping[str, int | None] | None = None, ages: Mapping[Box, int] | None = None
) -> dict[Box, int]:
    """The bounds of the boxes that read rows again, of those that have one.

    `own` is the bound that a query declares, `bounds` those of the queries whose diagrams it contains, by name, and
    `ages` how old what comes out of a box can be, for the streams and other boxes of which that is known.

    >>> from anabranch.diagram.boxes.aggregate import Call
    >>> from anabranch.diagram.expression import Expression
    >>> from anabranch.model.window import Window
    >>> most = (Call("_a0", "max", (Expression("a"),)),)
    >>> first = Aggregate(Source("s", ("a",)), Window(2, 2), (), most)
    >>> second = Aggregate(View(first, "q"), Window(1, 1), (), most)
    >>> list(normalised(second, own=10, bounds={"q": 5}).values())
    [5, 4]
    """
    found: dict[Box, int] = {}
    _age(box, own, bounds or {}, ages or {}, found)
    return found


def age_of(
    box: Box, own: int | None, bounds: Mapping[str, int | None] | None = None, ages: Mapping[Box, int] | None = None
) -> int:
    """How far behind progress a delta that comes out of a box can be, if rows had to be read again for it."""
    return _age(box, own, bounds or {}, ages or {}, {})


def _age(
    box: Box, own: int | None, bounds: Mapping[str, int | None], ages: Mapping[Box, int], found: dict[Box, int]
) -> int:
    if isinstance(box, Source) or box in ages:
        return ages.get(box, EVER)
    if isinstance(box, View) and box.name in bounds:
        own = bounds[box.name]
    age = max(_age(part, own, bounds, ages, found) for part in box.inputs)
    around = stretch(box)
    if own is None or around is None:
        return age
    found[box] = min(own, age + around)
    return max(min(age, own - around), 0)
