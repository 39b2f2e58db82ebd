"""History is left upstream where that is asked for: what comes from partial results is computed again, not kept.

Before: Join(impsns, Keep(Aggregate over clicks)).
After:  Join(impsns, Keep(Aggregate over clicks, upstream)).

The partial results of the Aggregate are the one history that all boxes above share. It saves the log of its answers,
at the price of computing them again, for the event times that matter, whenever the box above reads them again.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.rewrites.known import Known, Note, bottom_up
from anabranch.diagram.stages import Reread, core


def upstream(box: Box, known: Known) -> tuple[Box, list[Note]]:
    notes: list[Note] = []
    if not known.upstream:
        return box, notes

    def moved(box: Box) -> Box:
        """The input of a box that reads rows again, down to what is kept."""
        if isinstance(box, Keep):
            if not isinstance(core(box.input), Aggregate):
                return box
            notes.append(Note("upstream", "Keep -> its answers are computed again",
                              "the history is shared upstream, as was asked for"))  # fmt: skip
            return replace(box, upstream=True)
        return box.with_inputs(*map(moved, box.inputs)) if box.inputs else box

    def change(box: Box) -> Box:
        return box.with_inputs(*map(moved, box.inputs)) if isinstance(box, Reread) else box

    return bottom_up(box, change), notes
