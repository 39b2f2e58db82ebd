"""An aggregate over rows is split: partials that are kept, and a consolidation on demand (TRUVISO 4.2, 4.3).

Before: Aggregate(window, keys, calls) over rows.
After:  Consolidate(window, keys, calls) over Partials(pane, keys, calls) over the same rows.

Every aggregate that we have can be split, so the only thing that stops it is an input that is itself an
aggregate: that one gathers, and works on finished results.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.expression import Named
from anabranch.diagram.rewrites.known import Known, Note, bottom_up, is_linear


def partial_form(box: Box, known: Known) -> tuple[Box, list[Note]]:
    notes: list[Note] = []

    def change(box: Box) -> Box:
        if not isinstance(box, Aggregate) or not is_linear(box.input):
            return box
        pane = box.window.pane if box.window else None
        notes.append(Note("partial form", f"{', '.join(map(str, box.calls))} -> partials and their consolidation",
                          "its input is rows, and each call has a partial form"))  # fmt: skip
        # Names within the partials do not depend on the query, so that equal partials are equal.
        keys = tuple(Named(f"_k{n}", key.expression) for n, key in enumerate(box.keys))
        calls = tuple(replace(call, name=f"_a{n}") for n, call in enumerate(box.calls))
        return Consolidate(
            Partials(box.input, pane, keys, calls, box.window.offset if box.window else 0),
            box.window,
            tuple((key.name, kept.name) for key, kept in zip(box.keys, keys, strict=True)),
            tuple((call.name, kept.name) for call, kept in zip(box.calls, calls, strict=True)),
        )

    return bottom_up(box, change, below_kept=False), notes
