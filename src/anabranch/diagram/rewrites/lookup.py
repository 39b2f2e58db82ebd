"""What was looked up is kept, row by row, so that it can be taken back as it was said.

Before: Lookup(stream, table).
After:  Map(back to its columns) over Keep(Map(under plain names) over Lookup over the same inputs).
"""

from __future__ import annotations

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.expression import Expression, Named, literal
from anabranch.diagram.rewrites.known import Known, Note, bottom_up


def lookup(box: Box, known: Known) -> tuple[Box, list[Note]]:
    notes: list[Note] = []

    def change(box: Box) -> Box:
        if not isinstance(box, Lookup):
            return box
        notes.append(Note("lookup", f"{box.sides[1].name} as it is when rows come -> a stream of what was found",
                          "it is taken back as it was said"))  # fmt: skip
        return _kept(box)

    return bottom_up(box, change), notes


def plain(box: Lookup) -> list[tuple[str, str, str]]:
    """The columns of both sides: the name that each is kept under, its side, and its own."""
    sides = list(zip("lr", box.sides, strict=True))
    return [(f"{letter}{n}", side.name, column) for letter, side in sides for n, column in enumerate(side.columns)]


def _kept(box: Lookup) -> Box:
    names = plain(box)
    inner = [Named(name, Expression(f"`{side}`.`{column}`")) for name, side, column in names]
    inner += [Named("matched", Expression("_matched")), Named("came", Expression("_came"))]
    outputs = []
    for side in box.sides:
        fields = ", ".join(f"{literal(column)}, {name}" for name, of, column in names if of == side.name)
        outputs.append(Named(side.name, Expression(f"NAMED_STRUCT({fields})")))
    kept = {(of, column): name for name, of, column in names}
    outputs += [Named(column, Expression(kept[side, column])) for side, column in box.pairs.alone]
    outputs += [Named("_matched", Expression("matched")), Named("_came", Expression("came"))]
    return Map(Keep(Map(box, tuple(inner))), tuple(outputs))
