"""Changes: how one answer becomes another, in the words of Spark's change data feed.

Rows about the same thing, by default the same group, make a pair of pre-image and post-image where their values
differ. What is equal is not mentioned: nothing is retracted and inserted again unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from anabranch.model.run import ChangeType
from anabranch.reference.rows import Identity, WeightedRow, identity_of, place
from anabranch.reference.values import Value


@dataclass(frozen=True)
class Change:
    """One item of a feed."""

    change_type: ChangeType
    values: Mapping[str, Value]
    event_time: int | None


def changes(
    before: Iterable[WeightedRow],
    after: Iterable[WeightedRow],
    identity: Callable[[WeightedRow], Identity] = identity_of,
) -> list[Change]:
    """What turns `before` into `after`: by event time, then identity, a pre-image before its post-image."""
    old, new = _by_identity(before, identity), _by_identity(after, identity)
    items = []
    for about in old.keys() | new.keys():
        gone, come = _difference(old.get(about, []), new.get(about, []))
        # Where several rows share an identity they are paired in canonical order.
        for number, (left, right) in enumerate(zip_longest(gone, come)):
            pair = _pair(left, right)
            items += [((*place(about, left or right), number, rank), item) for rank, item in enumerate(pair)]
    return [item for _, item in sorted(items, key=lambda entry: entry[0])]


def _by_identity(
    rows: Iterable[WeightedRow], identity: Callable[[WeightedRow], Identity]
) -> dict[Identity, list[WeightedRow]]:
    found: dict[Identity, list[WeightedRow]] = {}
    for row in rows:
        found.setdefault(identity(row), []).append(row)
    return found


def _difference(old: list[WeightedRow], new: list[WeightedRow]) -> tuple[list[WeightedRow], list[WeightedRow]]:
    """The rows that are only in the one, and only in the other, as multisets."""
    net: Counter[Any] = Counter(row.content for row in new)
    net.subtract(row.content for row in old)
    examples = {row.content: row for row in [*old, *new]}
    ordered = sorted(examples.values(), key=lambda row: row.order)
    gone = [row for row in ordered for _ in range(-net[row.content])]
    come = [row for row in ordered for _ in range(net[row.content])]
    return gone, come


def _pair(left: WeightedRow | None, right: WeightedRow | None) -> list[Change]:
    if left is not None and right is not None:
        return [_item(ChangeType.UPDATE_PREIMAGE, left), _item(ChangeType.UPDATE_POSTIMAGE, right)]
    if left is not None:
        return [_item(ChangeType.DELETE, left)]
    assert right is not None
    return [_item(ChangeType.INSERT, right)]


def _item(change_type: ChangeType, row: WeightedRow) -> Change:
    return Change(change_type, row.values, row.event_time)
