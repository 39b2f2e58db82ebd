"""Values: Spark's types as plain Python, and the order among them.

BOOLEAN is bool, every integer type int, DOUBLE float, DECIMAL Decimal, STRING str, DATE date, an interval
of fixed length timedelta, NULL None. A TIMESTAMP is a `Timestamp`: an int, the microseconds since 1970-01-01
UTC, whose type says that it is an instant; so `_close` compares equal to the plain number of microseconds.
A decimal's scale is that of its value.

NULL comes before everything and NaN after every number, as Spark sorts. NaN is always the same object, so that
rows with it compare equal. Grouping takes -0.0 for 0.0, as Spark does.
"""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from anabranch.model.time import EPOCH, MICROSECOND, instant_text

Value = Any
NAN = math.nan
WHOLE_NAMES = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
DECIMAL_DIGITS = 38


class Failed(Exception):
    """The operation is defined for these types, but not for these values."""


class Refused(Exception):
    """The reference does not know the operation, or not for these types."""


class Timestamp(int):
    """An instant, in microseconds since 1970-01-01 UTC."""

    def __repr__(self) -> str:
        return f"Timestamp({instant_text(self)})"


def kind(value: Value) -> str:
    """Which of the types above a value has; those that only pass through go by their Python name."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, Timestamp):
        return "timestamp"
    if isinstance(value, date) and not isinstance(value, datetime):
        return "date"
    for python, name in ((int, "whole"), (float, "double"), (Decimal, "decimal"), (str, "string")):
        if isinstance(value, python):
            return name
    return "interval" if isinstance(value, timedelta) else type(value).__name__


def plain(value: Value) -> Value:
    """A value in the form that is used here: NaN as one object, an aware datetime as a Timestamp."""
    if isinstance(value, float) and math.isnan(value):
        return NAN
    if isinstance(value, datetime) and value.tzinfo is not None:
        return Timestamp((value - EPOCH) // MICROSECOND)
    return value


def canonical(value: Value) -> Value:
    """The one value that stands for all that Spark's grouping takes for equal."""
    value = plain(value)
    return 0.0 if isinstance(value, float) and value == 0 else value


def sort_key(value: Value) -> tuple[Any, ...]:
    """By this, values of one column sort as Spark sorts them ascending: NULL first, NaN last."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (1, True, 0)
    return (1, False, value)


def fit(value: Value, bits: int) -> Value:
    """A result as it is, unless it is an integer that its type cannot hold."""
    if kind(value) == "whole" and not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise Failed(f"{value} is out of range for {WHOLE_NAMES[bits]}")
    return value


def fit_decimal(value: Decimal) -> Decimal:
    """A decimal as it is, unless it has more digits than Spark keeps."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "decimals are finite"
    if max(len(digits), -exponent) > DECIMAL_DIGITS:
        raise Failed(f"{value} has more than {DECIMAL_DIGITS} digits")
    return value


def scale_of(value: Decimal) -> int:
    """The digits after the point."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "decimals are finite"
    return max(0, -exponent)
