"""How progress passes through boxes (design of the two clocks: docs/concepts.md).

Filter, Map and View pass it on, Union and Join take the minimum, a left outer Join less its band, an
aggregate over windows gives the next unclosed close minus one microsecond, and a running one passes on
what it has.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Consolidate
from anabranch.diagram.boxes.source import Source
from anabranch.model.window import Window


def progress_of(box: Box, streams: Mapping[str, int | None]) -> int | None:
    """The progress of what comes out of a box, from that of the base streams."""
    if isinstance(box, Source):
        return streams.get(box.stream)
    before = progress_into(box, streams)
    window = window_of(box)
    if isinstance(box, Join) and box.outer and box.within is not None and before is not None:
        return before - box.within  # a left row may still be said without a partner
    return window.progress(before) if window else before


def progress_into(box: Box, streams: Mapping[str, int | None]) -> int | None:
    """The progress of what goes into a box: what closes its windows."""
    inputs = box.inputs[:1] if isinstance(box, Lookup) else box.inputs  # nobody waits for the table
    terms = [progress_of(part, streams) for part in inputs]
    known = [term for term in terms if term is not None]
    return min(known) if len(known) == len(terms) else None


def has_event_time(box: Box) -> bool:
    """Whether the rows of a box have event times: a running aggregate's have none."""
    if isinstance(box, Source):
        return True
    if isinstance(box, Map) and box.time is not None:
        return True
    if isinstance(box, Counts):
        return True
    if isinstance(box, Aggregate | Consolidate):
        return box.window is not None
    if isinstance(box, Lookup):
        return has_event_time(box.parts[0])
    some = any if isinstance(box, Join) else all  # a pair has the event time of either
    return some(map(has_event_time, box.inputs))


def window_of(box: Box) -> Window | None:
    return box.window if isinstance(box, Aggregate | Consolidate) else None


def sources_of(box: Box) -> tuple[str, ...]:
    """The streams that a diagram reads, each once."""
    return tuple(dict.fromkeys(b.stream for b in box.walk() if isinstance(b, Source)))


def top_aggregate(box: Box) -> Aggregate | Consolidate | None:
    """The aggregate whose groups are the rows of the answer; None for a diagram of linear boxes."""
    while not isinstance(box, Aggregate | Consolidate):
        if len(box.inputs) != 1:
            return None
        box = box.inputs[0]
    return box
