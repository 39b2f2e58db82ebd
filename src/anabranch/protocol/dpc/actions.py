"""What goes into a protocol object, and what comes out of it.

A driver calls `handle(event, now)` with each event in the order in which events happen, and carries out the actions
in the order in which they are returned. It keeps the state of the boxes: three slots for each line, which
actions move.

    stable       the state after all stable input so far
    checkpoint   a copy, taken on entering UP_FAILURE
    overlay      a copy that tentative input has gone through

`Process` asks for work; when it is done the driver says `Processed` with what came out. A line has at most one
piece of work under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from anabranch.protocol.dpc.items import Element, Item
from anabranch.protocol.dpc.messages import LineState, Message


class Received(NamedTuple):
    """A message has arrived."""

    sender: str
    message: Message


class Tick(NamedTuple):
    """The time of a `Wake` has come, or passed."""


class Started(NamedTuple):
    """The node runs, with nothing remembered if `empty`; `incarnation` has never been used before."""

    incarnation: int
    empty: bool


class Processed(NamedTuple):
    """What the boxes of a line made of a piece of work, in order; stream times lie within the span.

    A piece of work that the node no longer `awaits` is dropped by the driver, without running the boxes.
    """

    line: str
    job: int
    output: Sequence[Item]


Event = Received | Tick | Started | Processed


class Send(NamedTuple):
    to: str
    message: Message


class Wake(NamedTuple):
    at: int


class Process(NamedTuple):
    """Run the boxes of a line over what its inputs have in `[start, end)` of stream time."""

    line: str
    job: int
    start: int
    end: int
    tentative: bool
    inputs: Mapping[str, Sequence[Item]]
    missing: frozenset[str]  # inputs of which the span is not complete


class TakeCheckpoint(NamedTuple):
    """Copy the stable state to the checkpoint."""

    line: str


class BeginOverlay(NamedTuple):
    """Copy the stable state to the overlay: what is tentative goes there from now on."""

    line: str


class Restore(NamedTuple):
    """Put the stable state back to the checkpoint, and drop the overlay."""

    line: str


class DropCheckpoint(NamedTuple):
    line: str


class Reset(NamedTuple):
    """Begin with empty boxes: everything that they remembered is too old to matter."""

    line: str


class GiveState(NamedTuple):
    """Complete the lines' states with copies of the stable state of the boxes, and send them."""

    to: str
    sent: int
    lines: Mapping[str, LineState]


class TakeState(NamedTuple):
    """Make these the stable states of the boxes."""

    lines: Mapping[str, Any]


class Persist(NamedTuple):
    """Make these items of a source durable, before anything that follows is carried out."""

    stream: str
    items: tuple[Item, ...]


class Emitted(NamedTuple):
    """For those who watch: what a stream says, before it is sent to anybody."""

    stream: str
    elements: tuple[Element, ...]


class Note(NamedTuple):
    """For those who watch: something happened that is worth a line in a trace."""

    what: str
    about: str
    detail: str


Action = (
    Send | Wake | Process | TakeCheckpoint | BeginOverlay | Restore | DropCheckpoint | Reset | GiveState | TakeState
    | Persist | Emitted | Note
)  # fmt: skip
