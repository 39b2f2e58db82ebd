"""The types of which both engines mean the same, what two of them meet in, and SQL that has one of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WIDTHS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}  # of a whole number where it meets a decimal
_NAMES = {
    **{name: name.upper() for name in ("boolean", "tinyint", "smallint", "bigint", "float", "double", "date")},
    "int": "INTEGER", "string": "VARCHAR", "timestamp": "TIMESTAMP", "timestamp_ntz": "TIMESTAMP",
}  # fmt: skip
MOST_DIGITS = 38


class NotProven(Exception):
    """An expression of which it is not proven that both engines give the same; the text says because of what."""


@dataclass(frozen=True)
class Kind:
    """A type of Spark's, as it writes it."""

    name: str
    precision: int = 0
    scale: int = 0

    @classmethod
    def of(cls, text: str) -> Kind:
        """
        >>> Kind.of("decimal(10,2)")
        Kind(name='decimal', precision=10, scale=2)
        """
        decimal = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", text.lower())
        if decimal:
            return cls("decimal", int(decimal[1]), int(decimal[2]))
        if text.lower() not in _NAMES:
            raise NotProven(f"the type {text.upper()}")
        return cls(text.lower())

    @property
    def bits(self) -> int:
        """The width of a whole number; 0 for others."""
        return _WIDTHS.get(self.name, 0)

    @property
    def decimal(self) -> bool:
        return self.name == "decimal"

    @property
    def floating(self) -> bool:
        return self.name in ("float", "double")

    @property
    def number(self) -> bool:
        return bool(self.bits) or self.floating or self.decimal

    def __str__(self) -> str:
        """As DuckDB writes it. Timestamps are instants there too: our own, in UTC."""
        return f"DECIMAL({self.precision}, {self.scale})" if self.decimal else _NAMES[self.name]


BOOLEAN, INT, BIGINT, FLOAT, DOUBLE = (Kind(name) for name in ("boolean", "int", "bigint", "float", "double"))
STRING, DATE, TIMESTAMP, WALL_CLOCK = (Kind(name) for name in ("string", "date", "timestamp", "timestamp_ntz"))


@dataclass(frozen=True)
class Typed:
    """SQL for DuckDB, the type that Spark gives the value, and whether it can fail on some row."""

    sql: str
    kind: Kind | None  # None for a bare NULL
    fails: bool = False
    digits: int = 0  # of a whole number that stands there as such
    text: str | None = None  # of a text that does

    def as_kind(self, kind: Kind) -> str:
        """In a type that holds all its values."""
        return self.sql if self.kind == kind else f"CAST({self.sql} AS {kind})"

    @property
    def as_decimal(self) -> Kind:
        """The type of a number where it meets a decimal."""
        assert self.kind is not None
        return self.kind if self.kind.decimal else Kind("decimal", self.digits or _DIGITS[self.kind.bits])


def decimal(precision: int, scale: int) -> Kind:
    """A decimal, if there is one with so many digits."""
    if precision > MOST_DIGITS:
        raise NotProven(f"decimals of {precision} digits")
    return Kind("decimal", precision, scale)


def meeting(one: Kind, other: Kind) -> Kind:
    """The type in which two values are compared or chosen from, and numbers other than decimals computed with."""
    if one == other:
        return one
    if one.bits and other.bits:
        return max(one, other, key=lambda kind: kind.bits)
    if DOUBLE in (one, other) and (one.bits or other.bits):
        return DOUBLE
    if one.decimal or other.decimal:
        sides = [k if k.decimal else Kind("decimal", _DIGITS[k.bits]) for k in (one, other) if k.decimal or k.bits]
        if len(sides) == 2:
            scale = max(k.scale for k in sides)
            return decimal(max(k.precision - k.scale for k in sides) + scale, scale)
    raise NotProven(f"{one} together with {other}")


def known(kind: Kind | None, name: str) -> Kind:
    if kind is None:
        raise NotProven(f"a column without a type, {name}")
    return kind


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text as it stands in DuckDB's SQL."""
    return "'" + value.replace("'", "''") + "'"
