"""Windows of rows are kept with their numbers: where the next ones begin is found among those that were said.

Before: Counts(10 rows, keys, calls) over rows.
After:  Map(back to its columns) over Keep(Map(under plain names) over Counts over the same rows).
"""

from __future__ import annotations

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.expression import Expression, Named
from anabranch.diagram.rewrites.known import Known, Note, bottom_up


def count(box: Box, known: Known) -> tuple[Box, list[Note]]:
    notes: list[Note] = []

    def change(box: Box) -> Box:
        if not isinstance(box, Counts):
            return box
        notes.append(Note("count", f"windows {box.window} -> a stream of their own, with their numbers",
                          "where a window begins is found among those that were said before"))  # fmt: skip
        inner = Map(box, tuple(Named(name.strip("_"), Expression(name)) for name in box.columns))
        return Map(Keep(inner), tuple(Named(name, Expression(name.strip("_"))) for name in box.columns))

    return bottom_up(box, change), notes
