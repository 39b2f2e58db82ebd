"""Subscriptions: what a stream says, one change after the other, for programs.

A subscription gives the stable changes of a stream in their order, each once, and then waits for more.
An item's identity is (bucket, ordinal); of base streams, whose rows are in no bucket, it is (position,
ordinal). Whoever remembers the identity of the last item can go on after it. A subscription with a name
is remembered by the log: what it has not acknowledged is kept, and it goes on from there after a restart.

Tentative changes, if asked for, come after the stable ones of the bucket on which they rest, and are
undone by their inverse. They have an identity only until then, so nobody can resume from one.

Call order: make one; iterate, with `for` or `async for`; `ack()` now and then, if it has a name; `close()`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from anabranch.engine.pieces import Cursor, Pieces, Row
from anabranch.engine.tables import CHANGE_COLUMNS
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadRange
from anabranch.model.errors import AnabranchError
from anabranch.model.run import ChangeType, Stability

SHORTEST, LONGEST = 0.05, 0.5  # seconds between looks at the catalog


@dataclass(frozen=True)
class Change:
    """One item of a stream's feed. `bucket` is None in base streams, `position` where it is tentative."""

    bucket: int | None
    ordinal: int
    change_type: ChangeType
    stability: Stability
    row: Mapping[str, Any]
    position: int | None
    stime: datetime

    @property
    def at(self) -> tuple[int, int]:
        """Its identity: pass it as `after=` to go on behind it."""
        first = self.position if self.bucket is None else self.bucket
        assert first is not None
        return first, self.ordinal

    @property
    def tentative(self) -> bool:
        return self.stability is Stability.TENTATIVE


class Subscription(Iterator[Change], AsyncIterator[Change]):
    """An iterator over changes, for `for` and for `async for`; not for several threads at once."""

    def __init__(self, log: Log, stream: StreamState, readers: Sequence[Pieces], *, follow: bool, name: str | None):
        self.stream = stream.name
        self.name = name
        self._log = log
        self._state = stream
        self._readers = [_Reader(pieces) for pieces in readers]
        self._follow = follow
        self._ready: deque[Change] = deque()
        self._closed = threading.Event()
        self._last: Change | None = None
        self._pause = SHORTEST

    def __next__(self) -> Change:
        while not self._closed.is_set():
            if self._ready or self._look():
                return self._take()
            if not self._follow:
                break
            self._closed.wait(self._rest())
        raise StopIteration

    async def __anext__(self) -> Change:
        while not self._closed.is_set():
            if len(self._ready) > 0 or await asyncio.to_thread(self._look):
                return self._take()
            if not self._follow:
                break
            await asyncio.to_thread(self._closed.wait, self._rest())
        raise StopAsyncIteration

    def ack(self, change: Change | None = None) -> None:
        """Nothing up to this change, or the last one that was given, is needed any more."""
        done = self._last if change is None else change
        if self.name is None:
            raise _mistake("ack()", "a subscription with a name", "one without", "Pass name= to subscribe().")
        if done is None:
            return
        if done.position is None:
            raise _mistake("ack()", "a stable change", "a tentative one", "Acknowledge the last stable change.")
        self._log.acknowledge(self._state, self.name, done.position - 1, done.ordinal)

    def close(self) -> None:
        """End the iteration, also from another thread. What was not acknowledged is given again next time."""
        self._closed.set()

    def _take(self) -> Change:
        change = self._ready.popleft()
        self._pause = SHORTEST
        if not change.tentative:
            self._last = change
        return change

    def _rest(self) -> float:
        pause = self._pause
        self._pause = min(pause * 2, LONGEST)
        return pause

    def _look(self) -> bool:
        """Get the next changes, if there are any."""
        if all(reader.done for reader in self._readers):
            # What is stable and what is tentative are looked at in the same moment, so that their order is right.
            marks = self._log.moments.reached([reader.pieces.stream.id for reader in self._readers])
            if min(marks) < 0:
                raise AnabranchError(
                    "UNKNOWN_STREAM",
                    place=f"subscription to {self.stream!r}",
                    need="a stream that is there",
                    got="one that was dropped meanwhile",
                    next_step="Subscribe to another one.",
                )
            for reader, mark in zip(self._readers, marks, strict=True):
                reader.upto = mark
        for reader in self._readers:
            reader.fill()
        while all(reader.rows or reader.done for reader in self._readers):
            waiting = [reader for reader in self._readers if reader.rows]
            if not waiting:
                break
            first = min(waiting, key=lambda reader: (reader.rows[0]["_bucket"] or 0, self._readers.index(reader)))
            self._ready.append(_change(first.rows.popleft(), tentative=first is not self._readers[0]))
        return bool(self._ready)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Reader:
    """Pieces, and the rows of the last one that nobody has taken yet."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces
        self.rows: deque[Row] = deque()
        self.upto = 0

    @property
    def done(self) -> bool:
        return not self.rows and self.pieces.cursor.next_position > self.upto

    def fill(self) -> None:
        if not self.rows:
            self.rows.extend(self.pieces.read(self.upto))


def _change(row: Row, *, tentative: bool) -> Change:
    return Change(
        bucket=row["_bucket"],
        ordinal=row["_ordinal"],
        change_type=ChangeType(row["_change_type"]),
        stability=Stability.TENTATIVE if tentative else Stability.STABLE,
        row={name: value for name, value in row.items() if name not in CHANGE_COLUMNS},
        position=None if tentative else row["_position"],
        stime=row["_stime"],
    )


def start_of(log: Log, stream: StreamState, name: str | None, after: Any) -> tuple[Cursor, tuple[int, int] | None]:
    """Where a subscription begins, as a cursor and, in derived streams, the bucket and ordinal to leave out.

    One that the log knows by its name goes on behind what it has acknowledged; a new one is made known to it.
    """
    place = f"subscription to {stream.name!r}"
    pair = None if after is None else _checked(after, place)
    held = {p.name: p for p in log.positions_of(stream)}.get(name) if name is not None else None
    if held is not None and held.kind == "subscription":
        if pair is not None:
            raise _mistake(
                f"{place}, after=",
                f"nothing, since {name!r} goes on behind what it has acknowledged",
                repr(after),
                "Leave it out, release the subscription first, or choose another name.",
            )
        return _resumed(held.position, held.ordinal), None
    base = stream.role == "base"
    if pair is None:
        cursor = Cursor(0)
    elif base:
        cursor = Cursor(*pair)
    else:
        cursor = Cursor(log.moments.before_bucket(stream.id, pair[0]))
    if name is not None:
        first = cursor.next_position
        if first <= stream.last_position:
            log.plan(stream.name, ReadRange(first, first))  # if it is gone, nothing is remembered
        log.hold(stream, name, min(cursor.next_position - 1, stream.last_position), "subscription")
    return cursor, None if base else pair


def _resumed(position: int, ordinal: int | None) -> Cursor:
    return Cursor(position) if ordinal is None else Cursor(position + 1, ordinal)


def _checked(after: Any, place: str) -> tuple[int, int]:
    try:
        first, ordinal = after
    except (TypeError, ValueError):
        first, ordinal = None, None
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 62 for n in (first, ordinal)):
        raise _mistake(
            f"{place}, after=", "a pair of a bucket and an ordinal", repr(after), "Pass the `at` of the last change."
        )
    return first, ordinal


def _mistake(place: str, need: str, got: str, next_step: str) -> AnabranchError:
    return AnabranchError("BAD_ARGUMENT", place=place, need=need, got=got, next_step=next_step)


def check_combination(stream: StreamState, *, insert_only: bool, tentative: bool) -> None:
    """Refuse what cannot be meant."""
    place = f"subscription to {stream.name!r}, tentative="
    if tentative and insert_only:
        raise _mistake(
            place, "either tentative= or insert_only=", "both",
            "Leave one out: tentative changes are undone, and insertions alone cannot say so.",
        )  # fmt: skip
    if tentative and stream.role == "base":
        raise _mistake(
            place, "a query, which says tentative changes", "a base stream",
            "Leave it out, or read its open units of work with stream.read(tentative=True).",
        )  # fmt: skip
