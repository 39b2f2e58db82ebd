"""Comparison and arithmetic on values that are not NULL, as Spark does them in ANSI mode.

Two numbers meet in the wider of their types: integers, then decimals, then doubles. Text is cast to the type of
what it is compared with. Dividing by zero is an error, also for doubles; NaN equals itself and is greatest.
"""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal

from anabranch.model.time import MICROSECOND
from anabranch.reference.casts import EXACT, to_boolean, to_date, to_double, to_timestamp, to_whole
from anabranch.reference.values import (
    DECIMAL_DIGITS,
    Failed,
    Refused,
    Timestamp,
    Value,
    fit,
    fit_decimal,
    kind,
    scale_of,
    sort_key,
)

_NUMBERS = ("whole", "decimal", "double")


def _together(left: Value, right: Value) -> tuple[Value, Value]:
    """Two numbers, in the wider of their types."""
    kinds = {kind(left), kind(right)}
    if "double" in kinds:
        return float(left), float(right)
    if "decimal" in kinds:
        return Decimal(left), Decimal(right)
    return left, right


def _comparable(left: Value, right: Value) -> tuple[Value, Value]:
    one, other = kind(left), kind(right)
    if one in _NUMBERS and other in _NUMBERS:
        return _together(left, right)
    if one == other:
        return left, right
    if other == "string":
        return left, _as(one, right)
    if one == "string":
        return _as(other, left), right
    if {one, other} == {"date", "timestamp"}:
        return to_timestamp(left), to_timestamp(right)
    raise Refused(f"a comparison of {one} with {other}")


def _as(other: str, text: str) -> Value:
    """Text as the type that it is compared with."""
    match other:
        case "whole":
            return to_whole(text, 64)
        case "double" | "decimal":
            return to_double(text)
        case "boolean":
            return to_boolean(text)
        case "timestamp":
            return to_timestamp(text)
        case "date":
            return to_date(text)
    raise Refused(f"a comparison of {other} with string")


def compare(left: Value, right: Value) -> int:
    """Below 0, 0 or above 0, as left is less than, equal to or greater than right."""
    left, right = _comparable(left, right)
    if kind(left) != kind(right):  # text that met a decimal has become a double
        left, right = _together(left, right)
    a, b = sort_key(left), sort_key(right)
    return (a > b) - (a < b)


def equal(left: Value, right: Value) -> bool:
    return compare(left, right) == 0


def add(left: Value, right: Value) -> Value:
    match kind(left), kind(right):
        case ("timestamp", "interval"):
            return _moved(left, right)
        case ("interval", "timestamp"):
            return _moved(right, left)
        case ("interval", "interval"):
            return left + right
    a, b = _numbers("+", left, right)
    return fit_decimal(EXACT.add(a, b)) if isinstance(a, Decimal) else a + b


def subtract(left: Value, right: Value) -> Value:
    match kind(left), kind(right):
        case ("timestamp", "interval"):
            return _moved(left, -right)
        case ("timestamp", "timestamp"):
            return timedelta(microseconds=int(left) - int(right))
        case ("interval", "interval"):
            return left - right
    a, b = _numbers("-", left, right)
    return fit_decimal(EXACT.subtract(a, b)) if isinstance(a, Decimal) else a - b


def multiply(left: Value, right: Value) -> Value:
    a, b = _numbers("*", left, right)
    return fit_decimal(EXACT.multiply(a, b)) if isinstance(a, Decimal) else a * b


def divide(left: Value, right: Value, digits: int | None = None) -> Value:
    """Integers divide as doubles. `digits` is the precision of the divisor's type where that is known."""
    a, b = _numbers("/", left, right)
    if b == 0:
        raise Failed(f"{left} is divided by zero")
    if not isinstance(a, Decimal):
        return float(a) / float(b)
    scale = max(6, scale_of(a) + (digits or len(b.as_tuple().digits)) + 1)
    quotient = (EXACT.divide(a, b)).quantize(Decimal(1).scaleb(-min(scale, DECIMAL_DIGITS)), context=EXACT)
    return fit_decimal(quotient)


def divide_whole(left: Value, right: Value) -> int:
    """DIV: the quotient without its fraction, a BIGINT."""
    a, b = _numbers("DIV", left, right)
    if isinstance(a, float):
        raise Refused("DIV of doubles")
    if b == 0:
        raise Failed(f"{left} is divided by zero")
    if isinstance(a, Decimal):
        return int(EXACT.divide_int(a, b))
    return int(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def remainder(left: Value, right: Value) -> Value:
    """%: what is left of the dividend, with its sign."""
    a, b = _numbers("%", left, right)
    if b == 0:
        raise Failed(f"{left} is divided by zero")
    if isinstance(a, Decimal):
        return EXACT.remainder(a, b)
    if isinstance(a, float):
        return math.nan if not math.isfinite(a) or math.isnan(b) else math.fmod(a, b)
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


def positive_remainder(left: Value, right: Value) -> Value:
    """pmod: as %, but not negative where the divisor is positive."""
    left, right = _numbers("pmod", left, right)
    rest = remainder(left, right)
    return remainder(add(rest, right), right) if rest < 0 else rest


def negate(value: Value) -> Value:
    if kind(value) not in (*_NUMBERS, "interval"):
        raise Refused(f"- of {kind(value)}")
    return value.copy_negate() if isinstance(value, Decimal) else -value


def _numbers(operator: str, left: Value, right: Value) -> tuple[Value, Value]:
    if kind(left) not in _NUMBERS or kind(right) not in _NUMBERS:
        raise Refused(f"{kind(left)} {operator} {kind(right)}")
    return _together(left, right)


def _moved(instant: Timestamp, interval: timedelta) -> Timestamp:
    return Timestamp(fit(int(instant) + interval // MICROSECOND, 64))
