"""Which segments of running partial results can hold some keys: the index of live rows, and other totals.

Partial results without panes have no event time to find them by. Their segments are sorted by key, and
their headers tell the range of the first one. So a step whose new rows have keys in a narrow range, as numbers
that are given one after the other have, opens few of them, however many keys there are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from anabranch.diagram.boxes.partials import Partials
from anabranch.model.run import Segment
from anabranch.model.schema import Schema
from anabranch.model.stream import StreamSpec

_ORDERED = re.compile(r"TINYINT|SMALLINT|INT|BIGINT|DECIMAL.*|STRING|DATE|TIMESTAMP")
_WHOLE = re.compile("TINYINT|SMALLINT|INT|BIGINT")

Range = tuple[Any, Any]


def ranged_key(box: Partials, schema: Schema) -> tuple[str, ...]:
    """The key of which headers tell the range; none where there are panes, or where its values have no plain order."""
    if box.pane is not None or not box.keys:
        return ()
    first = box.keys[0].name
    return (first,) if _ORDERED.fullmatch(schema[first].type) else ()


def range_of(segment: Segment, kind: str) -> Range | None:
    """The range of a segment's keys; None if it is not known."""
    if segment.key_min is None or segment.key_max is None:
        return None
    low, high = json.loads(segment.key_min), json.loads(segment.key_max)
    # Decimals are written as text so that they stay exact, and must not be compared as such.
    return (Decimal(low), Decimal(high)) if kind.startswith("DECIMAL") else (low, high)


def holding(segments: Sequence[Segment], wanted: Sequence[Segment], kind: str) -> list[Segment]:
    """The segments that can hold a key of wanted ones."""
    ranges = [range_of(segment, kind) for segment in wanted]
    known = [found for found in ranges if found is not None]
    if len(known) < len(ranges):
        return list(segments)

    def meets(segment: Segment) -> bool:
        mine = range_of(segment, kind)
        return mine is None or any(low <= mine[1] and mine[0] <= high for low, high in known)

    return [segment for segment in segments if meets(segment)]


def are_mixed(segments: Sequence[Segment], spec: StreamSpec) -> bool:
    """Whether the ranges of segments tell little of where a key is, because most of them overlap others."""
    if not spec.key:
        return True
    ranges = [range_of(segment, spec.schema[spec.key[0]].type) for segment in segments]
    known = sorted(found for found in ranges if found is not None)
    if len(known) < len(ranges):
        return True
    overlapping, reached = 0, None
    for low, high in known:
        overlapping += reached is not None and low <= reached
        reached = high if reached is None else max(reached, high)
    return 2 * overlapping > len(known)


def between(key: str, wanted: Sequence[Segment], kind: str) -> str:
    """A condition that all keys of wanted segments meet, and with which files can be read in part."""
    ranges = [range_of(segment, kind) for segment in wanted]
    known = [found for found in ranges if found is not None]
    if not known or len(known) < len(ranges) or not _WHOLE.fullmatch(kind):
        return "TRUE"
    return f"{key} BETWEEN {min(low for low, _ in known)} AND {max(high for _, high in known)}"
