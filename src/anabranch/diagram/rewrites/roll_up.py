"""Partials that are kept already are used, not kept twice (TRUVISO 4.5, Figs 10 to 12).

Before: Consolidate(5 minutes, keys) over Partials(5 minutes) over rows, while Partials(1 minute) over the
same rows are kept for another query.
After:  Consolidate(5 minutes, keys) over those Partials(1 minute): their partial results are reduced.

It is legal when the kept partials come from the same rows, their pane divides the wanted one, and they
have the wanted keys and calls, perhaps among others: a roll-up by time, by keys, or both. What they have
beside the wanted ones must not be able to fail, or a query would halt for what it never asked.
"""

from __future__ import annotations

import re
from dataclasses import replace

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.rewrites.known import Known, Note, bottom_up

_PLAIN = re.compile(r"\s*(?:\w+|`[^`]+`)\s*")


def roll_up(box: Box, known: Known) -> tuple[Box, list[Note]]:
    notes: list[Note] = []

    def change(box: Box) -> Box:
        if not isinstance(box, Consolidate):
            return box
        # The coarsest partials that serve are the fewest to read.
        serving = [k for k in known.partials if serves(k, box.input)]
        kept = min(serving, key=lambda k: (-(k.pane or 0), len(k.keys), len(k.calls)), default=None)
        if kept is None:
            return box
        keys = {key.expression: key.name for key in kept.keys}
        calls = {call.meaning: call.name for call in kept.calls}
        wanted_keys = {key.name: keys[key.expression] for key in box.input.keys}
        wanted_calls = {call.name: calls[call.meaning] for call in box.input.calls}
        notes.append(Note("roll up", f"{', '.join(map(str, box.input.calls))} -> reduced from partials that are kept",
                          "the same rows, a pane that divides this one, the same keys or more"))  # fmt: skip
        return replace(
            box,
            input=kept,
            keys=tuple((name, wanted_keys[inner]) for name, inner in box.keys),
            calls=tuple((name, wanted_calls[inner]) for name, inner in box.calls),
        )

    return bottom_up(box, change, below_kept=False), notes


def serves(kept: Partials, wanted: Partials) -> bool:
    """Whether wanted partials can be reduced from kept ones."""
    running = kept.pane is None or wanted.pane is None
    return (
        (kept.pane is wanted.pane if running else wanted.pane % kept.pane == 0)  # type: ignore[operator]
        and kept.input == wanted.input
        and kept.offset == wanted.offset
        and {key.expression for key in wanted.keys} <= {key.expression for key in kept.keys}
        and {call.meaning for call in wanted.calls} <= {call.meaning for call in kept.calls}
        and _harmless(kept, wanted)
    )


def _harmless(kept: Partials, wanted: Partials) -> bool:
    """Whether what kept partials compute beside the wanted ones is plain columns."""
    asked = {key.expression for key in wanted.keys} | {e for call in wanted.calls for e in call.expressions}
    beside = [key.expression for key in kept.keys] + [e for call in kept.calls for e in call.expressions]
    return all(e in asked or _PLAIN.fullmatch(e.text) for e in beside)
