"""The entry point: the proxy of a data source (DPC 2.2).

Only it stamps. It numbers what comes in `max(last + 1, clock)`, makes it durable, and only then sends it to whoever
reads. A boundary promises that every later stamp is at least as high. Its log survives a restart, and it never stamps
at or below what it has logged. A reader that was away gets what it missed from the log. Where a limit is set and
readers do not keep up, it refuses new tuples rather than to take what could not be corrected (8.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.model.stamp import next_stime
from anabranch.protocol.dpc.actions import Action, Emitted, Persist, Received, Send
from anabranch.protocol.dpc.buffers import OutputBuffer
from anabranch.protocol.dpc.items import Boundary, Element, Insertion, Item, chunked
from anabranch.protocol.dpc.messages import Heartbeat, HeartbeatRequest, Subscribe, Unsubscribe
from anabranch.protocol.dpc.states import State
from anabranch.protocol.dpc.subscription import OutputStream


class EntryPoint:
    def __init__(self, name: str, stream: str, bucket: int, readers: Sequence[str], *, most: int | None = None) -> None:
        self.name = name
        self.stream = stream
        self.bucket = bucket
        self.refused = 0  # tuples that were not taken
        self._most = most
        self._readers = tuple(readers)
        self._incarnation = 0
        self._last = 0
        self._ordinals: dict[int, int] = {}
        self._out = self._fresh()

    def _fresh(self) -> OutputStream:
        return OutputStream(self.stream, OutputBuffer(self._readers))

    def start(self, incarnation: int, logged: Sequence[Item] = ()) -> None:
        """Begin, or begin again with what the log holds."""
        self._incarnation = incarnation
        self._out = self._fresh()
        self._ordinals = {}
        for chunk in chunked(list(logged), self.bucket, self._ordinals):
            self._out.buffer.append(chunk)
        self._last = max([self._last, *(item.stime for item in logged[-1:])])

    def offer(self, bodies: Sequence[tuple[Any, int]], now: int, boundary: bool = False) -> list[Action]:
        """Take rows, each a body and how many tuples it stands for; with a boundary if one is due."""
        items: list[Item] = []
        held = self.waiting
        for body, count in bodies:
            if self._most is not None and held + count > self._most:
                self.refused += count
                continue
            held += count
            self._last = next_stime(self._last, now)
            items.append(Item(self._last, body, count))
        elements: list[Element] = [Insertion(c) for c in chunked(items, self.bucket, self._ordinals)]
        if boundary:
            promise = max(now, self._last)
            elements.append(Boundary(promise))
            self._last = max(self._last, promise - 1)  # also if the clock goes back
        if not elements:
            return []
        self._tidy()
        durable: list[Action] = [Persist(self.stream, tuple(items))] if items else []
        return [*durable, Emitted(self.stream, tuple(elements)), *self._out.emit(elements)]

    def boundary(self, now: int) -> list[Action]:
        """Promise that nothing earlier follows."""
        return self.offer((), now, boundary=True)

    @property
    def waiting(self) -> int:
        """Tuples that some reader has not made part of its state."""
        return self._out.buffer.size

    def _tidy(self) -> None:
        if len(self._ordinals) > 8:
            newest = max(self._ordinals)
            self._ordinals = {newest: self._ordinals[newest]}

    def handle(self, event: Received, now: int) -> list[Action]:
        sender, message = event
        match message:
            case HeartbeatRequest(sent, received):
                if self.stream in received and self._most is not None:
                    self._out.buffer.acknowledge(sender, received[self.stream])
                return [Send(sender, Heartbeat(sent, self._incarnation, {self.stream: State.STABLE}))]
            case Subscribe():
                return [self._out.subscribe(sender, message)]
            case Unsubscribe():
                self._out.unsubscribe(sender, message)
        return []
