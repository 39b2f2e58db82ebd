"""Random expressions of Spark's, and rows on which they may go wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("tiny", pa.int8()), ("i", pa.int32()), ("j", pa.int32()), ("b", pa.int64()), ("f", pa.float32()),
        ("d", pa.float64()), ("e", pa.float64()), ("m", pa.decimal128(10, 2)), ("n", pa.decimal128(18, 4)),
        ("s", pa.string()), ("u", pa.string()), ("yes", pa.bool_()), ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")), ("ts", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip
DDL = (
    "tiny TINYINT, i INT, j INT, b BIGINT, f FLOAT, d DOUBLE, e DOUBLE, m DECIMAL(10,2), n DECIMAL(18,4), "
    "s STRING, u STRING, yes BOOLEAN, day DATE, at TIMESTAMP, ts TIMESTAMP"
)
_INTS = (0, 1, -1, 2, 7, -8, 100, 2**31 - 1, -(2**31))
_LONGS = (*_INTS, 2**32, -(2**32) - 1, 2**63 - 1, -(2**63), 10**18)
_DOUBLES = (0.0, -0.0, 1.0, -1.5, 0.1, 1e-300, 1e308, -1e308, 2.0**53, 5e-324, math.nan, math.inf, -math.inf, 3e9, -7.0)
_TEXTS = ("", " ", "a", "abc", " abc ", "ABC", "Straße", "İi", "日本", "a%b", "a_b", "12", "-7", "+3", " 5 ", "1e3",
          "1.50", "2026-02-28", "2026-02-30", "2026-01-01 10:11:12.5", "NaN", "it's", "back\\slash", "\U0001f600x",
          "e\u0301", "99999999999", "tab\t", "x" * 40)  # fmt: skip
_DAYS = (date(1970, 1, 1), date(1969, 12, 31), date(2026, 2, 28), date(1, 1, 1), date(9999, 12, 31), date(2000, 2, 29))
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_INSTANTS = tuple(
    datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]
    for parts in [(1970, 1, 1), (1969, 12, 31, 23, 59, 59, 999_999), (2026, 3, 29, 1, 30), (1, 1, 1),
                  (9999, 12, 31, 23), (2026, 12, 31, 23, 59, 59, 500_000), (1582, 10, 10), (2024, 2, 29, 12, 0, 0, 1)]
)  # fmt: skip
_VALUES: Mapping[str, tuple[object, ...]] = {
    "tiny": (0, 1, -1, 127, -128), "i": _INTS, "j": _INTS, "b": _LONGS, "f": (0.0, -0.0, 1.5, math.nan, math.inf, 0.1),
    "d": _DOUBLES, "e": _DOUBLES, "m": tuple(map(Decimal, ("0", "0.01", "-1.50", "99999999.99", "-9999999.99", "2.5"))),
    "n": tuple(map(Decimal, ("0", "0.0001", "-0.5", "12345678901234.5678", "3"))), "s": _TEXTS, "u": _TEXTS,
    "yes": (True, False), "day": _DAYS, "at": _INSTANTS, "ts": _INSTANTS,
}  # fmt: skip


_MILD = {"d": (0.5, -1.5, 0.1, 3.25), "e": (1.0, 2.0), "s": ("a", "abc", ""), "i": (1, 2, 7), "j": (3, -4),
         "b": (5, 2**40), "u": ("12", "7"), "tiny": (1, 2)}  # fmt: skip


def admissible_rows(chance: np.random.Generator, count: int, *, mild: bool) -> pa.Table:
    """Rows that a stream takes, within three hours; values on which little goes wrong, if asked."""
    table = rows(chance, count, _VALUES | _MILD if mild else _VALUES)
    times = [_NOW + timedelta(seconds=int(s)) for s in chance.integers(0, 3 * 3600, count)]
    return table.set_column(table.column_names.index("ts"), SCHEMA.field("ts"), [times])


def rows(chance: np.random.Generator, count: int, values: Mapping[str, tuple[object, ...]] = _VALUES) -> pa.Table:
    """Rows of nasty values; one in six is null."""
    columns = {
        field.name: [
            None if chance.random() < 0.16 else values[field.name][chance.integers(len(values[field.name]))]
            for _ in range(count)
        ]
        for field in SCHEMA
    }
    columns["ts"] = [value or _INSTANTS[0] for value in columns["ts"]]  # an event time is never null
    return pa.table(columns, SCHEMA)


class Expressions:
    """Random expressions of a kind, as text."""

    def __init__(self, chance: np.random.Generator) -> None:
        self.chance = chance
        self._makers: Mapping[str, tuple[Callable[[int], str], ...]] = {
            "int": (
                self._int_column,
                self._int_literal,
                self._whole,
                self._length,
                self._part,
                self._days,
                self._to_int,
            ),
            "long": (lambda n: "b", lambda n: "5000000000", self._long, self._micros, self._floor, self._to_long),
            "double": (lambda n: self.pick("d", "e"), self._double_literal, self._double, self._to_double),
            "decimal": (lambda n: self.pick("m", "n"), lambda n: self.pick("1.5", "0.01", "-2.25"), self._decimal),
            "text": (lambda n: self.pick("s", "u"), self._text_literal, self._text, self._to_text),
            "truth": (lambda n: "yes", self._compared, self._joined, self._null, self._among, self._text_truth),
            "day": (lambda n: "day", lambda n: "DATE '2026-01-31'", lambda n: f"to_date({self.of('time', n)})"),
            "time": (lambda n: self.pick("at", "ts"), self._time),
        }

    def pick(self, *choices: str) -> str:
        return choices[self.chance.integers(len(choices))]

    def any(self, depth: int = 3) -> str:
        return self.of(self.pick(*self._makers), depth)

    def of(self, kind: str, depth: int) -> str:
        makers = self._makers[kind]
        if depth <= 0:
            return makers[0](0)
        made = makers[self.chance.integers(len(makers))](depth - 1)
        return self._wrapped(kind, made, depth) if self.chance.random() < 0.2 else made

    def _wrapped(self, kind: str, made: str, depth: int) -> str:
        other, when = self.of(kind, depth - 1), self.of("truth", depth - 1)
        return self.pick(
            f"CASE WHEN {when} THEN {made} ELSE {other} END", f"CASE WHEN {when} THEN {made} END",
            f"COALESCE({made}, {other})", f"IF({when}, {made}, {other})", f"({made})", f"NULLIF({made}, {made})",
        )  # fmt: skip

    def _int_column(self, depth: int) -> str:
        return self.pick("i", "j", "tiny")

    def _int_literal(self, depth: int) -> str:
        return self.pick("0", "1", "-1", "3", "10", "2147483647")

    def _whole(self, depth: int) -> str:
        a, b = self.of("int", depth), self.of("int", depth)
        return self.pick(f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} % {b})", f"abs({a})", f"(-{a})",
                         f"pmod({a}, 7)", f"({a} & {b})", f"({a} | {b})", f"greatest({a}, {b})",
                         f"least({a}, {b})")  # fmt: skip

    def _length(self, depth: int) -> str:
        return f"length({self.of('text', depth)})"

    def _part(self, depth: int) -> str:
        part = self.pick("year", "month", "day", "quarter", "dayofmonth")
        if self.chance.random() < 0.4:
            return f"{self.pick('hour', 'minute', 'second')}({self.of('time', depth)})"
        return f"{part}({self.of(self.pick('time', 'day'), depth)})"

    def _days(self, depth: int) -> str:
        return f"datediff({self.of('day', depth)}, {self.of('day', depth)})"

    def _to_int(self, depth: int) -> str:
        return f"CAST({self.of(self.pick('long', 'double', 'text', 'truth'), depth)} AS INT)"

    def _long(self, depth: int) -> str:
        a, b = self.of("long", depth), self.of(self.pick("int", "long"), depth)
        return self.pick(f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({b} DIV {a})", f"({a} DIV 7)",
                         f"({a} % {b})", f"shiftright({a}, 32)", f"({a} & 4294967295)",
                         f"greatest({a}, {b})")  # fmt: skip

    def _micros(self, depth: int) -> str:
        at = self.of("time", depth)
        return self.pick(f"unix_micros({at})", f"unix_millis({at})", f"unix_seconds({at})", f"CAST({at} AS BIGINT)")

    def _floor(self, depth: int) -> str:
        return f"{self.pick('floor', 'ceil')}({self.of('double', depth)})"

    def _to_long(self, depth: int) -> str:
        return f"CAST({self.of(self.pick('int', 'double', 'text'), depth)} AS BIGINT)"

    def _double_literal(self, depth: int) -> str:
        return self.pick("0.5D", "1e10", "-3e0", "DOUBLE('Infinity')", "0e0")

    def _double(self, depth: int) -> str:
        a, b = self.of("double", depth), self.of(self.pick("double", "int", "long"), depth)
        return self.pick(f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / {b})", f"(i / {b})", f"abs({a})",
                         f"sqrt({a})", f"(-{a})")  # fmt: skip

    def _to_double(self, depth: int) -> str:
        return f"CAST({self.of(self.pick('int', 'long', 'text'), depth)} AS DOUBLE)"

    def _decimal(self, depth: int) -> str:
        a, b = self.of("decimal", depth), self.of(self.pick("decimal", "int"), depth)
        return self.pick(f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"CAST({a} AS DECIMAL(12, 1))",
                         f"CAST({self.of('int', depth)} AS DECIMAL(12, 2))", f"abs({a})", f"(-{a})")  # fmt: skip

    def _text_literal(self, depth: int) -> str:
        return self.pick("''", "'a'", "'abc'", "'Straße'", "'12'", '"x"')

    def _text(self, depth: int) -> str:
        a, b = self.of("text", depth), self.of("text", depth)
        return self.pick(f"upper({a})", f"lower({a})", f"trim({a})", f"ltrim({a})", f"rtrim({a})", f"concat({a}, {b})",
                         f"({a} || {b})", f"substring({a}, 2, 2)", f"substring({a}, 3)",
                         f"replace({a}, 'a', {b})")  # fmt: skip

    def _to_text(self, depth: int) -> str:
        return f"CAST({self.of(self.pick('int', 'long', 'truth', 'day', 'time', 'decimal'), depth)} AS STRING)"

    def _compared(self, depth: int) -> str:
        sides = self.pick("int int", "int long", "long double", "double double", "decimal decimal", "text text",
                          "day day", "time time", "int decimal", "truth truth").split()  # fmt: skip
        a, b = (self.of(side, depth) for side in sides)
        return f"({a} {self.pick('=', '<>', '<', '<=', '>', '>=', '<=>')} {b})"

    def _joined(self, depth: int) -> str:
        a, b = self.of("truth", depth), self.of("truth", depth)
        return self.pick(f"({a} AND {b})", f"({a} OR {b})", f"(NOT {a})", f"{a} AND {b}")

    def _null(self, depth: int) -> str:
        a = self.of(self.pick("int", "double", "text", "time"), depth)
        return self.pick(f"({a} IS NULL)", f"({a} IS NOT NULL)", f"isnull({a})", f"({self.of('truth', depth)} IS TRUE)")

    def _among(self, depth: int) -> str:
        kind = self.pick("int", "text", "double", "decimal", "day")
        a, b = self.of(kind, depth), self.of(kind, 0)
        return self.pick(f"({a} IN ({b}, {self.of(kind, 0)}))", f"({a} BETWEEN {b} AND {self.of(kind, depth)})",
                         f"({a} NOT IN ({b}))")  # fmt: skip

    def _text_truth(self, depth: int) -> str:
        a = self.of("text", depth)
        return self.pick(f"({a} LIKE 'a%')", f"({a} LIKE '%\u00df_')", f"startswith({a}, 'a')", f"contains({a}, 'b')",
                         f"endswith({a}, {self.of('text', 0)})", f"({a} LIKE '_')", "isnan(d)")  # fmt: skip

    def _time(self, depth: int) -> str:
        at = self.of("time", depth)
        unit = self.pick("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
        return self.pick(f"date_trunc('{unit}', {at})", f"({at} + INTERVAL 90 MINUTES)", f"({at} - INTERVAL 1 DAY)",
                         f"CAST({self.of('day', depth)} AS TIMESTAMP)", f"CAST({self.of('text', depth)} AS TIMESTAMP)",
                         "TIMESTAMP '2026-01-01 00:00:00'")  # fmt: skip

    def query(self, name: str) -> str:
        """A query with aggregates of all kinds that both kernels know."""
        keys = [self.of(self.pick("int", "text", "truth", "double", "day", "decimal"), 1) for _ in range(2)]
        calls = [self._call() for _ in range(3)]
        chosen = [f"{key} AS k{n}" for n, key in enumerate(keys)] + [f"{call} AS a{n}" for n, call in enumerate(calls)]
        where = f" WHERE {self.of('truth', 2)}" if self.chance.random() < 0.5 else ""
        windows = (
            "|",
            " <SLICES '1 hour'>|, cq_close(*) AS t",
            " <VISIBLE '2 hours' ADVANCE '1 hour'>|, cq_close(*) AS t",
        )
        window, close = self.pick(*windows).split("|")
        groups = ", ".join(f"k{n}" for n in range(len(keys)))
        having = " HAVING count(*) > 1" if self.chance.random() < 0.2 else ""
        select = f"SELECT {', '.join(chosen)}{close} FROM t{window}{where} GROUP BY {groups}{having}"
        return f"CREATE STREAM {name} AS {select}"

    def _call(self) -> str:
        number = self.of(self.pick("int", "long", "double", "decimal"), 2)
        value = self.of(self.pick(*self._makers), 2)
        only = f" FILTER (WHERE {self.of('truth', 1)})" if self.chance.random() < 0.3 else ""
        truth = self.of("truth", 1)
        call = self.pick("count(*)", f"count({value})", f"sum({number})", f"avg({number})", f"min({value})",
                         f"max({value})", f"var_samp({self.of('double', 1)})", "stddev_pop(d)", f"bool_or({truth})",
                         f"count_if({truth})", f"count(DISTINCT {value})")  # fmt: skip
        return call if call.startswith(("count_if", "count(DISTINCT")) else call + only
