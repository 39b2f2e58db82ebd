"""Answers of Spark as people and scripts read them.

Rows come over Arrow, so that instants are instants, whatever the time zone of this machine. People get each value
as one line of text; scripts get JSON, in which what JSON cannot hold exactly (decimals, NaN, bytes) is text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from anabranch.engine.mistakes import is_query_error, quietly, spark_words
from anabranch.model.errors import AnabranchError
from anabranch.model.time import EPOCH, MICROSECOND, instant_text

Row = Mapping[str, Any]
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}  # in Spark's words


@dataclass(frozen=True)
class Answer:
    """The first rows of a DataFrame, and how many there are in all."""

    columns: tuple[str, ...]
    numbers: tuple[str, ...]  # the columns that hold numbers
    rows: Sequence[Sequence[Any]]
    total: int


def fetch(frame: Any, place: str, most: int | None = None) -> Answer:
    """The rows of a DataFrame; only the first so many if `most` is given."""
    with _in_our_words(place):
        found = (frame if most is None else frame.limit(most + 1)).toArrow()
        total = found.num_rows
        if most is not None and total > most:
            total, found = frame.count(), found.slice(0, most)
    numbers = tuple(field.name for field in found.schema if _is_number(field.type))
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    return Answer(tuple(found.column_names), numbers, rows, total)


def rows_of(frame: Any, place: str) -> list[Row]:
    """The rows of a DataFrame whose columns have different names."""
    answer = fetch(frame, place)
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


@contextmanager
def _in_our_words(place: str) -> Iterator[None]:
    """What Spark finds wrong with a value while it runs is the user's to correct, like what it finds before."""
    try:
        with quietly():
            yield
    except Exception as error:
        if isinstance(error, AnabranchError) or not is_query_error(error):
            raise
        raise AnabranchError(
            "BAD_EXPRESSION",
            place=place,
            need="expressions that have a value for every row",
            got=spark_words(error),
            next_step="Correct the expression, or leave out the rows on which it fails.",
        ) from error


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def value_text(value: Any) -> str:
    """A value on one line.

    >>> [value_text(v) for v in (None, True, "a\\nb", {"a": [1, 2]})]
    ['null', 'true', 'a\\\\nb', '{"a": [1, 2]}']
    """
    plain = value_json(value)
    if isinstance(plain, str):
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in plain)
    return json.dumps(plain, ensure_ascii=False)


def value_json(value: Any) -> Any:
    """A value as JSON has it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _NOT_FINITE[str(value)]
        case Decimal():
            return format(value, "f")
        case datetime():
            return str(value) if value.tzinfo is None else instant_text((value - EPOCH) // MICROSECOND)
        case date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case Mapping():
            return {_name(key): value_json(item) for key, item in value.items()}
        case [tuple(), *_]:  # only the entries of a map are tuples
            return {_name(key): value_json(item) for key, item in value}
        case list():
            return [value_json(item) for item in value]
    return str(value)


def _name(key: Any) -> str:
    return key if isinstance(key, str) else value_text(key)
