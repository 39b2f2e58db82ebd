"""Schemas: named columns with Spark SQL types, and the Arrow types in which they rest.

The type names are Spark's own, so that a schema reads as in `CREATE TABLE`. `TIMESTAMP` is an
instant, kept as microseconds in UTC; `TIMESTAMP_NTZ` is a wall-clock reading without a zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from anabranch.model.errors import AnabranchError

INSTANT = pa.timestamp("us", tz="UTC")

_SIMPLE: Mapping[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": INSTANT,
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_ALIASES = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "BOOL": "BOOLEAN",
    "TEXT": "STRING",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|`[^`]+`|\d+|[<>(),:])")


@dataclass(frozen=True)
class Field:
    """A column: its name, its Spark SQL type in canonical spelling, and whether nulls are allowed."""

    name: str
    type: str
    nullable: bool = True

    @cached_property
    def arrow(self) -> pa.Field:
        return pa.field(self.name, _TypeParser(self.type, self.name).parse()[1], self.nullable)

    def __str__(self) -> str:
        return f"{self.name} {self.type}" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True)
class Schema:
    """The columns of a stream, in order."""

    fields: tuple[Field, ...]

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @cached_property
    def arrow(self) -> pa.Schema:
        return pa.schema([field.arrow for field in self.fields])

    def __getitem__(self, name: str) -> Field:
        return next(field for field in self.fields if field.name == name)

    def to_json(self) -> list[dict[str, Any]]:
        return [{"name": f.name, "type": f.type, "nullable": f.nullable} for f in self.fields]

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> Schema:
        return cls(tuple(Field(c["name"], c["type"], c["nullable"]) for c in columns))

    @classmethod
    def parse(cls, text: str | Mapping[str, str], place: str) -> Schema:
        """Read `"user INT, ts TIMESTAMP NOT NULL"`, or a mapping of names to types.

        >>> str(Schema.parse("user integer, tags array<string>", "test"))
        'user INT, tags ARRAY<STRING>'
        """
        columns = text.items() if isinstance(text, Mapping) else _split_columns(text, place)
        fields = []
        for name, declared in columns:
            bare, not_null = re.subn(r"\s+NOT\s+NULL\s*$", "", declared, flags=re.IGNORECASE)
            fields.append(Field(name, _TypeParser(bare, f"{place}, column {name!r}").canonical(), not not_null))
        repeated = sorted({f.name for f in fields if [g.name.lower() for g in fields].count(f.name.lower()) > 1})
        if repeated or not fields:
            raise _bad_schema(place, "columns with different names", f"{repeated or 'no column'}")
        return cls(tuple(fields))


def _split_columns(text: str, place: str) -> Iterator[tuple[str, str]]:
    depth, start = 0, 0
    parts = []
    for at, char in enumerate(text + ","):
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    for part in parts:
        match = re.match(r"\s*(`[^`]+`|\w+)\s*:?\s+(\S.*?)\s*$", part, flags=re.DOTALL)
        if match is None:
            raise _bad_schema(place, "columns as 'name TYPE', separated by commas", repr(part.strip()))
        yield match[1].strip("`"), match[2]


class _TypeParser:
    """A type in Spark's DDL spelling, to its canonical text and its Arrow type."""

    def __init__(self, text: str, place: str) -> None:
        self.text = text
        self.place = place
        self.tokens = _TOKEN.findall(text)
        if "".join(self.tokens) != re.sub(r"\s+", "", text):
            raise self._error()

    def canonical(self) -> str:
        return self.parse()[0]

    def parse(self) -> tuple[str, pa.DataType]:
        self.at = 0
        result = self._type()
        if self.at != len(self.tokens):
            raise self._error()
        return result

    def _type(self) -> tuple[str, pa.DataType]:
        name = self._take().upper()
        name = _ALIASES.get(name, name)
        if name in _SIMPLE:
            return name, _SIMPLE[name]
        if name in ("DECIMAL", "DEC", "NUMERIC"):
            return self._decimal()
        if name == "ARRAY":
            (text, arrow), _ = self._bracketed(1)[0], None
            return f"ARRAY<{text}>", pa.list_(arrow)
        if name == "MAP":
            (key, key_arrow), (value, value_arrow) = self._bracketed(2)
            return f"MAP<{key}, {value}>", pa.map_(key_arrow, value_arrow)
        if name == "STRUCT":
            return self._struct()
        raise self._error()

    def _decimal(self) -> tuple[str, pa.DataType]:
        precision, scale = 10, 0
        if self._peek() == "(":
            self._expect("(")
            precision = self._number()
            if self._peek() == ",":
                self._expect(",")
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise self._error()
        return f"DECIMAL({precision}, {scale})", pa.decimal128(precision, scale)

    def _bracketed(self, count: int) -> list[tuple[str, pa.DataType]]:
        self._expect("<")
        inner = [self._type()]
        while len(inner) < count:
            self._expect(",")
            inner.append(self._type())
        self._expect(">")
        return inner

    def _struct(self) -> tuple[str, pa.DataType]:
        self._expect("<")
        texts, fields = [], []
        while True:
            name = self._take().strip("`")
            if self._peek() == ":":
                self._expect(":")
            text, arrow = self._type()
            texts.append(f"{_quoted(name)}: {text}")
            fields.append(pa.field(name, arrow))
            if self._peek() != ",":
                break
            self._expect(",")
        self._expect(">")
        return f"STRUCT<{', '.join(texts)}>", pa.struct(fields)

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self.at += 1
        return token

    def _number(self) -> int:
        token = self._take()
        if not token.isdigit():
            raise self._error()
        return int(token)

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise self._error()

    def _error(self) -> AnabranchError:
        return _bad_schema(self.place, "a Spark SQL type that can be stored", repr(self.text.strip()))


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else f"`{name}`"


def _bad_schema(place: str, need: str, got: str) -> AnabranchError:
    known = ", ".join([*_SIMPLE, "DECIMAL(p, s)", "ARRAY<t>", "MAP<k, v>", "STRUCT<name: t>"])
    return AnabranchError("BAD_SCHEMA", place=place, need=need, got=got, next_step=f"Types: {known}.")


def type_name(arrow: pa.DataType) -> str:
    """The Spark SQL name of an Arrow type, for messages and for comparing files with a schema."""
    for name, known in _SIMPLE.items():
        if arrow.equals(known):
            return name
    if pa.types.is_timestamp(arrow):
        return "TIMESTAMP" if arrow.tz else "TIMESTAMP_NTZ"
    if pa.types.is_decimal(arrow):
        return f"DECIMAL({arrow.precision}, {arrow.scale})"
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return f"ARRAY<{type_name(arrow.value_type)}>"
    if pa.types.is_map(arrow):
        return f"MAP<{type_name(arrow.key_type)}, {type_name(arrow.item_type)}>"
    if pa.types.is_struct(arrow):
        inner = (arrow.field(i) for i in range(arrow.num_fields))
        return f"STRUCT<{', '.join(f'{_quoted(f.name)}: {type_name(f.type)}' for f in inner)}>"
    return str(arrow)


_WHOLE_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def widens(have: str, want: str) -> bool:
    """Whether Spark can read values of one type as another without changing any of them."""
    if have in _WHOLE_NUMBERS and want in _WHOLE_NUMBERS:
        return _WHOLE_NUMBERS.index(have) <= _WHOLE_NUMBERS.index(want)
    return (have, want) == ("FLOAT", "DOUBLE")
