"""The aggregates: which there are, and what may be done with their partial results.

Each aggregate is a triple, partial / reduce / final (TRUVISO 4.1). Its grade says how a partial result
takes a deletion. *Linear*: partials add and subtract. *Mergeable*: partials merge, and a deletion
needs the rows again. *Multiset*: the partial keeps each value with its weight, and so subtracts too;
that is how exact distinct counts and medians stay incremental.

An aggregate over another may be computed from the inner one's partials where `over` says so: a sum of
counts is a count of the union. A maximum of counts is not in the table, and must gather first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    LINEAR = "linear"
    MERGEABLE = "mergeable"
    MULTISET = "multiset"


@dataclass(frozen=True)
class Law:
    """What is known of an aggregate function."""

    name: str
    grade: Grade
    least: int = 1
    most: int = 1
    # The aggregate over results of this one that is this one over the union of its rows.
    over: str | None = None
    exact: bool = True
    ours: bool = False  # not for people: a rewrite makes it


_LAWS = (
    Law("count", Grade.LINEAR, most=16, over="sum"),
    Law("count_if", Grade.LINEAR, over="sum"),
    Law("sum", Grade.LINEAR, over="sum"),
    Law("avg", Grade.LINEAR),
    Law("var_samp", Grade.LINEAR),
    Law("var_pop", Grade.LINEAR),
    Law("stddev_samp", Grade.LINEAR),
    Law("stddev_pop", Grade.LINEAR),
    Law("min", Grade.MERGEABLE, over="min"),
    Law("max", Grade.MERGEABLE, over="max"),
    Law("bool_and", Grade.MERGEABLE, over="bool_and"),
    Law("bool_or", Grade.MERGEABLE, over="bool_or"),
    Law("first", Grade.MERGEABLE),
    Law("last", Grade.MERGEABLE),
    Law("approx_count_distinct", Grade.MERGEABLE, most=2, exact=False),
    Law("approx_percentile", Grade.MULTISET, least=2, most=3, exact=False),
    Law("count_distinct", Grade.MULTISET, most=16),
    Law("median", Grade.MULTISET),
    Law("percentile", Grade.MULTISET, least=2, most=2),
    Law("apply", Grade.MULTISET, least=3, most=18),
    Law("latest", Grade.MERGEABLE, ours=True),
    Law("top", Grade.MERGEABLE, least=3, most=3, ours=True),
)
LAWS: Mapping[str, Law] = {law.name: law for law in _LAWS}

# Spark's other names for the same functions.
ALIASES: Mapping[str, str] = {
    "mean": "avg",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "variance": "var_samp",
    "percentile_approx": "approx_percentile",
    "every": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
    "first_value": "first",
    "last_value": "last",
}

# Spark has these too; a query that uses one is told so, instead of being taken for a scalar expression.
# fmt: off
OTHERS = frozenset((
    "any_value", "approx_top_k", "array_agg", "bit_and", "bit_or", "bit_xor", "bitmap_construct_agg",
    "bitmap_or_agg", "collect_list", "collect_set", "corr", "count_min_sketch", "covar_pop", "covar_samp",
    "grouping", "grouping_id", "histogram_numeric", "hll_sketch_agg", "hll_union_agg", "kurtosis", "listagg",
    "max_by", "min_by", "mode", "percentile_cont", "percentile_disc", "regr_avgx", "regr_avgy", "regr_count",
    "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "schema_of_json_agg", "skewness",
    "string_agg", "theta_sketch_agg", "theta_union_agg", "try_avg", "try_sum",
))
# fmt: on


def law_of(function: str) -> Law | None:
    """The law of a function as a person wrote its name, or None if it is no aggregate of ours."""
    name = function.lower()
    law = LAWS.get(ALIASES.get(name, name))
    return None if law is None or law.ours else law
