"""Expressions: the user's SQL text as a function of a row's columns, with Spark's ANSI meaning.

The text is parsed as Spark's dialect and compiled once into a closure. Columns are found whatever their case,
and qualifiers are dropped. Integers overflow their type: a column is taken for a BIGINT, a literal is an INT if
it fits, a cast says what it says. NULL in, NULL out, but for what is made to look at NULL (AND, OR, IS, IN,
COALESCE, CASE, <=>). What is not in the subset is refused with NOT_SUPPORTED; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache
from typing import cast

import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError

from anabranch.diagram.expression import Expression
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import unknown_column
from anabranch.model.time import duration_us
from anabranch.reference import functions, operators
from anabranch.reference.casts import to_double
from anabranch.reference.closures import (
    Evaluate,
    Part,
    between,
    branches,
    casting,
    coalesce,
    constant,
    junction,
    nullif,
    of_known,
    one_of,
    same,
    strict,
    truth,
    widest,
)
from anabranch.reference.values import Failed, Refused, Value, kind, plain


class ExpressionFailed(Exception):
    """An expression has no value for a row: a division by zero, a bad cast, an overflow."""

    def __init__(self, expression: str, reason: str, values: Mapping[str, Value] | None = None) -> None:
        self.expression = expression
        self.reason = reason
        self.values = dict(values or {})
        super().__init__(f"{expression}: {reason}" + (f"; the row is {self.values}" if self.values else ""))


def compile_expression(expression: Expression, columns: Sequence[str]) -> Evaluate:
    """The expression as a function from a row's values, by column name, to its value."""
    return _compiled(expression, tuple(columns))


@lru_cache(maxsize=1024)  # who runs a diagram bucket by bucket asks for the same ones again and again
def _compiled(expression: Expression, columns: tuple[str, ...]) -> Evaluate:
    refusal = f"expression {expression.text!r}"
    try:
        tree = sqlglot.parse_one(expression.text, read="spark")
        part = _Compiler(columns, refusal).compile(cast(exp.Expression, tree))
    except SqlglotError as error:
        raise not_supported(refusal, f"text that cannot be parsed: {str(error).splitlines()[0]}") from None
    except Refused as refused:
        raise not_supported(refusal, str(refused)) from None

    def evaluate(values: Mapping[str, Value]) -> Value:
        try:
            return plain(part.evaluate({name.lower(): value for name, value in values.items()}))
        except Refused as refused:
            raise not_supported(refusal, str(refused)) from None
        except (Failed, ArithmeticError) as failed:
            raise ExpressionFailed(expression.text, str(failed), values) from None

    return evaluate


def not_supported(place: str, got: str) -> AnabranchError:
    return AnabranchError(
        "NOT_SUPPORTED",
        place=place,
        need="the SQL that the reference executor knows",
        got=got,
        next_step="Write the expression otherwise, or ask Spark for its value.",
    )


_FUNCTIONS: Mapping[type[exp.Expression], tuple[Callable[..., Value], tuple[str, ...]]] = {
    exp.Add: (operators.add, ("this", "expression")),
    exp.Sub: (operators.subtract, ("this", "expression")),
    exp.Mul: (operators.multiply, ("this", "expression")),
    exp.IntDiv: (operators.divide_whole, ("this", "expression")),
    exp.Mod: (operators.remainder, ("this", "expression")),
    exp.Neg: (operators.negate, ("this",)),
    exp.EQ: (operators.equal, ("this", "expression")),
    exp.NEQ: (lambda a, b: operators.compare(a, b) != 0, ("this", "expression")),
    exp.LT: (lambda a, b: operators.compare(a, b) < 0, ("this", "expression")),
    exp.LTE: (lambda a, b: operators.compare(a, b) <= 0, ("this", "expression")),
    exp.GT: (lambda a, b: operators.compare(a, b) > 0, ("this", "expression")),
    exp.GTE: (lambda a, b: operators.compare(a, b) >= 0, ("this", "expression")),
    exp.Not: (lambda value: not truth(value), ("this",)),
    exp.Abs: (functions.absolute, ("this",)),
    exp.Upper: (functions.upper, ("this",)),
    exp.Lower: (functions.lower, ("this",)),
    exp.Length: (functions.length, ("this",)),
    exp.Substring: (functions.substring, ("this", "start", "length")),
    exp.Concat: (functions.concat, ("expressions",)),
    exp.DPipe: (functions.concat, ("this", "expression")),
    exp.Floor: (functions.floor, ("this",)),
    exp.Ceil: (functions.ceil, ("this",)),
    exp.Round: (functions.rounded, ("this", "decimals")),
}
# Integers of these have a width of their own; of all others, that of the widest operand.
_WIDTHS: Mapping[type[exp.Expression], int] = {exp.IntDiv: 64, exp.Floor: 64, exp.Ceil: 64, exp.Length: 32}
# What the parser calls by no class of its own: Spark's function names.
_BY_NAME: Mapping[str, tuple[Callable[..., Value], int]] = {"PMOD": (operators.positive_remainder, 2)}
# Marks of the parser that change nothing in Spark's dialect.
_HARMLESS = frozenset({"typed", "safe", "coalesce", "ignore_nulls"})
_TYPES = {"TEXT": "STRING", "VARCHAR": "STRING", "TIMESTAMPTZ": "TIMESTAMP", "TIMESTAMPLTZ": "TIMESTAMP"}
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


class _Compiler:
    def __init__(self, columns: Sequence[str], place: str) -> None:
        self._columns = columns
        self._place = place

    def compile(self, node: exp.Expression) -> Part:
        found = _FUNCTIONS.get(type(node))
        match node:
            case exp.Paren():
                return self.compile(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Null() | exp.Boolean() | exp.Literal() | exp.RawString():
                return constant(_literal(node))
            case exp.Neg(this=exp.Literal(is_string=False)):
                return constant(_literal(node.this, "-"))
            case exp.Interval():
                return constant(_interval(node))
            case exp.Concat() if "safe" not in node.args:
                raise Refused("adjacent string literals, or a doubled quote; escape it with a backslash")
            case exp.Anonymous():
                return self._by_name(node)
            case exp.Div():
                return self._divide(node)
            case exp.Cast() | exp.TryCast():
                return self._cast(node)
        if found is not None:
            function, names = found
            return widest(function, self._parts(node, *names), _WIDTHS.get(type(node)))
        return self._of_null(node)

    def _of_null(self, node: exp.Expression) -> Part:
        """What gives more than NULL for NULL."""
        match node:
            case exp.And():
                return Part(junction(self._parts(node, "this", "expression"), decides=False))
            case exp.Or():
                return Part(junction(self._parts(node, "this", "expression"), decides=True))
            case exp.Is():
                return self._is(node)
            case exp.NullSafeEQ():
                return Part(same(self._parts(node, "this", "expression"), True))
            case exp.NullSafeNEQ():
                return Part(same(self._parts(node, "this", "expression"), False))
            case exp.In():
                return Part(one_of(*self._parts(node, "this", "expressions")))
            case exp.Between():
                return Part(between(*self._parts(node, "this", "low", "high")))
            case exp.Coalesce():
                return coalesce(self._parts(node, "this", "expressions"))
            case exp.Nullif():
                return nullif(*self._parts(node, "this", "expression"))
            case exp.Least():
                return of_known(functions.least, self._parts(node, "this", "expressions"))
            case exp.Greatest():
                return of_known(functions.greatest, self._parts(node, "this", "expressions"))
            case exp.Case():
                return self._case(node)
            case exp.If():
                return branches([(self._one(node, "this"), self._one(node, "true"))], self._maybe(node, "false"))
            case exp.Like() | exp.Escape():
                return Part(self._like(node))
        raise Refused(f"{node.sql(dialect='spark')!r} ({type(node).__name__})")

    def _parts(self, node: exp.Expression, *names: str) -> list[Part]:
        """The operands by name, where they are given; any other mark on the node would change its meaning."""
        others = [name for name, value in node.args.items() if value and name not in (*names, *_HARMLESS)]
        if others:
            raise Refused(f"{', '.join(others)} in {node.sql(dialect='spark')!r}")
        found: list[exp.Expression] = []
        for name in names:
            value = node.args.get(name)
            found += value if isinstance(value, list) else [] if value is None else [value]
        return [self.compile(operand) for operand in found]

    def _one(self, node: exp.Expression, name: str) -> Part:
        return self.compile(node.args[name])

    def _maybe(self, node: exp.Expression, name: str) -> Part:
        return self.compile(node.args[name]) if node.args.get(name) is not None else constant(None)

    def _column(self, node: exp.Column) -> Part:
        if not isinstance(node.this, exp.Identifier):
            raise Refused(repr(node.sql(dialect="spark")))
        name = node.name.lower()
        known = [column.lower() for column in self._columns]
        if f"{node.table.lower()}.{name}" in known:  # a side of a join
            name = f"{node.table.lower()}.{name}"
        if name not in known:
            raise unknown_column(self._place, node.name, self._columns, "Check the spelling.")
        return Part(lambda row: row[name], 64)

    def _by_name(self, node: exp.Anonymous) -> Part:
        name = node.name.upper()
        parts = [self.compile(operand) for operand in node.expressions]
        function, count = _BY_NAME.get(name, (None, 0))
        if function is not None and len(parts) == count:
            return widest(function, parts)
        if name in ("ISNULL", "ISNOTNULL") and len(parts) == 1:
            return Part(lambda row: (parts[0].evaluate(row) is None) == (name == "ISNULL"))
        if name in ("TINYINT", "SMALLINT", "BIGINT") and len(parts) == 1:
            return casting(parts[0], name, (), safe=False)
        raise Refused(f"the function {node.name!r} of {len(parts)}")

    def _divide(self, node: exp.Div) -> Part:
        left, right = self._parts(node, "this", "expression")
        # In decimal division a literal has as many digits as it is written with, another integer those of its type.
        digits = None if isinstance(node.expression, exp.Literal) else _DIGITS[right.bits]

        def divided(a: Value, b: Value) -> Value:
            return operators.divide(a, b, digits if kind(b) == "whole" else None)

        return Part(strict(divided, [left, right]))

    def _cast(self, node: exp.Cast | exp.TryCast) -> Part:
        if node.args.get("format") or node.args.get("default") or node.to.args.get("nested"):
            raise Refused(repr(node.sql(dialect="spark")))
        name = node.to.this.name
        parameters = tuple(int(parameter.this.name) for parameter in node.to.expressions)
        return casting(self.compile(node.this), _TYPES.get(name, name), parameters, bool(node.args.get("safe")))

    def _is(self, node: exp.Is) -> Part:
        value = self.compile(node.this)
        match node.expression:
            case exp.Null():
                return Part(lambda row: value.evaluate(row) is None)
            case exp.Boolean():
                wanted = node.expression.this
                return Part(lambda row: value.evaluate(row) is wanted)
        raise Refused(repr(node.sql(dialect="spark")))

    def _case(self, node: exp.Case) -> Part:
        pairs = [(self._one(when, "this"), self._one(when, "true")) for when in node.args["ifs"]]
        if node.this is not None:
            subject = self.compile(node.this)
            pairs = [(Part(strict(operators.equal, [subject, when])), then) for when, then in pairs]
        return branches(pairs, self._maybe(node, "default"))

    def _like(self, node: exp.Expression) -> Evaluate:
        escape, inner = "\\", node
        if isinstance(node, exp.Escape):
            escape, inner = node.expression.name, node.this
        if not isinstance(inner, exp.Like) or len(escape) != 1:
            raise Refused(repr(node.sql(dialect="spark")))
        negate = bool(inner.args.get("negate"))
        parts = [self._one(inner, "this"), self._one(inner, "expression")]
        return strict(lambda text, pattern: functions.like(text, pattern, escape) != negate, parts)


def _literal(node: exp.Expression, sign: str = "") -> Value:
    """A literal's value: digits with a point are a decimal, with an exponent a double."""
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean | exp.RawString) or node.args.get("is_string"):
        return node.this
    text = sign + str(node.this)
    if "e" in text.lower():
        return to_double(text)
    if "." not in text and -(1 << 63) <= int(text) < 1 << 63:
        return int(text)
    return Decimal(text)


def _interval(node: exp.Interval) -> timedelta:
    unit = node.args.get("unit")
    if not isinstance(node.this, exp.Literal) or isinstance(unit, exp.IntervalSpan):
        raise Refused(repr(node.sql(dialect="spark")))
    text = f"{node.this.name} {unit.name if unit else ''}".strip()
    try:
        length = timedelta(microseconds=duration_us(text.removeprefix("-"), "interval"))
    except AnabranchError as error:
        raise Refused(f"an interval of {error.got}") from None
    return -length if text.startswith("-") else length
