"""Lookup: bucket after bucket, for its answer depends on when rows came.

Rows of equal values are numbered as they come; one that goes takes with it what was found for the oldest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.diagram.boxes.lookup import Lookup
from anabranch.reference.expressions import compile_expression
from anabranch.reference.joining import columns_seen, pair
from anabranch.reference.rows import Identity, WeightedRow, netted

Bucket = tuple[Sequence[WeightedRow], Sequence[WeightedRow]]  # what came of the stream, and what of the table


def looked_up(box: Lookup, buckets: Iterable[Bucket]) -> list[WeightedRow]:
    """What has been found for the rows that are there, when all buckets have come."""
    table: list[WeightedRow] = []
    found: dict[Identity, list[list[WeightedRow]]] = {}
    for came, changed in buckets:
        table += changed
        there = netted(table)
        for row in netted(came):
            found.setdefault(row.content, []).append(_partners(box, row, there))
        for row in netted(WeightedRow(row.values, row.event_time, -row.weight) for row in came):
            found[row.content].pop(0)
    return [item for copies in found.values() for copy in copies for item in copy]


def _partners(box: Lookup, row: WeightedRow, table: Sequence[WeightedRow]) -> list[WeightedRow]:
    pairs = [pair(box.pairs, row, other) for other in table]
    condition = compile_expression(box.on, columns_seen(box.pairs)) if box.on else None
    matched = [p for p in pairs if condition is None or condition(p.values) is True]
    said = matched or [pair(box.pairs, row, None)]
    return [WeightedRow({**p.values, "_matched": bool(matched)}, row.event_time) for p in said]
