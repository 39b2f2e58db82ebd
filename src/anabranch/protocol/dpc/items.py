"""What flows on a stream (DPC 4.1, Table I).

An item has a stream time and a body that the protocol never opens; it may stand for several tuples of one
instant. Items travel in chunks, consecutive items of one bucket, so an item's identity is (bucket, ordinal), the
same at every replica once it is stable. A stream is a sequence of five kinds of element:

    Insertion   stable items: final values in final order
    Tentative   items that result from a subset of the inputs, and may be corrected
    Boundary    no item that follows has an earlier stream time
    Undo        forget every item after this one
    RecDone     the corrections end here

Beside the data, SUnion and SOutput tell the consistency manager of three things: `Control`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import StrEnum
from operator import itemgetter
from typing import Any, NamedTuple


class TupleType(StrEnum):
    """The types of Table I that flow between nodes."""

    INSERTION = "insertion"
    TENTATIVE = "tentative"
    BOUNDARY = "boundary"
    UNDO = "undo"
    REC_DONE = "rec-done"


class Control(StrEnum):
    """The types of Table I that stay within a node: signals to the consistency manager."""

    UP_FAILURE = "up-failure"  # SUnion: entering an inconsistent state
    REC_REQUEST = "rec-request"  # SUnion: the input was corrected, the state can be reconciled
    REC_DONE = "rec-done"  # SOutput: the corrections are out


class Item(NamedTuple):
    stime: int  # stream time, microseconds
    body: Any = None
    tuples: int = 1  # how many tuples it stands for


class ItemId(NamedTuple):
    """Which item of a stream: compares as the stream is ordered."""

    bucket: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.bucket}.{self.ordinal}"


BEGIN = ItemId(-1, -1)  # before every item


class Chunk(NamedTuple):
    """Consecutive items of one bucket."""

    bucket: int
    first: int  # ordinal of the first of them
    items: tuple[Item, ...]

    @property
    def last(self) -> ItemId:
        return ItemId(self.bucket, self.first + len(self.items) - 1)

    @property
    def tuples(self) -> int:
        return sum(item.tuples for item in self.items)

    def after(self, item: ItemId) -> Chunk | None:
        """The part of it that comes after an item; None if there is none."""
        if self.bucket > item.bucket or (self.bucket == item.bucket and self.first > item.ordinal):
            return self
        if self.last <= item:
            return None
        skipped = item.ordinal + 1 - self.first
        return Chunk(self.bucket, item.ordinal + 1, self.items[skipped:])


class Insertion(NamedTuple):
    chunk: Chunk


class Tentative(NamedTuple):
    chunk: Chunk
    delayed: int = 0  # by how much SUnions upstream have delayed it on purpose, added up (6.3)


class Boundary(NamedTuple):
    stime: int
    tentative: bool = False  # the promise holds for what is tentative only
    delayed: int = 0  # as of tentative items: also a bucket without any was delayed


class Undo(NamedTuple):
    last: ItemId  # the last item that is not undone


class RecDone(NamedTuple):
    pass


Element = Insertion | Tentative | Boundary | Undo | RecDone

TYPE_OF: dict[type[Any], TupleType] = {
    Insertion: TupleType.INSERTION,
    Tentative: TupleType.TENTATIVE,
    Boundary: TupleType.BOUNDARY,
    Undo: TupleType.UNDO,
    RecDone: TupleType.REC_DONE,
}

by_stime = itemgetter(0)


def serialised(inputs: Iterable[Sequence[Item]]) -> list[Item]:
    """The one order of the items of several inputs: by stream time, then input, then place in the input."""
    return sorted((item for part in inputs for item in part), key=by_stime)


def chunked(items: Sequence[Item], size: int, ordinals: dict[int, int]) -> list[Chunk]:
    """Items in stream-time order cut into chunks by bucket; `ordinals` has the next ordinal of each bucket."""
    chunks = []
    start = 0
    while start < len(items):
        bucket = items[start].stime // size
        end = bisect_left(items, (bucket + 1) * size, lo=start, key=by_stime)
        first = ordinals.get(bucket, 0)
        chunks.append(Chunk(bucket, first, tuple(items[start:end])))
        ordinals[bucket] = first + end - start
        start = end
    return chunks
