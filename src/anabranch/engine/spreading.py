"""Spreading rows by a hash of their keys, so that a step with few keys opens few segments, whatever the keys are.

Numbers that are given one after the other are found by their range (`engine/key_ranges.py`); random ones, such as
UUIDs, are in every range. Where there are many rows, they are therefore cut by the lowest bits of Spark's
XXHASH64 of their keys: into twice as many parts when there are twice as many rows, up to a most, so that each
part has about as many. A segment tells how many bits it was cut by, and which parts it has; one that tells nothing can
hold any key. The bits of a key do not depend on the others, so segments that were cut by different numbers of
bits are looked for with the same hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.columnar.kinds import Kind, NotProven
from anabranch.engine.columnar.hashes import hashed, require_hashable
from anabranch.log.segments import SegmentLayout, write_segments
from anabranch.model.run import Role, Segment
from anabranch.model.schema import Schema

MOST_BITS = 8
PART_ROWS = 512
LEAST_ROWS = 16_384  # fewer are not worth cutting
# So many rows that are read again are worth being spread by keys, and finding out which keys are wanted.
WORTH_SPREADING = 50_000
_MOST_TOLD = 64  # a segment with more parts than these may as well have all
_BITS, _PARTS = "bits", "parts"


def bits_for(rows: int) -> int:
    """By how many bits so many rows are cut."""
    return 0 if rows < LEAST_ROWS else min((rows // PART_ROWS).bit_length() - 1, MOST_BITS)


def part_sql(keys: Sequence[str], bits: int) -> str:
    """The part that a row is in, as SQL of Spark's."""
    return f"PMOD(XXHASH64({', '.join(keys)}), {1 << bits}L)" if keys and bits else "0L"


@dataclass(frozen=True)
class Parts:
    """Some parts of all that there are with so many bits."""

    bits: int
    numbers: frozenset[int]

    def options(self) -> dict[str, object]:
        """As a segment tells it."""
        return {_BITS: self.bits, _PARTS: sorted(self.numbers)}

    @classmethod
    def of(cls, segment: Segment) -> Parts | None:
        """What a segment tells; None if it can hold any key."""
        if _BITS not in segment.options:
            return None
        return cls(int(segment.options[_BITS]), frozenset(segment.options[_PARTS]))

    def meets(self, other: Parts) -> bool:
        """Whether a key can be in both."""
        bits = min(self.bits, other.bits)
        return not self.cut(bits).isdisjoint(other.cut(bits))

    def cut(self, bits: int) -> set[int]:
        return {number & ((1 << bits) - 1) for number in self.numbers}


def holding(segments: Iterable[Segment], wanted: Parts | None) -> list[Segment]:
    """The segments that can hold keys in some parts."""
    if wanted is None:
        return list(segments)
    there = [(segment, Parts.of(segment)) for segment in segments]
    return [segment for segment, parts in there if parts is None or parts.meets(wanted)]


def wanted_parts(segments: Iterable[Segment]) -> Parts | None:
    """The parts of which some segments have keys; None if one does not tell."""
    told = [Parts.of(segment) for segment in segments]
    known = [parts for parts in told if parts is not None]
    if len(known) < len(told) or not known:
        return None
    bits = min(parts.bits for parts in known)
    return Parts(bits, frozenset(number for parts in known for number in parts.cut(bits)))


def spread_keys(box: Partials, schema: Schema) -> tuple[str, ...]:
    """The keys by whose hash the partial results of a box are found; none where there are panes to find them by."""
    names = tuple(key.name for key in box.keys)
    if box.pane is not None:
        return ()
    try:
        for name in names:
            require_hashable(Kind.of(schema[name].type))
    except NotProven:
        return ()
    return names


def write_spread(layout: SegmentLayout, table: pa.Table, role: Role) -> Iterator[Segment]:
    """Write rows as segments that tell which keys they can have, one for each part if the rows are many."""
    if not layout.spread or not table.num_rows:
        yield from write_segments(layout, table, role)
        return
    columns = [table[name].combine_chunks() for name in layout.spread]
    numbers = hashed(columns, table.num_rows).to_numpy() & ((1 << MOST_BITS) - 1)
    bits = bits_for(table.num_rows) if layout.cut_parts else 0
    if not bits:
        told = frozenset(np.unique(numbers).tolist())
        for segment in write_segments(layout, table, role):
            yield telling(segment, Parts(MOST_BITS, told)) if len(told) <= _MOST_TOLD else segment
        return
    parts = numbers & ((1 << bits) - 1)
    for part in np.unique(parts).tolist():
        for segment in write_segments(layout, table.filter(pa.array(parts == part)), role):
            yield telling(segment, Parts(bits, frozenset([part])))


def telling(segment: Segment, parts: Parts) -> Segment:
    return replace(segment, options={**segment.options, **parts.options()})
