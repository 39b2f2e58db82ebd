"""SOutput: the end of a line, where a stream leaves its node (DPC 4.4.2).

It passes everything through and remembers the last stable item. While the line reconciles its state, stable items
that were said before are dropped; the first new one, or another tentative one, is preceded by a single undo; a
rec-done ends the corrections. What a stream has said is thus always stable items, then perhaps tentative ones; an
undo takes only tentative ones back.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.protocol.dpc.items import (
    BEGIN,
    Boundary,
    Element,
    Insertion,
    Item,
    ItemId,
    RecDone,
    Tentative,
    Undo,
    chunked,
)


class SOutput:
    def __init__(self, bucket: int, *, drop_duplicates: bool = True, undo: bool = True) -> None:
        self.bucket = bucket
        self.last = BEGIN  # the last stable item
        self.until = 0  # the last stable boundary
        self.tentative = False  # whether tentative items followed
        self._redoing = False  # an undo is due
        self._ordinals: dict[int, int] = {}
        self._tentative_ordinals: dict[int, int] = {}
        self._saved: dict[int, int] = {}
        # Rules that the lab can switch off, to see what they are for.
        self._drop_duplicates = drop_duplicates
        self._undo = undo

    def stable(self, items: Sequence[Item], end: int) -> list[Element]:
        """What a piece of stable work says: items in order, then the boundary."""
        said: list[Element] = []
        for chunk in chunked(items, self.bucket, self._ordinals):
            new = chunk.after(self.last) if self._drop_duplicates else chunk
            if new is None:
                continue
            said += self._undone()
            said.append(Insertion(new))
            self.last = max(self.last, new.last)
        self._forget_ordinals(end)
        if end > self.until:
            said += self._undone()
            said.append(Boundary(end))
            self.until = end
        return said

    def provisional(self, items: Sequence[Item], end: int, delayed: int) -> list[Element]:
        """What a piece of tentative work says."""
        said = self._undone()
        if not self.tentative:  # it goes on where the stable items end
            self._tentative_ordinals = dict(self._ordinals)
            self.tentative = True
        chunks = chunked(items, self.bucket, self._tentative_ordinals)
        said += [Tentative(chunk, delayed) for chunk in chunks]
        said.append(Boundary(end, tentative=True, delayed=delayed))
        return said

    def checkpoint(self) -> None:
        """Remember where the numbering stands."""
        self._saved = dict(self._ordinals)

    def redo(self, fresh: bool = False) -> None:
        """The line goes back to its checkpoint, or begins anew: what comes next may have been said."""
        self._redoing = self.tentative or self._redoing
        self._ordinals = {} if fresh else dict(self._saved)

    def end(self) -> list[Element]:
        """The line has caught up, or fails again: nothing more is corrected."""
        return [*self._undone(), RecDone()]

    def _undone(self) -> list[Element]:
        if not self._redoing:
            return []
        self._redoing = self.tentative = False
        return [Undo(self.last)] if self._undo else []

    def _forget_ordinals(self, end: int) -> None:
        if len(self._ordinals) > 64:
            low = end // self.bucket
            self._ordinals = {bucket: n for bucket, n in self._ordinals.items() if bucket >= low}

    # What a replica takes over.

    @property
    def ordinals(self) -> dict[int, int]:
        return dict(self._ordinals)

    def restore(self, last: ItemId, ordinals: dict[int, int], until: int) -> None:
        self.last = last
        self._ordinals = dict(ordinals)
        self.until = until
