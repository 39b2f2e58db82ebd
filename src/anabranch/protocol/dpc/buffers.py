"""Output buffers: stable items until every replica of every downstream neighbour has them (DPC 8.1).

Readers acknowledge what has become part of their consistent state; what all have is let go. A reader that is down
acknowledges nothing, and the buffer grows. Two limits are possible. With `most`, a full buffer blocks its node, and
the blocking goes upstream to the sources, which stop taking tuples: eventual consistency for every deterministic
diagram, availability for as long as there is room. A reader that could reconcile then does so at once, whatever else
it waits for: what it waits for may be waiting for room. With `window`, items older than that much stream time are let
go whoever needs them: for diagrams that are convergent-capable, whose state does not depend on anything older.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from anabranch.protocol.dpc.items import BEGIN, Chunk, ItemId


class OutputBuffer:
    def __init__(self, readers: Iterable[str], most: int | None = None, window: int | None = None) -> None:
        self.chunks: list[Chunk] = []
        self.size = 0  # tuples held
        self.dropped = BEGIN  # up to here nothing is held any more
        self.most = most
        self.window = window
        self.acknowledged: dict[str, ItemId] = dict.fromkeys(readers, BEGIN)
        self._everybody = BEGIN  # the least of these

    @property
    def full(self) -> bool:
        return self.most is not None and self.size >= self.most

    def append(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.size += chunk.tuples
        if chunk.last <= self._everybody:  # a replica was faster, and everybody has it from there
            self._let_go(self._everybody)

    def after(self, item: ItemId) -> list[Chunk]:
        """The chunks that come after an item."""
        start = bisect_right(self.chunks, item.bucket - 1, key=_bucket)
        found = (chunk.after(item) for chunk in self.chunks[start:])
        return [chunk for chunk in found if chunk is not None]

    def acknowledge(self, reader: str, item: ItemId) -> None:
        """A reader needs nothing up to an item any more."""
        if reader in self.acknowledged and item > self.acknowledged[reader]:
            self.acknowledged[reader] = item
            self._everybody = min(self.acknowledged.values())
            self._let_go(self._everybody)

    def age(self, oldest_bucket: int) -> None:
        """Let go of buckets before one, because of the window."""
        self._let_go(ItemId(oldest_bucket, -1))

    def _let_go(self, item: ItemId) -> None:
        gone = 0
        for chunk in self.chunks:
            if chunk.last > item:
                break
            self.size -= chunk.tuples
            gone += 1
        if gone:
            self.dropped = max(self.dropped, self.chunks[gone - 1].last)
            del self.chunks[:gone]

    def restore(self, chunks: Iterable[Chunk], dropped: ItemId) -> None:
        """Hold what a replica holds."""
        self.chunks = list(chunks)
        self.size = sum(chunk.tuples for chunk in self.chunks)
        self.dropped = dropped
        self._let_go(self._everybody)


def _bucket(chunk: Chunk) -> int:
    return chunk.bucket
