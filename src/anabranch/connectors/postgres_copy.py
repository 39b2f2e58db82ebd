"""What a range of changes comes to, and how Spark's tasks copy it into a staging table.

Only the net change of each key goes over the wire: the row that is left, or that none is left. Where rows
are counted, as in every stream without a key of its own, the weight of a key says whether the key tells
rows apart: with what was there before it must come to one row or none.

A task that Spark tries twice may have copied its rows twice. Every row therefore names its task and its
attempt, and only those attempts that were reported count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.connectors.postgres_types import as_sent
from anabranch.connectors.targets import Goods, shown
from anabranch.engine.reports import Report
from anabranch.model.errors import AnabranchError
from anabranch.model.run import ChangeType

_PLACE = ("_position", "_bucket", "_ordinal")
_CONNECT_SECONDS = 5


def net_change(changes: DataFrame, goods: Goods) -> DataFrame:
    """One row per key: `_op` is 1 where a row is left and -1 where none is; insertions as they are."""
    names = [f"`{field.name}`" for field in goods.fields]
    if goods.insert_only:
        rows = changes.select(F.lit(1).alias("_op"), F.lit(1).cast("bigint").alias("_weight"), *_PLACE, *names)
    else:
        by_key = bool(goods.stream.spec.key)
        taken = [ChangeType.DELETE.value] if by_key else [ChangeType.DELETE.value, ChangeType.UPDATE_PREIMAGE.value]
        op = F.when(F.col("_change_type").isin(*taken), -1).otherwise(1)
        # Messages by key count in their order. Otherwise a bucket takes a row away and gives another at once.
        order = ("_position", "_ordinal") if by_key else ("_position", "_op", "_ordinal")
        signed = changes.withColumn("_op", op)
        latest = F.max_by(F.struct("_op", *_PLACE, *names), F.struct(*order)).alias("_latest")
        weight = F.sum("_op").alias("_weight")
        found = signed.groupBy(*(f"`{name}`" for name in goods.key)).agg(latest, weight)
        rows = found.select("_latest._op", "_weight", *(f"_latest.{name}" for name in (*_PLACE, *names)))
    sent = [as_sent(f, F.col(f"`{f.name}`")).alias(f.name) for f in goods.fields]
    return rows.select("_op", "_weight", *_PLACE, *sent)


@dataclass(frozen=True)
class CopyTask:
    """What one executor task does; small, and sent to it."""

    uri: str
    place: str
    copy: str  # the COPY statement
    columns: tuple[str, ...]

    def reports(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Report]:
        context = TaskContext.get()
        assert context is not None
        mark = (context.partitionId(), context.taskAttemptId())
        last: list[int] = []
        rows = 0
        with connected(self.uri, self.place) as connection, connection.cursor() as cursor:
            with cursor.copy(self.copy) as copy:
                for batch in batches:
                    rows += batch.num_rows
                    last = max([last, *_places(batch)])
                    for values in self._rows(batch):
                        copy.write_row((*mark, *values))
            connection.commit()
        yield {"mark": list(mark), "rows": rows, "last": last}

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        return zip(*(batch.column(name).to_pylist() for name in self.columns), strict=True)


def _places(batch: pa.RecordBatch) -> Sequence[list[int]]:
    """Where the last item of a batch stands in the log."""
    if not batch.num_rows:
        return []
    positions = batch.column("_position").to_numpy(zero_copy_only=False)
    ordinals = batch.column("_ordinal").to_numpy(zero_copy_only=False)
    at = int(np.lexsort((ordinals, positions))[-1])
    bucket = batch.column("_bucket")[at].as_py()
    return [[int(positions[at]), int(positions[at]) if bucket is None else int(bucket), int(ordinals[at])]]


@contextmanager
def connected(uri: str, place: str) -> Iterator[Any]:
    """A connection; the database's troubles become errors that say what to do."""
    import psycopg

    try:
        with psycopg.connect(uri, connect_timeout=_CONNECT_SECONDS, application_name="anabranch sink") as connection:
            yield connection
    except psycopg.OperationalError as error:
        raise AnabranchError(
            "SINK_UNREACHABLE",
            place=f"{place}, {shown(uri)}",
            need="a database that answers",
            got=_words(error),
            next_step="Check the server and the address; the sink goes on by itself at the next advance.",
        ) from error
    except (psycopg.Error, OverflowError, ValueError) as error:
        raise AnabranchError(
            "SINK_REFUSED",
            place=f"{place}, {shown(uri)}",
            need="changes that the database takes",
            got=_words(error),
            next_step="Mend what is said here, then resume the sink.",
        ) from error


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:400] or type(error).__name__
