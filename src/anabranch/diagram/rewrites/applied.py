"""Rows that a function makes are an aggregate of the window's rows, whose result is a list, taken apart again.

Before: Apply(window, keys, function) over rows.
After:  Map(the columns) over Explode over Aggregate(window, keys, apply(columns, function)) over the same rows.
"""

from __future__ import annotations

from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.apply import Apply
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts, RowWindow
from anabranch.diagram.boxes.explode import Explode
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.expression import Expression, Named
from anabranch.diagram.rewrites.known import Known, Note, bottom_up


def apply(box: Box, known: Known) -> tuple[Box, list[Note]]:
    notes: list[Note] = []

    def change(box: Box) -> Box:
        if not isinstance(box, Apply):
            return box
        notes.append(Note("apply", f"{box.function} -> an aggregate whose result is a list of rows",
                          "what it gives is compared with what it gave before"))  # fmt: skip
        return _as_aggregate(box)

    return bottom_up(box, change), notes


def _as_aggregate(box: Apply) -> Box:
    names = Expression(f"'{','.join(named.name for named in box.given)}'")
    fields = ", ".join(f"`{name}`: {kind}" for name, kind in box.returns)
    kind = Expression(f"'ARRAY<STRUCT<{fields}>>'", box.function.at)
    given = tuple(named.expression for named in box.given)
    call = Call("_a0", "apply", (*given, names, box.function, kind))
    keys = tuple(Named(f"_k{n}", key) for n, key in enumerate(box.keys))
    made: Box
    if isinstance(box.window, RowWindow):
        made = Counts(box.input, box.window, keys, (call,))
    else:
        made = Aggregate(box.input, box.window, keys, (call,))
    outputs = tuple(Named(name, Expression(f"_item.`{name}`")) for name, _ in box.returns)
    return Map(Explode(made, "_a0"), outputs)
