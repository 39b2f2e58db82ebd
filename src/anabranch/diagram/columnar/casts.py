"""Casts, and moves in time, as Spark's ANSI rules have them, in DuckDB's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sqlglot import expressions as exp

from anabranch.diagram.columnar.kinds import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    Kind,
    NotProven,
    Typed,
)

_NAMED = {"TEXT": "string", "VARCHAR": "string", "TIMESTAMPTZ": "timestamp", "TIMESTAMPLTZ": "timestamp"}
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}  # that whole numbers have at most
_WHOLE = "[+-]?[0-9]{1,18}"
_FLOATING = r"[+-]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?|[+-]?Infinity|NaN"
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_INSTANT = rf"{_DAY}([ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?)?"
_YEARS = ("DATE '0001-01-01'", "DATE '9999-12-31'")  # of which both write the same
_UNITS = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000}
_EXACT_DIGITS = 15  # of a decimal that a double holds


def cast(part: Typed, node: exp.Expression, utc: bool) -> Typed:
    """A value in another type; NotProven where the two engines may differ."""
    assert isinstance(node, exp.Cast | exp.TryCast)
    if node.args.get("format") or node.args.get("default") or node.to.args.get("nested") or node.args.get("safe"):
        raise NotProven(node.sql(dialect="spark"))
    to = _kind_of(node.to)
    if part.kind is None or part.kind == to:
        return Typed(f"CAST({part.sql} AS {to})", to, part.fails)
    made = _cast(part, part.kind, to, utc)
    if made is None:
        raise NotProven(f"{node.sql(dialect='spark')}, a cast from {part.kind}")
    sql, fails = made
    return Typed(sql, to, fails or part.fails)


def _kind_of(said: exp.DataType) -> Kind:
    name = said.this.name
    numbers = ",".join(parameter.this.name for parameter in said.expressions)
    if name == "DECIMAL" and not numbers:
        numbers = "10,0"
    elif name == "DECIMAL" and "," not in numbers:
        numbers += ",0"
    return Kind.of(_NAMED.get(name, name.lower()) + (f"({numbers})" if numbers else ""))


def _cast(part: Typed, kind: Kind, to: Kind, utc: bool) -> tuple[str, bool] | None:
    """The SQL of a cast, and whether it can fail."""
    plain = f"CAST({part.sql} AS {to})"
    if kind.bits and (to.bits or to in (DOUBLE, FLOAT, STRING)):
        return plain, bool(to.bits) and to.bits < kind.bits
    if kind == BOOLEAN and (to.bits or to == STRING):
        return plain, False
    if (kind, to) == (FLOAT, DOUBLE):
        return plain, False
    if kind == DOUBLE and to.bits:
        return f"CAST(TRUNC({part.sql}) AS {to})", True
    if kind.decimal or to.decimal:
        return _decimal(plain, kind, to)
    if kind == STRING and (to.bits or to == DOUBLE):
        return _checked(part, _WHOLE if to.bits else _FLOATING, plain)
    return _in_time(part, kind, to, plain) if utc else None


def _decimal(plain: str, kind: Kind, to: Kind) -> tuple[str, bool] | None:
    if to.decimal and kind.bits:
        return plain, to.precision - to.scale < _DIGITS[kind.bits]
    if to.decimal and kind.decimal:
        return plain, to.precision - to.scale < kind.precision - kind.scale or to.scale < kind.scale
    if to == STRING:  # without a digit before the point DuckDB writes none
        return (plain, False) if kind.precision > kind.scale else None
    return (plain, False) if to == DOUBLE and kind.precision <= _EXACT_DIGITS else None


def _in_time(part: Typed, kind: Kind, to: Kind, plain: str) -> tuple[str, bool] | None:
    """Casts that know where a day begins."""
    if {kind, to} == {DATE, TIMESTAMP}:
        return plain, False
    if to == STRING and kind in (DATE, TIMESTAMP):
        inside = f"CAST({part.sql} AS DATE) BETWEEN {_YEARS[0]} AND {_YEARS[1]}"
        return f"CASE WHEN {inside} THEN {plain} WHEN {part.sql} IS NOT NULL THEN ERROR('a year') END", True
    if kind == STRING and to in (DATE, TIMESTAMP):
        return _checked(part, _DAY if to == DATE else _INSTANT, plain)
    if (kind, to) == (TIMESTAMP, BIGINT):
        return seconds(part.sql), False
    return None


def _checked(part: Typed, form: str, plain: str) -> tuple[str, bool]:
    """A cast of texts that have a form; what Spark makes of others is Spark's to say."""
    if part.text is not None and re.fullmatch(form, part.text):
        return plain, False
    good = f"REGEXP_FULL_MATCH({part.sql}, '{form}')"
    return f"CASE WHEN {good} THEN {plain} WHEN {part.sql} IS NOT NULL THEN ERROR('a form') END", True


def seconds(sql: str, length: int = 1_000_000) -> str:
    """How many whole seconds an instant is after the epoch, or other lengths; before it, rounded down too."""
    micros = f"EPOCH_US({sql})"
    return f"(({micros} - {modulo(micros, str(length))}) // {length})"


def modulo(value: str, by: str) -> str:
    """What is left of a division by a positive number, never negative."""
    return f"((({value} % {by}) + {by}) % {by})"


def moved(part: Typed, node: exp.Expression, utc: bool) -> Typed:
    """An instant and a fixed length of time."""
    interval = node.args["expression"]
    unit = interval.args["unit"].name.upper().removesuffix("S") if interval.args.get("unit") else ""
    number = interval.this.name if isinstance(interval.this, exp.Literal) else ""
    signed: Mapping[type[exp.Expression], Callable[[int], int]] = {exp.Add: int, exp.Sub: lambda n: -n}
    if part.kind != TIMESTAMP or not utc or unit not in _UNITS or not number.isdigit() or type(node) not in signed:
        raise NotProven(node.sql(dialect="spark"))
    length = signed[type(node)](int(number) * _UNITS[unit])
    return Typed(f"MAKE_TIMESTAMP(EPOCH_US({part.sql}) + CAST({length} AS BIGINT))", TIMESTAMP, True)
