"""SUnion: serialises its inputs, and decides when what is incomplete is processed (DPC 4.2, 6).

Stream time is cut into buckets of one size, the same everywhere. A bucket is *stable* when the boundary of every
input has passed its end: then its items, in the order of (stream time, input, place in the input), are the same at
every replica (equation 1, Fig. 7). Where every input is ordered, items are released before their bucket ends, as soon
as every input has shown a later one (section 7).

Stable and tentative items of an input are kept apart. `frontier` is how far stable processing has come, `overlay` how
far tentative processing has; stable items stay until `forget` says that no checkpoint needs them.

Two moments decide how long an incomplete bucket may wait: when it began to come, and when the boundaries of all inputs
last moved. The second is what makes all SUnions downstream of a failure wait at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from anabranch.protocol.dpc.delays import Delays, Policy
from anabranch.protocol.dpc.items import Chunk, Item, Tentative


@dataclass(slots=True)
class Port:
    """What an SUnion has of one input."""

    stable: dict[int, list[Item]] = field(default_factory=dict)
    boundary: int = 0
    tentative: dict[int, list[Item]] = field(default_factory=dict)
    tentative_boundary: int = 0
    delayed: dict[int, int] = field(default_factory=dict)
    lost: bool = False  # nothing is to be expected of it: it is not waited for

    @property
    def cover(self) -> int:
        """Up to here all that there is has come, stable or tentative."""
        return max(self.boundary, self.tentative_boundary)


class SUnion:
    def __init__(self, inputs: Sequence[str], bucket: int, *, ordered: bool = False, since: int = 0) -> None:
        self.bucket = bucket
        self.ordered = ordered
        self.ports = {name: Port() for name in inputs}
        self.frontier = 0
        self.overlay: int | None = None
        self.moved = since  # when the boundaries of all inputs last moved
        self.arrived: dict[int, int] = {}  # when a bucket began to come
        self.held = 0  # tuples kept
        self._until = 0
        self._forgotten = 0  # buckets before this one are not needed any more

    # What comes in.

    def insert(self, name: str, chunk: Chunk, now: int) -> None:
        """Stable items of an input."""
        if chunk.bucket >= self._forgotten:
            self.ports[name].stable.setdefault(chunk.bucket, []).extend(chunk.items)
            self.held += chunk.tuples
            self.arrived.setdefault(chunk.bucket, now)
        if self.ordered and chunk.items:
            self.boundary(name, chunk.items[-1].stime, now)

    def boundary(self, name: str, stime: int, now: int) -> None:
        """An input promises that no stable item before this stream time follows."""
        port = self.ports[name]
        if stime <= port.boundary:
            return
        self._note_arrival(port.boundary, stime, now)
        port.boundary = stime
        until = min(p.boundary for p in self.ports.values())
        if not self.ordered:
            until -= until % self.bucket
        if until > self._until:
            self._until = until
            self.moved = now

    def tentative(self, name: str, said: Tentative, now: int) -> None:
        """Tentative items of an input; what belongs to a bucket that was processed comes too late to matter."""
        bucket = said.chunk.bucket
        reached = self.frontier if self.overlay is None else self.overlay
        if (bucket + 1) * self.bucket <= reached:
            return
        port = self.ports[name]
        port.tentative.setdefault(bucket, []).extend(said.chunk.items)
        port.delayed[bucket] = max(said.delayed, port.delayed.get(bucket, 0))
        self.held += said.chunk.tuples
        self.arrived.setdefault(bucket, now)

    def tentative_boundary(self, name: str, stime: int, now: int, delayed: int = 0) -> None:
        """An input has said all that is tentative before this stream time."""
        port = self.ports[name]
        bucket = stime // self.bucket - 1
        port.delayed[bucket] = max(delayed, port.delayed.get(bucket, 0))
        self._note_arrival(port.tentative_boundary, stime, now)
        port.tentative_boundary = max(port.tentative_boundary, stime)

    def undo(self, name: str) -> None:
        """Forget what is tentative of an input."""
        port = self.ports[name]
        self.held -= _count(port.tentative.values())
        port.tentative.clear()
        port.delayed.clear()
        port.tentative_boundary = 0

    def _note_arrival(self, before: int, stime: int, now: int) -> None:
        low = max(before, self.frontier if self.overlay is None else self.overlay) // self.bucket
        for bucket in range(low, stime // self.bucket):
            self.arrived.setdefault(bucket, now)

    # What is ready.

    @property
    def stable_until(self) -> int:
        """Everything before this stream time can be put in its final order."""
        return self._until

    @property
    def stable_ready(self) -> bool:
        return self._until > self.frontier

    def span(self, start: int) -> tuple[int, int]:
        """The piece of work that begins at a stream time: to the end of its bucket."""
        return start, (start // self.bucket + 1) * self.bucket

    def stable_span(self) -> tuple[int, int]:
        start, end = self.span(self.frontier)
        return start, min(end, self._until)

    def tentative_span(self) -> tuple[int, int]:
        return self.span(self.frontier if self.overlay is None else self.overlay)

    def tentative_due(self, delays: Delays, covering: bool) -> int | None:
        """When the next bucket is to be processed although it is not stable; None if nothing of it is there.

        It may also be a time that has passed.
        """
        start, end = self.tentative_span()
        came = self.arrived.get(start // self.bucket)
        if came is None:
            return None
        delayed = max((port.delayed.get(start // self.bucket, 0) for port in self.ports.values()), default=0)
        policy = delays.policy(covering)
        if self.overlay is None:
            if delays.failure is Policy.SUSPEND:
                return None
            due = min(self.moved, came) + delays.first
            if delays.budget is not None:
                due = min(due, came + max(0, delays.budget - delayed))
            return max(due, self._settled(came, end, delays))
        if policy is Policy.SUSPEND:
            return None
        if policy is Policy.DELAY:
            return came + delays.wait(delayed)
        return self._settled(came, end, delays)

    def _settled(self, came: int, end: int, delays: Delays) -> int:
        """When a bucket is complete as far as it can be: at once if all say so, or after a while."""
        for port in self.ports.values():
            cover = port.cover if delays.tentative_boundaries else port.boundary
            if cover < end and not port.lost:
                return came + delays.settle
        return came

    # What goes out.

    def take(self, start: int, end: int, tentative: bool) -> tuple[dict[str, list[Item]], frozenset[str], int]:
        """The items of a span by input, the inputs of which it is incomplete, and the most that any was delayed."""
        bucket = start // self.bucket
        whole = start % self.bucket == 0 and end - start == self.bucket
        found: dict[str, list[Item]] = {}
        missing = set()
        delayed = 0
        for name, port in self.ports.items():
            items = port.stable.get(bucket, [])
            if tentative and port.boundary < end:
                items = [*items, *port.tentative.get(bucket, ())]
                delayed = max(delayed, port.delayed.get(bucket, 0))
                if port.tentative_boundary < end:
                    missing.add(name)
            if not whole:
                items = [item for item in items if start <= item.stime < end]
            found[name] = items
        return found, frozenset(missing), delayed

    def since(self, start: int, now: int) -> int:
        """When the bucket of a stream time began to come."""
        return self.arrived.get(start // self.bucket, now)

    def processed(self, end: int, tentative: bool) -> None:
        """A span was processed up to its end."""
        if not tentative:
            self.frontier = end
            return
        self.overlay = end
        done = end // self.bucket  # what is tentative is never processed again
        for port in self.ports.values():
            gone = [bucket for bucket in port.tentative if bucket < done]
            self.held -= _count(port.tentative.pop(bucket) for bucket in gone)
            for bucket in [bucket for bucket in port.delayed if bucket < done]:
                del port.delayed[bucket]

    def rewind(self, frontier: int) -> None:
        """Back to a checkpoint; what was tentative is dropped, what is still to come of it stays."""
        self.frontier = frontier
        self.overlay = None

    def forget(self, before: int) -> None:
        """Nothing before this stream time will be needed again."""
        low = before // self.bucket
        for bucket in range(self._forgotten, low):
            for port in self.ports.values():
                for kept in (port.stable, port.tentative):
                    if bucket in kept:
                        self.held -= _count([kept.pop(bucket)])
            self.arrived.pop(bucket, None)
        self._forgotten = max(self._forgotten, low)


def _count(lists: Iterable[Sequence[Item]]) -> int:
    return sum(item.tuples for items in lists for item in items)
