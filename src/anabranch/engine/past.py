"""Which queries answer otherwise if rows come in other buckets.

What a query has emitted adds up to what one batch over all rows would give, however they were cut into buckets, unless
the query asks for something else: what a table held in the bucket in which a row came (LOOKUP WITHOUT REVISION), which
revisions are worth it and when (ON REVISION IGNORE, REVISE ...), or what lay beyond a history bound then, its own or
that of a stream that it reads. To compute these again as of a past bucket they are taken through the buckets in turn.
"""

from __future__ import annotations

from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.limits import NO_LIMITS
from anabranch.diagram.stages import boxes_of
from anabranch.engine.live import Live, LiveQuery


def bucket_dependent(live: Live) -> frozenset[str]:
    """The names of those queries, and of stages behind them."""
    return frozenset(query.name for query in live.queries.values() if _depends(live, query))


def _depends(live: Live, query: LiveQuery) -> bool:
    if query.limits != NO_LIMITS or query.revise_every != 1:
        return True
    if any(isinstance(box, Lookup) for box in boxes_of(query.plan)):
        return True
    base = [name for name in query.reads if name not in live.queries]
    return any(live.stream(name).spec.history is not None for name in base)
