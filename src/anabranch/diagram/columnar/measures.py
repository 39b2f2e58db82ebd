"""Aggregates over rows in DuckDB's words: the sums and extremes that partial results are made of."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import expressions as exp

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
    **dict.fromkeys((exp.Min, exp.Max), _extreme),
    exp.Log: _logarithm,  # here alone: as a value its last digit may differ
}
