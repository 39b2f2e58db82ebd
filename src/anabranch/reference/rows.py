"""Weighted rows: what flows between boxes.

A row of weight +1 says that it is there, one of weight -1 that an equal one is not. Only the net weight counts,
and where it is negative the row is held back: a deletion waits for its row and takes nothing else away. A row
that comes from an aggregate remembers of which group it is the result, whatever is made of its columns later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.reference.values import Value, sort_key

Identity = tuple[Value, ...]


@dataclass(frozen=True)
class WeightedRow:
    """Values by column name, in schema order; event time in microseconds."""

    values: Mapping[str, Value]
    event_time: int | None = None
    weight: int = 1
    # Window and keys of the outermost aggregate; None where the row has come through linear boxes only.
    group: Identity | None = field(default=None, compare=False)

    @property
    def content(self) -> Identity:
        """All that makes two rows equal."""
        return (self.event_time, *self.values.values())

    @property
    def order(self) -> tuple[Any, ...]:
        """By event time, then by the columns in schema order."""
        return tuple(map(sort_key, self.content))


def identity_of(row: WeightedRow) -> Identity:
    """What a row is an answer about: its group, or, without an aggregate, the whole row itself."""
    return row.content if row.group is None else row.group


def place(identity: Identity, row: WeightedRow) -> tuple[Any, ...]:
    """The place of an item among others: by event time, then by what it is about."""
    # Rows with and without a group meet above a Union; their identities cannot be compared.
    return (sort_key(row.event_time), row.group is not None, tuple(map(sort_key, identity)))


def netted(rows: Iterable[WeightedRow]) -> list[WeightedRow]:
    """The rows that are there: each as often as its net weight says, with weight +1, in canonical order."""
    weights: Counter[Identity] = Counter()
    examples: dict[Identity, WeightedRow] = {}
    for row in rows:
        weights[row.content] += row.weight
        examples.setdefault(row.content, row)
    there = [
        WeightedRow(example.values, example.event_time)
        for content, example in examples.items()
        for _ in range(weights[content])
    ]
    return sorted(there, key=lambda row: row.order)
