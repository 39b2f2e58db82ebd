"""What a Parquet footer says of a column, without reading the column."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow.parquet as pq

_UNIT_US = {"milliseconds": (1_000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1_000)}


def _column(footer: pq.FileMetaData, name: str) -> int | None:
    for index in range(footer.num_columns):
        if footer.schema.column(index).path == name:
            return index
    return None


def nulls_and_range(footer: pq.FileMetaData, name: str) -> tuple[int, int | None, int | None] | None:
    """Nulls, lowest and highest microsecond of a timestamp column; None where the footer cannot tell."""
    index = _column(footer, name)
    if index is None:
        return footer.num_rows, None, None
    logical = json.loads(footer.schema.column(index).logical_type.to_json() or "{}")
    scale = _UNIT_US.get(str(logical.get("timeUnit", "")).lower())
    nulls, lows, highs = 0, [], []
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(index)
        stats = chunk.statistics
        if stats is None or not stats.has_null_count:
            return None
        nulls += stats.null_count
        if stats.null_count == chunk.num_values and not stats.has_min_max:
            continue
        if not stats.has_min_max or scale is None:
            if stats.null_count == footer.row_group(group).num_rows:
                continue
            return None
        lows.append(stats.min_raw * scale[0] // scale[1])
        highs.append(stats.max_raw * scale[0] // scale[1])
    return nulls, min(lows, default=None), max(highs, default=None)


def null_count(footer: pq.FileMetaData, name: str) -> int | None:
    """How many nulls a column has; None where the footer cannot tell."""
    index = _column(footer, name)
    stats = [footer.row_group(g).column(index).statistics for g in range(footer.num_row_groups)]
    if any(s is None or not s.has_null_count for s in stats):
        return None
    return sum(int(s.null_count) for s in stats)


def time_range(footer: pq.FileMetaData, name: str) -> tuple[int | None, int | None]:
    """The event-time range of a segment that we wrote, in microseconds."""
    facts = nulls_and_range(footer, name)
    assert facts is not None, "our own segments always carry statistics"
    return facts[1], facts[2]


def int_range(footer: pq.FileMetaData, name: str) -> list[int]:
    """The range of a whole-number column that we wrote and that has no nulls."""
    index = _column(footer, name)
    stats = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
    return [min(s.min for s in stats), max(s.max for s in stats)]


def key_range(footer: pq.FileMetaData, name: str) -> tuple[str | None, str | None]:
    """The range of a key column as JSON text; nothing where there are nulls, or values too long for statistics."""
    index = _column(footer, name)
    lows, highs = [], []
    for group in range(footer.num_row_groups if index is not None else 0):
        stats = footer.row_group(group).column(index).statistics
        if stats is None or not stats.has_min_max or not stats.has_null_count or stats.null_count:
            return None, None
        lows.append(stats.min)
        highs.append(stats.max)
    if not lows:
        return None, None
    return _as_json(min(lows)), _as_json(max(highs))


def _as_json(value: Any) -> str:
    return json.dumps(value, default=lambda v: str(v) if isinstance(v, Decimal) else _plain(v))


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else value.isoformat()
