"""What the changes of a stream amount to, change by change: what `anabranch.engine.netting` means.

Without a key, equal rows add up: each insertion and post-image is one more, each deletion and pre-image one less. What
is above zero is there that often; what is below is held. With a key, of each key the message with the highest version
counts, and is the row unless it takes the row away; a deletion of a key that nothing else was ever said of is held.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.model.run import ChangeType
from anabranch.reference.values import Value

Row = Mapping[str, Value]
_TAKING = (ChangeType.DELETE, ChangeType.UPDATE_PREIMAGE)


@dataclass(frozen=True)
class LoggedChange:
    """A change of a stream, with its version: stime, entry point, sequence, order in the run."""

    change_type: ChangeType
    values: Row
    version: tuple[int, str, int, int]

    @property
    def takes(self) -> bool:
        return self.change_type in _TAKING


@dataclass(frozen=True)
class Amount:
    """The rows that are there, and those that lack, each as often as it does."""

    rows: list[Row]
    held: list[tuple[Row, int]]


def amount(changes: Sequence[LoggedChange], key: Sequence[str] = ()) -> Amount:
    """What changes come to, in whatever order they are given."""
    return _by_key(changes, key) if key else _by_weight(changes)


def _by_key(changes: Sequence[LoggedChange], key: Sequence[str]) -> Amount:
    told: dict[Any, list[LoggedChange]] = {}
    for change in changes:
        told.setdefault(tuple(same(change.values[name]) for name in key), []).append(change)
    last = {of: max(messages, key=lambda message: message.version) for of, messages in told.items()}
    rows = [change.values for change in last.values() if not change.takes]
    parked = [last[of].values for of, messages in told.items() if all(message.takes for message in messages)]
    return Amount(rows, [(values, 1) for values in parked])


def _by_weight(changes: Sequence[LoggedChange]) -> Amount:
    weights: Counter[Any] = Counter()
    for change in changes:
        weights[content(change.values)] += -1 if change.takes else 1
    example = {content(change.values): change.values for change in changes}
    rows = [example[of] for of, weight in weights.items() for _ in range(weight)]
    return Amount(rows, [(example[of], -weight) for of, weight in weights.items() if weight < 0])


def content(row: Row) -> Any:
    """Equal for equal rows."""
    return tuple(same(value) for value in row.values())


def same(value: Any) -> Any:
    """Equal for equal values: NaN is NaN, zero has one sign, maps have no order."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return frozenset((same(k), same(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(same, value))
    return value
