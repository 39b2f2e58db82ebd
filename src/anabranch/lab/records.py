"""What was seen of a run: by those who listen at a stream's end, and by the client."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.protocol.dpc.items import Boundary, Chunk, Element, Insertion, ItemId, RecDone, Tentative, Undo, by_stime
from anabranch.protocol.dpc.states import State


@dataclass
class StreamRecord:
    """What one incarnation of a replica has said on a stream."""

    node: str
    stream: str
    since: int
    stable: list[Chunk] = field(default_factory=list)
    repeated: list[ItemId] = field(default_factory=list)  # stable items that it said before
    undos: int = 0
    rec_dones: int = 0
    tentative: int = 0  # tuples
    last: ItemId | None = None

    def say(self, elements: Sequence[Element]) -> None:
        for element in elements:
            match element:
                case Insertion(chunk):
                    if self.last is not None and ItemId(chunk.bucket, chunk.first) <= self.last:
                        self.repeated.append(ItemId(chunk.bucket, chunk.first))
                    self.last = chunk.last
                    self.stable.append(chunk)
                case Tentative(chunk):
                    self.tentative += chunk.tuples
                case Undo():
                    self.undos += 1
                case RecDone():
                    self.rec_dones += 1


@dataclass
class Point:
    """An element as a client got it, for plots: when, which kind, and how far the sequence had come."""

    time: int
    kind: str
    place: int
    tuples: int


@dataclass
class ClientRecord:
    """What a client got of a stream."""

    client: str
    stream: str
    stable: list[Chunk] = field(default_factory=list)
    standing: list[Chunk] = field(default_factory=list)  # tentative, and not undone
    points: list[Point] = field(default_factory=list)
    reached: list[tuple[int, int]] = field(default_factory=list)  # when, and until which stream time anything came
    tentative: int = 0  # tuples
    tentative_from: list[tuple[int, str]] = field(default_factory=list)  # when, and from whom
    undos: int = 0
    rec_dones: int = 0
    newest: int = -1
    latency: int = 0  # the most of any new tuple: Proc_new
    latencies: list[tuple[int, int]] = field(default_factory=list)  # each new chunk's, if asked for: latency, tuples
    detailed: bool = False

    def deliver(self, elements: Sequence[Element], sender: str, now: int) -> None:
        for element in elements:
            match element:
                case Insertion(chunk):
                    self.stable.append(chunk)
                    self._new(chunk, now, "stable")
                case Tentative(chunk):
                    self.standing.append(chunk)
                    self.tentative += chunk.tuples
                    if not self.tentative_from or self.tentative_from[-1] != (now, sender):
                        self.tentative_from.append((now, sender))
                    self._new(chunk, now, "tentative")
                case Boundary(stime, _, _):
                    if not self.reached or stime > self.reached[-1][1]:
                        self.reached.append((now, stime))
                case Undo():
                    self.standing.clear()
                    self.undos += 1
                    if self.detailed:
                        self.points.append(Point(now, "undo", 0, 0))
                case RecDone():
                    self.rec_dones += 1
                    if self.detailed:
                        self.points.append(Point(now, "rec-done", 0, 0))

    def _new(self, chunk: Chunk, now: int, kind: str) -> None:
        first = bisect_right(chunk.items, self.newest, key=by_stime)
        if first < len(chunk.items):
            self.latency = max(self.latency, now - chunk.items[first].stime)
            if self.detailed:
                self.latencies += [(now - item.stime, item.tuples) for item in chunk.items[first:]]
            self.newest = chunk.items[-1].stime
        elif kind == "stable":
            kind = "corrected"
        if self.detailed and chunk.items:
            self.points.append(Point(now, kind, chunk.items[-1].stime, chunk.tuples))


@dataclass
class StateRecord:
    """When a replica's stream was in which state."""

    changes: list[tuple[int, State]] = field(default_factory=list)

    def at(self, time: int) -> State:
        index = bisect_right(self.changes, time, key=lambda change: change[0])
        return self.changes[index - 1][1] if index else State.FAILURE
