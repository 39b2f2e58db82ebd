"""TopN: all rows of a group are sorted, and the first ones kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key
from typing import Any

from anabranch.diagram.boxes.topn import Order, TopN
from anabranch.reference.closures import Evaluate
from anabranch.reference.expressions import compile_expression
from anabranch.reference.joining import columns_seen
from anabranch.reference.rows import WeightedRow
from anabranch.reference.values import Value, canonical, sort_key


def top(box: TopN, rows: Iterable[WeightedRow]) -> list[WeightedRow]:
    seen = columns_seen(box.input)
    keys = [compile_expression(key, seen) for key in box.keys]
    groups: dict[tuple[Value, ...], list[WeightedRow]] = {}
    for row in rows:
        groups.setdefault(tuple(canonical(key(row.values)) for key in keys), []).append(row)
    before = _before(box.order, [compile_expression(order.expression, seen) for order in box.order])
    said = []
    for members in groups.values():
        first = sorted(members, key=cmp_to_key(before))[: box.most]
        said += [_ranked(box, row, place) for place, row in enumerate(first, 1)]
    return said


def _before(orders: Sequence[Order], parts: Sequence[Evaluate]) -> Callable[[WeightedRow, WeightedRow], int]:
    def compare(a: WeightedRow, b: WeightedRow) -> int:
        for order, part in zip(orders, parts, strict=True):
            left, right = part(a.values), part(b.values)
            if (left is None) != (right is None):
                null_first = -1 if left is None else 1
                return -null_first if order.nulls_last else null_first
            found = _compared(sort_key(left), sort_key(right))
            if found:
                return -found if order.descending else found
        return _compared(tuple(map(sort_key, a.values.values())), tuple(map(sort_key, b.values.values())))

    return compare


def _compared(left: tuple[Any, ...], right: tuple[Any, ...]) -> int:
    return (left > right) - (left < right)


def _ranked(box: TopN, row: WeightedRow, place: int) -> WeightedRow:
    return row if box.rank is None else WeightedRow({**row.values, box.rank: place}, row.event_time)
