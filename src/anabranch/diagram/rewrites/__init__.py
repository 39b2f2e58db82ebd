"""From what was asked to what is kept and computed: an ordered tuple of pure functions (TRUVISO 4).

Each rewrite takes a diagram and what is known of the warehouse, and gives a diagram that means the same
and a note for every change that it made. The order matters: derived streams are opened into the
diagrams behind them, streams with keys become their live rows, functions that make rows become aggregates
whose results are lists, aggregates over aggregates become one
where that is legal, windows of rows get a stream of their own, answers that must be read again are kept,
or computed again if that is asked for,
the first rows of groups become an aggregate, what can be partial is made partial, and partials that
somebody keeps already are used instead of kept again.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.rewrites.applied import apply
from anabranch.diagram.rewrites.count import count
from anabranch.diagram.rewrites.keep import keep
from anabranch.diagram.rewrites.known import Known, Note, Rewrite
from anabranch.diagram.rewrites.lookup import lookup
from anabranch.diagram.rewrites.open_views import open_views
from anabranch.diagram.rewrites.partial_form import partial_form
from anabranch.diagram.rewrites.resolve import resolve
from anabranch.diagram.rewrites.roll_up import roll_up
from anabranch.diagram.rewrites.stack import stack
from anabranch.diagram.rewrites.top_n import top_n
from anabranch.diagram.rewrites.upstream import upstream

# Of the whole diagram, down to the base streams.
WHOLE: tuple[Rewrite, ...] = (open_views, resolve, apply, stack, count, lookup, keep, upstream, top_n)
# Of each stage by itself. What is kept stays as it was asked for, so that equal answers are kept once.
STAGE: tuple[Rewrite, ...] = (partial_form, roll_up)
REWRITES = WHOLE + STAGE


@dataclass(frozen=True)
class Rewritten:
    box: Box
    notes: tuple[Note, ...]


def rewrite(box: Box, known: Known, steps: tuple[Rewrite, ...] = REWRITES) -> Rewritten:
    """Apply rewrites in turn; without a choice, all that there are."""
    notes: list[Note] = []
    for step in steps:
        box, said = step(box, known)
        notes += said
    return Rewritten(box, tuple(notes))
