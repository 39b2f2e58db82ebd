"""Expressions for the columnar kernel: Spark's meaning in DuckDB's words, where that is proven."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.diagram.columnar import expressions, functions, measures
from anabranch.diagram.columnar.expressions import Node, Rule, Translator
from anabranch.diagram.columnar.kinds import Kind

_OF_ROWS: Mapping[type[Node], Rule] = {**expressions.RULES, **functions.RULES}
_OF_GROUPS: Mapping[type[Node], Rule] = {**_OF_ROWS, **measures.RULES}


def over_rows(columns: Mapping[str, Kind], name: str = "", *, utc: bool = True) -> Translator:
    """Translates expressions over the columns of a row."""
    return Translator(_OF_ROWS, columns, name, utc=utc)


def over_groups(columns: Mapping[str, Kind]) -> Translator:
    """Translates what partial results keep of the rows of a group."""
    return Translator(_OF_GROUPS, columns)
