"""In what two tables differ: rows that one has and the other has not, as often as that is so."""

from __future__ import annotations

from pyspark.sql import DataFrame

from anabranch.engine.relation import Leaves, listed, told_apart
from anabranch.model.errors import AnabranchError

MINE, THEIRS = "branch", "main"


def difference(mine: DataFrame, theirs: DataFrame, place: str) -> DataFrame:
    """The rows of either that the other has not, each as often as it has more of them; `_in` says which one."""
    columns = mine.columns
    if [(f.name, f.dataType) for f in mine.schema] != [(f.name, f.dataType) for f in theirs.schema]:
        raise AnabranchError(
            "NOT_SUPPORTED", place=place, need="tables with the same columns",
            got=f"{mine.schema.simpleString()} and {theirs.schema.simpleString()}",
            next_step="Read the two tables and compare what they share.",
        )  # fmt: skip
    with Leaves(mine.sparkSession) as leaves:
        ours, others = leaves.add(mine), leaves.add(theirs)
        both = f"SELECT *, 1 AS _weight FROM {ours} UNION ALL SELECT *, -1 AS _weight FROM {others}"
        counted = (
            f"SELECT first(struct({listed(columns)})) AS _row, sum(_weight) AS _more FROM ({both}) "
            f"GROUP BY {told_apart(columns)} HAVING sum(_weight) <> 0"
        )
        return leaves.frame(
            f"SELECT _row.*, IF(_more > 0, '{MINE}', '{THEIRS}') AS _in FROM ({counted}) "
            "LATERAL VIEW explode(sequence(1, abs(_more))) AS _time"
        )
