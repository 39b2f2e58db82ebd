"""Functions of the user's own inside Spark: one Arrow function calls them all, for each group once.

What they give comes back as JSON, and Spark reads it as the type that was asked for: so a session needs to know
one function, whatever people bring.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udf

from anabranch.diagram.functions import as_json, call

APPLY = "anabranch_apply"


def register(spark: SparkSession) -> None:
    spark.udf.register(APPLY, arrow_udf(_applied, "string"))


def _applied(paths: pa.Array, groups: pa.Array) -> pa.Array:
    """Each group's items, as often as they are there, given to the function."""
    results = []
    for path, group in zip(paths, groups, strict=True):
        items = group.values
        rows = pa.Table.from_struct_array(items.field("i"))
        often = items.field("w").to_pylist()
        places = [place for place, times in enumerate(often) for _ in range(times)]
        results.append(as_json(call(path.as_py(), rows.take(places))))
    return pa.array(results, pa.string())
