"""Casts, as Spark does them in ANSI mode and in UTC: a value that does not fit its new type is an error, never NULL."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import NoReturn

from anabranch.model.time import EPOCH, MICROSECOND, instant_text
from anabranch.reference.values import (
    DECIMAL_DIGITS,
    NAN,
    WHOLE_NAMES,
    Failed,
    Refused,
    Timestamp,
    Value,
    fit,
    kind,
)

EXACT = Context(prec=200, rounding=ROUND_HALF_UP)
SECOND = 1_000_000

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_SPECIAL = {"nan": NAN, "inf": math.inf, "infinity": math.inf}
_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")
_INSTANT = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?\s*"
    r"(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)?)?)?)?",
    re.ASCII,
)


def to_whole(value: Value, bits: int) -> int:
    """To an integer type: fractions are cut off, instants become whole seconds."""
    name = WHOLE_NAMES[bits]
    match kind(value):
        case "whole" | "boolean":
            whole = int(value)
        case "double":
            if not math.isfinite(value):
                _fail(value, name)
            whole = int(value)
        case "decimal":
            whole = int(value)
        case "string":
            text = value.strip()
            if not _WHOLE.fullmatch(text):
                _fail(value, name)
            whole = int(text)
        case "timestamp":
            whole = int(value) // SECOND
        case _:
            _refuse(value, name)
    fit(whole, bits)
    return whole


def to_double(value: Value) -> float:
    match kind(value):
        case "whole" | "boolean" | "double" | "decimal":
            return float(value)
        case "timestamp":
            return int(value) / SECOND
        case "string":
            text = value.strip().lower()
            if text.lstrip("+-") in _SPECIAL and len(text) - len(text.lstrip("+-")) <= 1:
                return -_SPECIAL[text[1:]] if text.startswith("-") else _SPECIAL[text.lstrip("+")]
            if _NUMBER.fullmatch(text.removesuffix("d").removesuffix("f")):
                return float(text.removesuffix("d").removesuffix("f"))
            _fail(value, "DOUBLE")
        case _:
            _refuse(value, "DOUBLE")


def to_decimal(value: Value, precision: int = 10, scale: int = 0) -> Decimal:
    """To DECIMAL(precision, scale), rounded half up. A double is read as it is printed."""
    name = f"DECIMAL({precision},{scale})"
    match kind(value):
        case "whole" | "boolean":
            number = Decimal(int(value))
        case "decimal":
            number = value
        case "double":
            if not math.isfinite(value):
                _fail(value, name)
            number = Decimal(repr(value))
        case "string":
            if not _NUMBER.fullmatch(value.strip()):
                _fail(value, name)
            number = Decimal(value.strip())
        case _:
            _refuse(value, name)
    # Far too large is checked first, because rounding it would not fit the context either.
    if number and number.adjusted() > DECIMAL_DIGITS:
        _fail(value, name)
    rounded = number.quantize(Decimal(1).scaleb(-scale), context=EXACT)
    if rounded and rounded.adjusted() >= precision - scale:
        _fail(value, name)
    return rounded


def to_boolean(value: Value) -> bool:
    match kind(value):
        case "boolean" | "whole" | "double" | "decimal":
            return bool(value)
        case "string":
            text = value.strip().lower()
            if text not in _TRUE + _FALSE:
                _fail(value, "BOOLEAN")
            return text in _TRUE
        case _:
            _refuse(value, "BOOLEAN")


def to_string(value: Value) -> str:
    match kind(value):
        case "string" | "whole":
            return str(value)
        case "boolean":
            return "true" if value else "false"
        case "double":
            return _double_text(value)
        case "decimal":
            return format(value, "f")
        case "date":
            return str(value.isoformat())
        case "timestamp":
            whole = instant_text(int(value) // SECOND * SECOND).removesuffix("Z")
            fraction = f"{int(value) % SECOND:06}".rstrip("0")
            return f"{whole}.{fraction}" if fraction else whole
        case _:
            _refuse(value, "STRING")


def _double_text(value: float) -> str:
    """As Java prints it: plain between 0.001 and ten million, with an exponent elsewhere."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return f"{sign}0.0"
    shortest = Decimal(repr(abs(value)))
    power = shortest.adjusted()
    digits = "".join(map(str, shortest.as_tuple().digits)).rstrip("0")
    if -3 <= power < 7:
        plain = format(shortest, "f")
        whole, _, fraction = plain.partition(".")
        return f"{sign}{whole}.{fraction.rstrip('0') or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


def to_timestamp(value: Value) -> Timestamp:
    """To an instant. Numbers are seconds; text without a zone is in UTC."""
    match kind(value):
        case "timestamp":
            return Timestamp(value)
        case "date":
            return Timestamp((date.toordinal(value) - EPOCH.toordinal()) * 86_400 * SECOND)
        case "whole":
            return Timestamp(fit(value * SECOND, 64))
        case "double":
            if not math.isfinite(value):
                _fail(value, "TIMESTAMP")
            return Timestamp(fit(int(value * SECOND), 64))
        case "decimal":
            return Timestamp(fit(int(value * SECOND), 64))
        case "string":
            return Timestamp((_read_instant(value, "TIMESTAMP") - EPOCH) // MICROSECOND)
        case _:
            _refuse(value, "TIMESTAMP")


def to_date(value: Value) -> date:
    match kind(value):
        case "date":
            return date(value.year, value.month, value.day)
        case "timestamp":
            return (EPOCH + timedelta(microseconds=int(value))).date()
        case "string":
            # The zone does not matter here: the date is the one that is written.
            return _read_instant(re.sub(r"[ T].*", "", value.strip()), "DATE").date()
        case _:
            _refuse(value, "DATE")


def _read_instant(text: str, to: str) -> datetime:
    found = _INSTANT.fullmatch(text.strip())
    if found is None:
        _fail(text, to)
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    micros = int((fraction or "0").ljust(6, "0")[:6])
    try:
        return datetime(
            int(year),
            int(month or 1),
            int(day or 1),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            micros,
            tzinfo=_zone(zone),
        )
    except ValueError:
        _fail(text, to)


def _zone(text: str | None) -> timezone:
    if text is None or text in ("Z", "UTC", "GMT"):
        return UTC
    digits = text[1:].replace(":", "")
    hours, minutes = (digits, "0") if len(digits) <= 2 else (digits[:-2], digits[-2:])
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-offset if text[0] == "-" else offset)


def caster(name: str, parameters: tuple[int, ...] = ()) -> Callable[[Value], Value]:
    """The cast to a type by its Spark name; `Refused` if there is none."""
    bits = {spark: width for width, spark in WHOLE_NAMES.items()}.get(name)
    if bits is not None:
        return lambda value: to_whole(value, bits)
    if name == "DECIMAL":
        return lambda value: to_decimal(value, *parameters)
    plain: dict[str, Callable[[Value], Value]] = {
        "DOUBLE": to_double,
        "STRING": to_string,
        "BOOLEAN": to_boolean,
        "TIMESTAMP": to_timestamp,
        "DATE": to_date,
    }
    if name not in plain:
        raise Refused(f"a cast to {name}")
    return plain[name]


def _fail(value: Value, to: str) -> NoReturn:
    raise Failed(f"{value!r} cannot be cast to {to}")


def _refuse(value: Value, to: str) -> NoReturn:
    raise Refused(f"a cast from {kind(value)} to {to}")
