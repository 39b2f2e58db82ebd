"""What a range of changes comes to, and how Spark's tasks copy it into a staging table.

Only the net change of each key goes over the wire: the row that is left, or that none is left (`netting`). Where rows
are counted, as in every stream without a key of its own, the weight of a key says whether the key tells
rows apart: with what was there before it must come to one row or none. Of a base stream without a key the net weight
of each row is copied, since one that was deleted before it came must be told from others with its key.

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
from anabranch.engine.netting import VERSION, latest, net, weighted
from anabranch.engine.relation import Leaves, listed
from anabranch.engine.reports import Report
from anabranch.log.buckets import BASE
from anabranch.model.errors import AnabranchError

# The place of the last change that a row stands for.
_PLACE = ("_position", "_bucket", "_ordinal")
_LAST = ("_last", "MAX(STRUCT(_position, _ordinal, _bucket))")
_CONNECT_SECONDS = 5


def net_change(changes: DataFrame, goods: Goods) -> DataFrame:
    """What is to be staged: `_op` is 1 where a row is left and -1 where none is, `_weight` how many more there are."""
    names = [field.name for field in goods.fields]
    with Leaves(changes.sparkSession) as leaves:
        source = leaves.add(changes)
        if goods.insert_only:
            place = ", ".join(f"{name} AS _place{n}" for n, name in enumerate(_PLACE))
            sql = f"SELECT 1 AS _op, 1L AS _weight, {place}, {listed(names)} FROM {source}"
        else:
            place = ", ".join(f"_last.{name} AS _place{n}" for n, name in enumerate(_PLACE))
            sql, more = (_by_version if goods.stream.spec.key else _by_weight)(source, goods, names)
            sql = f"SELECT _op, _weight, {place}, {listed([*names, *more])} FROM ({sql})"
        rows = leaves.frame(sql)
    sent = [as_sent(f, F.col(f"`{f.name}`")).alias(f.name) for f in goods.fields]
    return rows.select("_op", "_weight", *_PLACES, *sent, *(n for n in VERSION if n in rows.columns))


_PLACES = tuple(f"_place{n}" for n in range(len(_PLACE)))


def _by_version(source: str, goods: Goods, names: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The latest message of each key, with its version in types that PostgreSQL compares as we do."""
    found = latest(source, goods.key, [*names, *VERSION], [_LAST])
    known = "COALESCE(_entry_point, '') AS _entry_point, COALESCE(_sequence, 0L) AS _sequence"
    version = f"UNIX_MICROS(_stime) AS _stime, {known}, _ordinal"
    chosen = f"IF(_gone, -1, 1) AS _op, 1L AS _weight, _last, {listed(names)}, {version}"
    return f"SELECT {chosen} FROM ({found})", VERSION


def _by_weight(source: str, goods: Goods, names: Sequence[str]) -> tuple[str, Sequence[str]]:
    rows = net(weighted(source), names, [_LAST])
    if goods.stream.role == BASE:
        return f"SELECT CAST(SIGN(_net) AS INT) AS _op, _net AS _weight, _last, {listed(names)} FROM ({rows})", ()
    row = f"MAX_BY(STRUCT({listed(names)}), _net) AS _row"
    found = f"SELECT {row}, MAX(_net) AS _most, SUM(_net) AS _weight, MAX(_last) AS _last FROM ({rows})"
    return f"SELECT IF(_most > 0, 1, -1) AS _op, _weight, _last, _row.* FROM ({found} GROUP BY {listed(goods.key)})", ()


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
    position, bucket, ordinal = (batch.column(name) for name in _PLACES)
    positions, ordinals = (column.to_numpy(zero_copy_only=False) for column in (position, ordinal))
    at = int(np.lexsort((ordinals, positions))[-1])
    bucket = bucket[at].as_py()
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
