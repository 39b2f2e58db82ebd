"""What must be read again is kept: the answer of a box becomes a stream where a box above needs its rows.

Before: Join(impsns, Aggregate over clicks).
After:  Join(impsns, Keep(Aggregate over clicks)).

A Join, and every other box that looks at earlier rows, reads streams through boxes that take rows one by
one. So does a Union, and an Aggregate over anything but rows or another Aggregate.
"""

from __future__ import annotations

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.explode import Explode
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.rewrites.known import Known, Note, bottom_up, is_linear
from anabranch.diagram.stages import Single, core


def keep(box: Box, known: Known) -> tuple[Box, list[Note]]:
    notes: list[Note] = []

    def change(box: Box) -> Box:
        if isinstance(box, Source | Keep | Single | Explode):
            return box
        if isinstance(box, Aggregate) and isinstance(core(box.input), Aggregate):
            return box  # it gathers
        inputs = tuple(part if is_linear(part) else _kept(part, box) for part in box.inputs)
        return box.with_inputs(*inputs) if inputs != box.inputs else box

    def _kept(part: Box, above: Box) -> Keep:
        what = type(core(part)).__name__
        notes.append(Note("keep", f"{what} below {type(above).__name__} -> a stream of its own",
                          "its rows must be read again when others come"))  # fmt: skip
        return Keep(part)

    return bottom_up(box, change), notes
