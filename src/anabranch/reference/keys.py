"""Streams with keys: of each key the version with the highest stamp counts, unless it deletes.

Messages may come in any order: a deletion that comes before the row that it deletes waits for it, and a version
that is older than one that is known already changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.reference.rows import WeightedRow
from anabranch.reference.values import Value


@dataclass(frozen=True)
class Message:
    """An insertion or replacement, or with `gone` a deletion, of the row with a key."""

    values: Mapping[str, Value]
    stamp: tuple[Any, ...]  # stream time, entry point, sequence, place in the run
    event_time: int | None = None
    gone: bool = False


@dataclass(frozen=True)
class Keyed:
    """All messages of a stream, and the columns of its key."""

    key: tuple[str, ...]
    messages: Sequence[Message]


def live_rows(stream: Keyed) -> list[WeightedRow]:
    latest: dict[tuple[Value, ...], Message] = {}
    for message in stream.messages:
        key = tuple(message.values[name] for name in stream.key)
        if key not in latest or latest[key].stamp < message.stamp:
            latest[key] = message
    return [WeightedRow(message.values, message.event_time) for message in _alive(latest.values())]


def _alive(messages: Iterable[Message]) -> list[Message]:
    return [message for message in messages if not message.gone]
