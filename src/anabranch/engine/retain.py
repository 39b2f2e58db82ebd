"""Retention over a warehouse: what readers need is found out, and what nobody needs is let go of, in bounded turns.

Call order: `retain(log)` any number of times, from any process, with or without steps at work. Each call removes at
most so many segments and says whether there is more to do; one that finds nothing only reads the catalog.
"""

from __future__ import annotations

from anabranch.engine.live import Live, Recipes
from anabranch.engine.needs import needs_of, retained_streams
from anabranch.log.log import Log
from anabranch.log.retention import MOST
from anabranch.log.retention import Retained as Retained


def retain(
    log: Log, recipes: Recipes | None = None, *, only: str | None = None, most: int = MOST, unasked: bool = False
) -> Retained:
    """Let go of what nobody needs of all streams, or of `only` one: at most so many segments.

    `unasked` lets go of nothing where some bound is in rows: that is left to whoever asks for it.
    """
    live = Live(log, recipes)
    if unasked and _bounded_in_rows(live):
        return Retained()
    readers = needs_of(live)
    total = Retained()
    for state in retained_streams(live):
        if only is None or state.name == only:
            if total.segments >= most:
                return total + Retained(more=True)
            total += log.retain(state, readers, most=most - total.segments)
    return total


def _bounded_in_rows(live: Live) -> bool:
    streams = any(state.spec.history_rows is not None for state in live.log.streams())
    return streams or any(query.terms.rows is not None for query in live.queries.values())


def retain_all(log: Log, only: str | None = None) -> Retained:
    """The same until nothing is left to do."""
    total = retain(log, only=only)
    while total.more:
        later = retain(log, only=only)
        total = Retained(total.segments, total.rows, total.size) + later
    return total
