"""Aggregates over rows in DuckDB's words: the sums and extremes that partial results are made of."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import expressions as exp

from anabranch.diagram.columnar import expressions
from anabranch.diagram.columnar.expressions import Node, Rule, Translator, made, require
from anabranch.diagram.columnar.kinds import BIGINT, MOST_DIGITS, Kind, Typed

# Beyond these a decimal has more digits than Spark keeps, though DuckDB could hold it.
_LARGEST = "9" * MOST_DIGITS


def _sum(of: Translator, node: Node) -> Typed:
    (part,) = of.operands(node, "this")
    require(part.kind is not None and (part.kind.bits or part.kind.decimal), node)
    assert part.kind is not None
    total = f"SUM({part.sql})"
    if part.kind.bits:
        return made(f"CAST({total} AS BIGINT)", BIGINT, [part], fails=True)
    kind = Kind("decimal", min(MOST_DIGITS, part.kind.precision + 10), part.kind.scale)
    if kind.precision < MOST_DIGITS:
        return made(f"CAST({total} AS {kind})", kind, [part], fails=True)
    limit = f"CAST('{_LARGEST[: MOST_DIGITS - kind.scale]}.{_LARGEST[: kind.scale]}' AS {kind})"
    return made(f"CASE WHEN ABS({total}) > {limit} THEN ERROR('size') ELSE {total} END", kind, [part], fails=True)


def _divided(of: Translator, node: Node) -> Typed:
    """Of decimals: by a power of ten, where the parts of a long one are summed."""
    parts = of.operands(node, "this", "expression")
    one, unit = (part.kind for part in parts)
    if one is None or unit is None or not one.decimal:
        return expressions.RULES[type(node)](of, node)
    require(unit.decimal and not unit.scale, node)
    if isinstance(node, exp.IntDiv):
        whole = " // ".join(f"CAST({sql} AS HUGEINT)" for sql in (f"TRUNC({parts[0].sql})", parts[1].sql))
        return made(f"CAST(({whole}) AS BIGINT)", BIGINT, parts, fails=True)
    kind = Kind("decimal", min(one.precision - one.scale, unit.precision) + one.scale, one.scale)
    return made(f"CAST(({parts[0].sql} % {parts[1].sql}) AS {kind})", kind, parts, fails=True)


def _extreme(of: Translator, node: Node) -> Typed:
    (part,) = of.operands(node, "this")
    require(part.kind is not None, node)
    return made(f"{type(node).__name__.upper()}({part.sql})", part.kind, [part])


def _logarithm(of: Translator, node: Node) -> Typed:
    """Of exponents alone, of which neither engine needs more than the whole part: see the blocks of exact sums."""
    base, value = node.this, of.of(node.args["expression"])
    require(base.name == "2" and value.kind is not None and value.kind.name == "double", node)
    return made(f"LOG2({value.sql})", value.kind, [value], fails=True)


RULES: Mapping[type[Node], Rule] = {
    exp.Sum: _sum,
    **dict.fromkeys((exp.IntDiv, exp.Mod), _divided),
    **dict.fromkeys((exp.Min, exp.Max), _extreme),
    exp.Log: _logarithm,  # here alone: as a value its last digit may differ
}
