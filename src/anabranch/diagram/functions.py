"""Functions of the user's own, in Python, named by where they are found: `package.module:function`.

A function takes the rows of a window, in the order of their event times, and gives a value, or rows. It gets a
pandas DataFrame, or an Arrow table if that is what its parameter is annotated with; the columns are those that it
was given, and `event_time`. Rows it gives back as a DataFrame, an Arrow table, or a list of dicts. The same
rows must always give the same: that is its author's promise.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

EVENT_TIME = "event_time"
Function = Callable[[Any], Any]


class NotFound(Exception):
    """Why there is no function under a name."""


@cache
def find(path: str) -> Function:
    """The function that a name stands for."""
    module, _, name = path.partition(":")
    if not module or not name:
        raise NotFound("no name of a function: write 'package.module:function'")
    try:
        found = importlib.import_module(module)
    except Exception as error:
        raise NotFound(f"{module}, which cannot be imported: {error}") from error
    function = getattr(found, name, None)
    if not callable(function):
        raise NotFound(f"{path}, and {module} has no such function")
    return function  # type: ignore[no-any-return]


def call(path: str, rows: pa.Table) -> Any:
    """What a function makes of rows, as plain values."""
    function = find(path)
    return _plain(function(_sorted(rows) if _takes_arrow(function) else _sorted(rows).to_pandas()))


def as_json(value: Any) -> str:
    """A result on its way back to Spark, which reads it as the type that was asked for."""
    return json.dumps({"v": value}, default=_text)


@cache
def _takes_arrow(function: Function) -> bool:
    parameters = list(inspect.signature(function).parameters.values())
    said = parameters[0].annotation if parameters else None
    return said is pa.Table or str(said).endswith(("pa.Table", "pyarrow.Table"))


def _sorted(rows: pa.Table) -> pa.Table:
    """By event time, then by the other columns that have an order."""
    names = [f.name for f in rows.schema if not pa.types.is_nested(f.type) and not pa.types.is_null(f.type)]
    names.sort(key=lambda name: name != EVENT_TIME)
    return rows.sort_by([(name, "ascending") for name in names]) if names and len(rows) else rows


def _plain(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        value = pa.Table.from_pandas(value, preserve_index=False)
    if isinstance(value, pa.Table | pa.Array | pa.ChunkedArray):
        return value.to_pylist()
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if isinstance(value, np.generic):
        return value.item()
    if value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, np.ndarray | pd.Series):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


def _text(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a {type(value).__name__}, which is no value of Spark's")
