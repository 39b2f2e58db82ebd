"""Answers beside the right one: which rows are too few, and which too many."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def differing(truth: DataFrame, answers: Sequence[DataFrame]) -> tuple[int, list[int]]:
    """How many rows are right, and how many each answer has too few or too many: EXCEPT ALL both ways, in one pass."""
    sides = [side.withColumn("_side", F.lit(n)) for n, side in enumerate([truth, *answers])]
    there = [F.count_if(F.col("_side") == n).alias(f"_n{n}") for n in range(len(sides))]
    rows = reduce(DataFrame.unionAll, sides).groupBy(*truth.columns).agg(*there)
    amiss = [f"sum(abs(_n{n} - _n0))" for n in range(1, len(sides))]
    found = rows.agg(*(F.coalesce(F.expr(sql), F.lit(0)) for sql in ("sum(_n0)", *amiss))).first()
    assert found is not None
    return int(found[0]), [int(value) for value in found[1:]]
