"""What nodes say to one another.

Each message states a fact that stays true. The elements of a stream travel in channels: a subscription opens
one, its messages are numbered, and a message that is missing is noticed at the next, so that a lost connection
needs nothing but subscribing again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from anabranch.protocol.dpc.items import Chunk, Element, ItemId
from anabranch.protocol.dpc.states import State


class Subscribe(NamedTuple):
    """Send me the stream from here on: what I have of it (4.3, Fig. 8)."""

    stream: str
    channel: int
    after: ItemId  # the last stable item that I have
    tentative: bool  # whether tentative ones followed it
    resume: int | None = None  # of what is tentative I need buckets from this one on; None: none of it


class Unsubscribe(NamedTuple):
    stream: str
    channel: int


class Flow(NamedTuple):
    """A stretch of a stream."""

    stream: str
    channel: int
    number: int
    elements: tuple[Element, ...]
    lost: ItemId | None = None  # what you miss up to here is not held any more


class HeartbeatRequest(NamedTuple):
    """Are you there, and in which state? I have received so much of your streams (4.2.3, 8.1)."""

    sent: int
    received: Mapping[str, ItemId]


class Heartbeat(NamedTuple):
    sent: int  # of the request
    incarnation: int  # how often the node has started
    states: Mapping[str, State]  # of its output streams
    full: frozenset[str] = frozenset()  # those of which it can say nothing more until its readers have taken more (8.1)


class AuthorizationRequest(NamedTuple):
    """May I reconcile my state now? Repeated for as long as it takes (4.4.3, Fig. 9)."""

    sent: int


class AuthorizationReply(NamedTuple):
    sent: int  # of the request
    granted: bool


class AuthorizationReturned(NamedTuple):
    """I have finished reconciling: your promise ends."""


class StateRequest(NamedTuple):
    """I have restarted with nothing: what is the consistent state of our fragment (4.5)?"""

    sent: int


@dataclass(frozen=True, slots=True)
class LineState:
    """The consistent state of one output stream's line, up to a stream time."""

    frontier: int
    last: ItemId
    ordinals: Mapping[int, int]
    kept: tuple[Chunk, ...]  # what its output buffer holds
    dropped: ItemId  # up to here the buffer holds nothing any more
    boxes: Any  # what the boxes remember; only the driver looks inside


@dataclass(frozen=True, slots=True)
class StateReply:
    sent: int
    lines: Mapping[str, LineState]


Message = (
    Subscribe
    | Unsubscribe
    | Flow
    | HeartbeatRequest
    | Heartbeat
    | AuthorizationRequest
    | AuthorizationReply
    | AuthorizationReturned
    | StateRequest
    | StateReply
)
