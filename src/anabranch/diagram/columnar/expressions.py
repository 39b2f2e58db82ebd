"""An expression of Spark's in DuckDB's words: the same value for every row, or an error.

Every part has a type, found as Spark finds it, so that DuckDB computes in the same one. Where Spark raises an error
DuckDB must raise one too; where DuckDB alone does, it does no harm, since whoever gets an error from it asks Spark
instead. What is not in the proven subset raises NotProven before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError

from anabranch.diagram.columnar import casts
from anabranch.diagram.columnar.kinds import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    STRING,
    Kind,
    NotProven,
    Typed,
    decimal,
    meeting,
    quoted,
    text,
)

Node = exp.Expression
Rule = Callable[["Translator", Node], Typed]

# Marks of the parser that change nothing in Spark's dialect.
_HARMLESS = frozenset({"typed", "safe", "coalesce", "ignore_nulls", "big_int"})
_COMPARED: Mapping[type[Node], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
}  # fmt: skip
_ADDED: Mapping[type[Node], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_BITS: Mapping[type[Node], str] = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseRightShift: ">>"}


class Translator:
    """Translates over the columns of a relation, which is called by a name and has no other."""

    def __init__(
        self, rules: Mapping[type[Node], Rule], columns: Mapping[str, Kind], name: str = "", *, utc: bool = True
    ) -> None:
        self._rules = rules
        self._columns = {column.lower(): (column, kind) for column, kind in columns.items()}
        self._name = name.lower()
        self.utc = utc  # whether times of day are those of UTC

    def translate(self, words: str) -> Typed:
        try:
            tree = sqlglot.parse_one(words, read="spark")
        except SqlglotError as error:
            raise NotProven(str(error).splitlines()[0]) from None
        return self.of(cast(Node, tree))

    def of(self, node: Node) -> Typed:
        rule = self._rules.get(type(node))
        if rule is None:
            raise NotProven(said(node))
        return rule(self, node)

    def operands(self, node: Node, *names: str) -> list[Typed]:
        """The operands by name, where they are given; any other mark on the node would change its meaning."""
        others = [name for name, value in node.args.items() if value and name not in (*names, *_HARMLESS)]
        if others:
            raise NotProven(said(node))
        found: list[Node] = []
        for name in names:
            value = node.args.get(name)
            found += value if isinstance(value, list) else [] if value is None else [value]
        return [self.of(part) for part in found]

    def column(self, node: Node) -> Typed:
        known = self._columns.get(node.name.lower())
        qualifiers = [part.name.lower() for part in node.parts[:-1]]  # type: ignore[attr-defined]
        if known is None or qualifiers not in ([], [self._name]) or not isinstance(node.this, exp.Identifier):
            raise NotProven(f"{said(node)}, which is no plain column")
        return Typed(quoted(known[0]), known[1])


def said(node: Node) -> str:
    return node.sql(dialect="spark")


def require(holds: object, node: Node) -> None:
    if not holds:
        raise NotProven(said(node))


def made(sql: str, kind: Kind | None, parts: Sequence[Typed], *, fails: bool = False) -> Typed:
    """A value that is computed from others, and fails where one of them does."""
    return Typed(sql, kind, fails or any(part.fails for part in parts))


def met(parts: Sequence[Typed], node: Node) -> Kind:
    """The type in which some values meet."""
    kinds = [part.kind for part in parts if part.kind is not None]
    require(kinds, node)
    kind = kinds[0]
    for other in kinds[1:]:
        kind = meeting(kind, other)
    return kind


# Leaves.


def _literal(of: Translator, node: Node, sign: str = "") -> Typed:
    if isinstance(node, exp.Null):
        return Typed("NULL", None)
    if isinstance(node, exp.Boolean):
        return Typed(str(bool(node.this)).upper(), BOOLEAN)
    if node.args.get("is_string"):
        return Typed(text(str(node.this)), STRING, text=str(node.this))
    words = sign + str(node.this)
    if "e" in words.lower():
        return Typed(f"CAST('{words}' AS DOUBLE)", DOUBLE)
    if "." not in words and -(1 << 63) <= int(words) < 1 << 63:
        kind = INT if -(1 << 31) <= int(words) < 1 << 31 else BIGINT
        return Typed(f"CAST({words} AS {kind})", kind, digits=len(words.lstrip("-0")) or 1)
    whole, _, fraction = words.lstrip("-").partition(".")
    digits = max(len(whole.lstrip("0")) + len(fraction), len(fraction), 1)
    kind = decimal(digits, len(fraction))
    return Typed(f"CAST('{words}' AS {kind})", kind)


# Arithmetic.


def _negated(of: Translator, node: Node) -> Typed:
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return _literal(of, node.this, "-")
    (part,) = of.operands(node, "this")
    require(part.kind is not None and part.kind.number, node)
    return made(f"(-{part.sql})", part.kind, [part], fails=True)


def _arithmetic(of: Translator, node: Node) -> Typed:
    if isinstance(node.args["expression"], exp.Interval):
        return casts.moved(of.of(node.this), node, of.utc)
    parts = of.operands(node, "this", "expression")
    kind = met(parts, node)
    require(kind.number, node)
    if kind.decimal:
        return _of_decimals(parts, node)
    left, right = (part.as_kind(kind) for part in parts)
    return made(f"({left} {_ADDED[type(node)]} {right})", kind, parts, fails=bool(kind.bits))


def _of_decimals(parts: Sequence[Typed], node: Node) -> Typed:
    """Results have so many digits that nothing is lost."""
    one, other = (part.as_decimal for part in parts)
    if isinstance(node, exp.Mul):
        kind = decimal(one.precision + other.precision + 1, one.scale + other.scale)
        left, right = parts[0].as_kind(one), parts[1].as_kind(other)
    else:
        scale = max(one.scale, other.scale)
        kind = decimal(max(one.precision - one.scale, other.precision - other.scale) + scale + 1, scale)
        left, right = (part.as_kind(kind) for part in parts)
    return made(f"CAST({left} {_ADDED[type(node)]} {right} AS {kind})", kind, parts, fails=True)


def _divided(of: Translator, node: Node) -> Typed:
    parts = of.operands(node, "this", "expression")
    kind = met(parts, node)
    require(kind.bits or kind == DOUBLE, node)
    left, right = (part.as_kind(DOUBLE) for part in parts)
    return _unless_zero(parts, f"{left} / {right}", DOUBLE)


def _whole_divided(of: Translator, node: Node) -> Typed:
    parts = of.operands(node, "this", "expression")
    require(met(parts, node).bits, node)
    left, right = (part.as_kind(BIGINT) for part in parts)
    return _unless_zero(parts, f"({left} // {right})", BIGINT)


def _remainder(of: Translator, node: Node) -> Typed:
    parts = of.operands(node, "this", "expression")
    kind = met(parts, node)
    require(kind.bits, node)
    left, right = (part.as_kind(kind) for part in parts)
    return _unless_zero(parts, f"({left} % {right})", kind)


def _unless_zero(parts: Sequence[Typed], sql: str, kind: Kind) -> Typed:
    if parts[1].digits and parts[1].sql != "CAST(0 AS INTEGER)":
        return made(sql, kind, parts, fails=True)
    guarded = f"CASE WHEN {parts[1].sql} = 0 THEN ERROR('zero') ELSE {sql} END"
    return made(guarded, kind, parts, fails=True)


def _absolute(of: Translator, node: Node) -> Typed:
    (part,) = of.operands(node, "this")
    require(part.kind is not None and part.kind.number, node)
    return made(f"ABS({part.sql})", part.kind, [part], fails=not part.kind or bool(part.kind.bits))


def _to_whole(of: Translator, node: Node) -> Typed:
    (part,) = of.operands(node, "this")
    require(part.kind == DOUBLE, node)
    # Spark converts without a check here, and so other than a cast does.
    word, limit = type(node).__name__.upper(), "9.0e18"
    checked = f"CASE WHEN ABS({part.sql}) < {limit} THEN CAST({word}({part.sql}) AS BIGINT) "
    return made(f"{checked}WHEN {part.sql} IS NULL THEN NULL ELSE ERROR('size') END", BIGINT, [part], fails=True)


def _bitwise(of: Translator, node: Node) -> Typed:
    parts = of.operands(node, "this", "expression")
    if isinstance(node, exp.BitwiseRightShift):
        by = node.args["expression"]
        require(parts[0].kind == BIGINT and isinstance(by, exp.Literal) and 0 <= int(by.name) < 64, node)
        return made(f"({parts[0].sql} >> {by.name})", BIGINT, parts)
    kind = met(parts, node)
    require(kind.bits, node)
    left, right = (part.as_kind(kind) for part in parts)
    return made(f"({left} {_BITS[type(node)]} {right})", kind, parts)


def _power(of: Translator, node: Node) -> Typed:
    """Of two alone: that is exact in both."""
    parts = of.operands(node, "this", "expression")
    base, power = parts
    two = isinstance(node.this, exp.TryCast) and node.this.this.name == "2" and base.kind == DOUBLE
    require(two and power.kind is not None and power.kind.bits, node)
    return made(f"POW({base.sql}, {power.as_kind(DOUBLE)})", DOUBLE, parts)


def _root(of: Translator, node: Node) -> Typed:
    (part,) = of.operands(node, "this")
    require(part.kind is not None and (part.kind == DOUBLE or part.kind.bits), node)
    return made(f"SQRT({part.as_kind(DOUBLE)})", DOUBLE, [part], fails=True)


def _is_nan(of: Translator, node: Node) -> Typed:
    (part,) = of.operands(node, "this")
    require(part.kind is not None and part.kind.floating, node)
    return made(f"COALESCE(ISNAN({part.sql}), FALSE)", BOOLEAN, [part])


# Truth.


def truth(part: Typed, node: Node) -> str:
    require(part.kind in (None, BOOLEAN), node)
    return part.sql if part.kind is not None else "CAST(NULL AS BOOLEAN)"


def _compared(of: Translator, node: Node) -> Typed:
    parts = of.operands(node, "this", "expression")
    kind = met(parts, node)
    left, right = (part.as_kind(kind) for part in parts)
    return made(f"({left} {_COMPARED[type(node)]} {right})", BOOLEAN, parts)


def _joined(of: Translator, node: Node) -> Typed:
    parts = of.operands(node, "this", "expression")
    left, right = (truth(part, node) for part in parts)
    word, settled = ("AND", "FALSE") if isinstance(node, exp.And) else ("OR", "TRUE")
    if not any(part.fails for part in parts):
        return made(f"({left} {word} {right})", BOOLEAN, parts)
    # What can fail is looked at in the order in which it is written: DuckDB would choose its own.
    other = "TRUE" if settled == "FALSE" else "FALSE"
    sql = f"CASE {left} WHEN {settled} THEN {settled} WHEN {other} THEN {right} ELSE (NULL {word} {right}) END"
    return made(f"({sql})", BOOLEAN, parts)


def _denied(of: Translator, node: Node) -> Typed:
    (part,) = of.operands(node, "this")
    return made(f"(NOT {truth(part, node)})", BOOLEAN, [part])


def _is_what(of: Translator, node: Node) -> Typed:
    value = of.of(node.this)
    match node.args["expression"]:
        case exp.Null():
            return made(f"({value.sql} IS NULL)", BOOLEAN, [value])
        case exp.Boolean(this=wanted):
            same = f"({truth(value, node)} IS NOT DISTINCT FROM {str(bool(wanted)).upper()})"
            return made(same, BOOLEAN, [value])
    raise NotProven(said(node))


def _one_of(of: Translator, node: Node) -> Typed:
    parts = of.operands(node, "this", "expressions")
    kind = met(parts, node)
    require(not any(part.fails for part in parts[1:]), node)
    subject, *choices = (part.as_kind(kind) for part in parts)
    return made(f"({subject} IN ({', '.join(choices)}))", BOOLEAN, parts)


def _between(of: Translator, node: Node) -> Typed:
    parts = of.operands(node, "this", "low", "high")
    kind = met(parts, node)
    subject, low, high = (part.as_kind(kind) for part in parts)
    return made(f"({subject} BETWEEN {low} AND {high})", BOOLEAN, parts)


# Choices.


def _first_known(of: Translator, node: Node) -> Typed:
    return _chosen("COALESCE", of.operands(node, "this", "expressions"), node)


def _extreme(of: Translator, node: Node) -> Typed:
    parts = of.operands(node, "this", "expressions")
    require(not met(parts, node).floating, node)  # which of two zeros comes out is not said anywhere
    return _chosen(type(node).__name__.upper(), parts, node)


def _chosen(word: str, parts: Sequence[Typed], node: Node) -> Typed:
    kind = met(parts, node)
    return made(f"{word}({', '.join(part.as_kind(kind) for part in parts)})", kind, parts)


def _null_if(of: Translator, node: Node) -> Typed:
    parts = of.operands(node, "this", "expression")
    kind = met(parts, node)
    require(kind == parts[0].kind, node)
    return made(f"NULLIF({parts[0].sql}, {parts[1].as_kind(kind)})", kind, parts)


def _case(of: Translator, node: Node) -> Typed:
    branches = [(when.this, when.args["true"]) for when in node.args["ifs"]]
    if node.args.get("this") is not None:
        branches = [(exp.EQ(this=node.this, expression=when), then) for when, then in branches]
    return _cases(of, branches, node.args.get("default"), node)


def _if_so(of: Translator, node: Node) -> Typed:
    return _cases(of, [(node.this, node.args["true"])], node.args.get("false"), node)


def _cases(of: Translator, branches: Sequence[tuple[Node, Node]], default: Node | None, node: Node) -> Typed:
    conditions = [of.of(when) for when, _ in branches]
    values = [of.of(then) for _, then in branches]
    values.append(of.of(default) if default is not None else Typed("NULL", None))
    kind = met(values, node)
    *results, otherwise = (value.as_kind(kind) for value in values)
    cases = " ".join(f"WHEN {truth(w, node)} THEN {then}" for w, then in zip(conditions, results, strict=True))
    return made(f"CASE {cases} ELSE {otherwise} END", kind, [*conditions, *values])


def _cast(of: Translator, node: Node) -> Typed:
    return casts.cast(of.of(node.this), node, of.utc)


RULES: Mapping[type[Node], Rule] = {
    exp.Paren: lambda of, node: of.of(node.this),
    exp.Column: Translator.column,
    **dict.fromkeys((exp.Null, exp.Boolean, exp.Literal), _literal),
    exp.Neg: _negated,
    **dict.fromkeys(_ADDED, _arithmetic),
    exp.Div: _divided,
    exp.IntDiv: _whole_divided,
    exp.Mod: _remainder,
    exp.Abs: _absolute,
    **dict.fromkeys((exp.Floor, exp.Ceil), _to_whole),
    **dict.fromkeys(_BITS, _bitwise),
    exp.Pow: _power,
    exp.Sqrt: _root,
    exp.IsNan: _is_nan,
    **dict.fromkeys(_COMPARED, _compared),
    **dict.fromkeys((exp.And, exp.Or), _joined),
    exp.Not: _denied,
    exp.Is: _is_what,
    exp.In: _one_of,
    exp.Between: _between,
    exp.Coalesce: _first_known,
    **dict.fromkeys((exp.Least, exp.Greatest), _extreme),
    exp.Nullif: _null_if,
    exp.Case: _case,
    exp.If: _if_so,
    **dict.fromkeys((exp.Cast, exp.TryCast), _cast),
}
