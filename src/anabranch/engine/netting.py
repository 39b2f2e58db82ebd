"""From changes to rows: what the changes of a stream amount to. Tables, Spark's format, sinks and steps all ask here.

*Without a key* a change has a weight: `insert` and `update_postimage` add one row, `delete` and `update_preimage` take
one away. Of equal rows only the net weight counts, whatever came first; rows are equal if all columns are, where null
equals null, NaN equals NaN and 0.0 equals -0.0. A row of net weight n > 0 is there n times. One whose net weight is
negative is held: the deletions wait for as many rows as they lack. It is reported (`Stream.held()`), never emitted, and
takes no other row away.

*With a key* a change is a message about the row with its key, and its version is (stime, entry point, sequence, order
in the run). Of each key the message with the highest version counts, whenever it came: it is the row, unless it takes
the row away. So a live key that is inserted again is replaced; a replacement of a key that has no row is an insertion;
a deletion whose key has no row is parked, a lower version that comes later stays deleted, and a higher one lives. An
unknown entry point, of runs that were folded before format 5, is lower than any other; their stimes differ.

`anabranch.reference.netting` says the same row by row, and a law compares all who ask here with it. SQL of this module
is Spark's; what is taken away, and weights, are DuckDB's too. The Arrow forms are for readers that have no plan of
Spark's to put a text into.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from anabranch.engine.relation import Leaves, listed, quoted
from anabranch.model.run import ChangeType

_TAKING = (ChangeType.DELETE.value, ChangeType.UPDATE_PREIMAGE.value)
TAKES_AWAY = f"_change_type IN ('{ChangeType.DELETE}', '{ChangeType.UPDATE_PREIMAGE}')"
WEIGHT = f"CASE WHEN {TAKES_AWAY} THEN -1 ELSE 1 END"

# Of equal stimes the entry points decide, by their bytes.
VERSION = ("_stime", "_entry_point", "_sequence", "_ordinal")
STAMP = "NAMED_STRUCT('s', _stime, 'e', _entry_point, 'q', _sequence, 'o', _ordinal)"
STAMP_TYPE = "STRUCT<s: TIMESTAMP, e: STRING, q: BIGINT, o: BIGINT>"


def net(rows: str, by: Sequence[str], also: Sequence[tuple[str, str]] = ()) -> str:
    """The net weight of equal rows, as `_net`, where it is not zero. `rows` has `_weight` and stands after FROM."""
    chosen = ", ".join([listed(by), "SUM(_weight) AS _net", *(f"{sql} AS {name}" for name, sql in also)])
    return f"SELECT {chosen} FROM {rows} GROUP BY {listed(by)} HAVING SUM(_weight) <> 0"


def present(rows: str, by: Sequence[str], count: str = "_net") -> str:
    """The rows that are there, and how often."""
    return f"SELECT {listed(by)}, SUM(_weight) AS {count} FROM {rows} GROUP BY {listed(by)} HAVING SUM(_weight) > 0"


def there(net: str) -> str:
    """How often a row of some net weight is there."""
    return f"GREATEST(COALESCE({net}, 0), 0)"


def copies(net: str, by: Sequence[str]) -> str:
    """Each row as often as its net weight says, numbered by `_copy`; `_sign` says whether it is there or lacks."""
    return f"SELECT {listed(by)}, SIGN(_net) AS _sign, EXPLODE(SEQUENCE(1L, ABS(_net))) AS _copy FROM ({net})"


def latest(messages: str, key: Sequence[str], columns: Sequence[str], also: Sequence[tuple[str, str]] = ()) -> str:
    """Of each key the columns of the message with the highest version; `_gone` says whether it takes the row away."""
    fields = ", ".join([f"{TAKES_AWAY} AS _gone", *map(quoted, columns)])
    chosen = ", ".join([f"MAX_BY(STRUCT({fields}), {STAMP}) AS _latest", *(f"{sql} AS {name}" for name, sql in also)])
    found = ", ".join(["_latest.*", *(name for name, _ in also)])
    return f"SELECT {found} FROM (SELECT {chosen} FROM {messages} GROUP BY {listed(key)})"


def rows_of(changes: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """The rows that changes amount to."""
    with Leaves(changes.sparkSession) as leaves:
        source = leaves.add(changes)
        if key:
            return leaves.frame(f"SELECT {listed(columns)} FROM ({latest(source, key, columns)}) WHERE NOT _gone")
        each = copies(net(weighted(source), columns), columns)
        return leaves.frame(f"SELECT {listed(columns)} FROM ({each}) WHERE _sign > 0")


def held_of(changes: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """What is held, as rows with `_held`, how many lack: of a stream with a key, deletions parked before any row."""
    with Leaves(changes.sparkSession) as leaves:
        source = leaves.add(changes)
        if key:
            only = f"SELECT *, COUNT_IF(NOT {TAKES_AWAY}) OVER (PARTITION BY {listed(key)}) AS _rows FROM {source}"
            parked = latest(f"({only}) WHERE _rows = 0", key, columns)
            return leaves.frame(f"SELECT {listed(columns)}, 1L AS _held FROM ({parked})")
        found = net(weighted(source), columns)
        return leaves.frame(f"SELECT {listed(columns)}, -_net AS _held FROM ({found}) WHERE _net < 0")


def weighted(source: str) -> str:
    """Changes with `_weight`."""
    return f"(SELECT *, {WEIGHT} AS _weight FROM {source})"


def rows_in_arrow(changes: pa.Table, key: Sequence[str], names: Sequence[str]) -> pa.Table:
    """The rows that changes amount to, in one table; with a key they have `VERSION` too."""
    return _latest_in_arrow(changes, key) if key else _net_in_arrow(changes, names)


def _latest_in_arrow(messages: pa.Table, key: Sequence[str]) -> pa.Table:
    order = [(name, "ascending") for name in VERSION]
    ordered = _with_known(_with_known(messages, "_entry_point", ""), "_sequence", 0).sort_by(order)
    rows = _comparable(ordered, key).append_column("_row", pa.array(np.arange(ordered.num_rows)))
    last = rows.group_by(rows.column_names[:-1]).aggregate([("_row", "max")])["_row_max"]
    found = ordered.take(last)
    return found.filter(pc.invert(pc.is_in(found["_change_type"], pa.array(_TAKING))))


def _with_known(messages: pa.Table, name: str, least: Any) -> pa.Table:
    """What is unknown is lower than anything else."""
    at = messages.column_names.index(name)
    return messages.set_column(at, name, pc.fill_null(messages[name], pa.scalar(least, messages[name].type)))


def _net_in_arrow(changes: pa.Table, names: Sequence[str]) -> pa.Table:
    weights = pc.if_else(pc.is_in(changes["_change_type"], pa.array(_TAKING)), -1, 1)
    rows = _comparable(changes, names)
    counted = rows.append_column("_weight", weights).append_column("_row", pa.array(np.arange(changes.num_rows)))
    groups = counted.group_by(rows.column_names).aggregate([("_weight", "sum"), ("_row", "min")])
    left = np.maximum(groups["_weight_sum"].to_numpy(), 0)
    return changes.take(pa.array(np.repeat(groups["_row_min"].to_numpy(), left)))


def _comparable(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Values that are equal where Spark's groups are; what is nested, as text."""
    return pa.table({f"c{n}": _comparable_column(rows[name]) for n, name in enumerate(names)})


def _comparable_column(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_floating(column.type):
        one_zero = pc.add(column, pa.scalar(0.0, column.type))
        return pc.if_else(pc.is_nan(one_zero), pa.scalar(float("nan"), column.type), one_zero)
    if not pa.types.is_nested(column.type):
        return column
    kind = column.type
    return pa.array([None if v is None else json.dumps(_plain(v, kind), default=str) for v in column.to_pylist()])


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A nested value in which maps have one order, and zero one sign."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = [[_plain(k, kind.key_type), _plain(v, kind.item_type)] for k, v in value]
        return sorted(pairs, key=lambda pair: json.dumps(pair[0], default=str))
    if pa.types.is_struct(kind):
        return [_plain(value[field.name], field.type) for field in kind]
    if pa.types.is_nested(kind):
        return [_plain(v, kind.value_type) for v in value]
    return value + 0.0 if pa.types.is_floating(kind) else value
