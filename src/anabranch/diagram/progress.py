"""How progress passes through boxes (design of the two clocks: docs/concepts.md).

Union and Join take the minimum of their inputs, and a left outer Join less its band, since a left row may wait
that long for a partner. An Aggregate over windows gives the next unclosed close minus one microsecond, and
Resample, whose windows end with an instant of its grid, the first instant not yet emitted. A Lookup goes by its
stream alone: nobody waits for the table. Every other box passes on the progress of its input: Filter, Map,
Sort, windows of rows, first rows, running aggregates.

An input whose progress is unknown makes it unknown. What has no place in time, a table, is never waited
for: its progress is far ahead, and neither it nor what reads nothing else shows any.

A history bound counts from how far event time has *passed*, which is the same without that leap of windows: else a
bound behind windows of two hours would be up to two hours shorter, depending on when one looks.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Consolidate
from anabranch.diagram.boxes.source import Source
from anabranch.model.window import Window


def progress_of(box: Box, streams: Mapping[str, int | None], *, leap: bool = True) -> int | None:
    """The progress of what comes out of a box, from that of the base streams; without a `leap`, what has passed."""
    if isinstance(box, Source):
        return streams.get(box.stream)
    before = progress_into(box, streams, leap=leap)
    window = window_of(box) if leap else None
    if isinstance(box, Join) and box.outer and box.within is not None and before is not None:
        return before - box.within  # a left row may still be said without a partner
    return window.progress(before) if window else before


def progress_into(box: Box, streams: Mapping[str, int | None], *, leap: bool = True) -> int | None:
    """The progress of what goes into a box: what closes its windows; without a `leap`, what has passed."""
    terms = [progress_of(part, streams, leap=leap) for part in _awaited(box)]
    known = [term for term in terms if term is not None]
    return min(known) if len(known) == len(terms) else None


def _awaited(box: Box) -> tuple[Box, ...]:
    """The inputs whose progress counts."""
    return box.inputs[:1] if isinstance(box, Lookup) else box.inputs


def is_timeless(box: Box, tables: Container[str]) -> bool:
    """Whether nothing that a box waits for has a place in time, because it comes from tables."""
    if isinstance(box, Source):
        return box.stream in tables
    return all(is_timeless(part, tables) for part in _awaited(box))


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
