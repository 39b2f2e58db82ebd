"""The upstream end of a stream: who reads it, and what a new reader gets (DPC 4.3, Fig. 8).

A reader says which stable item it had last and whether tentative ones followed. It gets the stable items that it
misses. If tentative ones had followed and there are stable ones to take their place, or the stream is
stable, an undo comes first. A stream that is tentative now goes on with what is tentative, from the bucket on that the
reader has not processed yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from anabranch.protocol.dpc.actions import Send
from anabranch.protocol.dpc.buffers import OutputBuffer
from anabranch.protocol.dpc.items import Boundary, Chunk, Element, Insertion, ItemId, Tentative, Undo
from anabranch.protocol.dpc.messages import Flow, Subscribe, Unsubscribe


@dataclass(slots=True)
class Channel:
    reader: str
    number: int
    tentative: bool  # whether the reader wants what is tentative
    sent: int = 0


@dataclass(slots=True)
class OutputStream:
    """What a node or a source keeps of a stream that it produces."""

    name: str
    buffer: OutputBuffer
    boundary: int = 0
    # What was said since the last undo, to be said again to new readers.
    overlay: deque[Tentative] = field(default_factory=deque)
    overlay_boundary: Boundary | None = None
    channels: dict[str, Channel] = field(default_factory=dict)
    _overlay_size: int = 0  # tuples

    def emit(self, elements: Sequence[Element]) -> list[Send]:
        """Remember what the stream says now, and send it to all readers."""
        for element in elements:
            self._remember(element)
        return [Send(channel.reader, self._flow(channel, elements)) for channel in self.channels.values()]

    def _remember(self, element: Element) -> None:
        match element:
            case Insertion(chunk):
                self.buffer.append(chunk)
            case Boundary(stime, False, _):
                self.boundary = max(self.boundary, stime)
            case Tentative():
                self.overlay.append(element)
                self._overlay_size += element.chunk.tuples
                most = self.buffer.most
                while most is not None and self._overlay_size > most:
                    self._drop_oldest()
            case Boundary(_, True, _):
                self.overlay_boundary = element
            case Undo():
                self.overlay.clear()
                self._overlay_size = 0
                self.overlay_boundary = None

    def _drop_oldest(self) -> None:
        self._overlay_size -= self.overlay.popleft().chunk.tuples

    def age(self, oldest_bucket: int) -> None:
        """Let go of buckets before one, stable and tentative, because of the window."""
        self.buffer.age(oldest_bucket)
        while self.overlay and self.overlay[0].chunk.bucket < oldest_bucket:
            self._drop_oldest()

    def subscribe(self, reader: str, wanted: Subscribe) -> Send:
        """Open a channel; an earlier one of the same reader is replaced."""
        channel = Channel(reader, wanted.channel, wanted.resume is not None)
        self.channels[reader] = channel
        flow = self._flow(channel, self.stabilise(wanted))
        if wanted.after < self.buffer.dropped:
            flow = flow._replace(lost=self.buffer.dropped)
        return Send(reader, flow)

    def unsubscribe(self, reader: str, message: Unsubscribe) -> None:
        channel = self.channels.get(reader)
        if channel is not None and channel.number == message.channel:
            del self.channels[reader]

    def stabilise(self, wanted: Subscribe) -> list[Element]:
        """What brings a reader from what it has to where the stream is."""
        missed = self.buffer.after(wanted.after)
        elements: list[Element] = [Insertion(chunk) for chunk in missed]
        if wanted.tentative and (missed or not self.overlay):
            elements.insert(0, Undo(wanted.after))
        elements.append(Boundary(self.boundary))
        resume = wanted.resume
        if resume is not None and self.overlay_boundary is not None:
            elements += [said for said in self.overlay if said.chunk.bucket >= resume]
            elements.append(self.overlay_boundary)
        return elements

    def _flow(self, channel: Channel, elements: Iterable[Element]) -> Flow:
        said = tuple(elements)
        if not channel.tentative:
            said = tuple(element for element in said if not _is_tentative(element))
        channel.sent += 1
        return Flow(self.name, channel.number, channel.sent, said)

    def restore(self, chunks: Iterable[Chunk], dropped: ItemId, boundary: int) -> None:
        """Say from now on what a replica says."""
        self.buffer.restore(chunks, dropped)
        self.boundary = boundary


def _is_tentative(element: Element) -> bool:
    return isinstance(element, Tentative) or (isinstance(element, Boundary) and element.tentative)
