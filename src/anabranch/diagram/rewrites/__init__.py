"""From what was asked to what is kept and computed: an ordered tuple of pure functions (TRUVISO 4).

Each rewrite takes a diagram and what is known of the warehouse, and gives a diagram that means the same
and a note for every change that it made. The order matters: derived streams are opened into the
diagrams behind them, aggregates over aggregates become one where that is legal, what can be partial is
made partial, and partials that somebody keeps already are used instead of kept again.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.rewrites.known import Known, Note, Rewrite
from anabranch.diagram.rewrites.open_views import open_views
from anabranch.diagram.rewrites.partial_form import partial_form
from anabranch.diagram.rewrites.roll_up import roll_up
from anabranch.diagram.rewrites.stack import stack

REWRITES: tuple[Rewrite, ...] = (open_views, stack, partial_form, roll_up)


@dataclass(frozen=True)
class Rewritten:
    box: Box
    notes: tuple[Note, ...]


def rewrite(box: Box, known: Known) -> Rewritten:
    """Apply every rewrite in turn."""
    notes: list[Note] = []
    for step in REWRITES:
        box, said = step(box, known)
        notes += said
    return Rewritten(box, tuple(notes))
