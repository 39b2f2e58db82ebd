"""Read: a table that Spark can read becomes a stream with a key, and is read again when it has changed.

A table has no place in time. Its rows get the beginning of 1970 as their event time, in a column `since`. So that
nobody waits for it, its progress is far ahead; it is shown nowhere. Reading it again changes what differs: rows that
are new or otherwise replace those of their keys, rows that are gone are deleted, in one unit of work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.api.stream import Stream
from anabranch.engine.queries import Queries
from anabranch.engine.relation import EXACT_JSON
from anabranch.log.log import Log, StreamState
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import TABLE_TIME, StreamSpec

SINCE = TABLE_TIME
_FAR = timedelta(days=36_000)
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def table_spec(name: str, frame: DataFrame, key: Sequence[str] | str) -> StreamSpec:
    """The stream that holds a table."""
    place = f"table {name!r}"
    if SINCE in (column.lower() for column in frame.columns):
        raise AnabranchError(
            "BAD_SCHEMA", place=place, need=f"no column {SINCE!r}, which a table gets of itself", got="one",
            next_step="Rename it in the query, or create a stream with it as EVENT TIME.",
        )  # fmt: skip
    if not key:
        raise AnabranchError(
            "BAD_ARGUMENT", place=place, need="the columns that tell its rows apart", got="no key",
            next_step="Write CREATE TABLE name KEY (a, b) AS SELECT ..., or pass key=.",
        )  # fmt: skip
    columns = {field.name: field.dataType.simpleString() for field in frame.schema}
    return StreamSpec.table(name, columns, key)


def read_into(stream: Stream, frame: DataFrame, there: DataFrame, now: int) -> int:
    """Make a table's stream hold what a frame has; the number of rows that were changed or are gone."""
    key = [f"`{name}`" for name in stream.spec.key]
    names = [f"`{name}`" for name in stream.schema.names]
    declared = [name for name in stream.schema.names if name != SINCE]
    if sorted(name.lower() for name in frame.columns) != sorted(name.lower() for name in declared):
        raise AnabranchError(
            "BAD_ARGUMENT", place=f"table {stream.name!r}", need=f"the columns that it has: {', '.join(declared)}",
            got=", ".join(frame.columns), next_step="Select these, or drop the table and create it anew.",
        )  # fmt: skip
    rows = frame.withColumn(SINCE, F.lit(_BEGINNING)).select(*names)
    twice = rows.groupBy(*key).count().where("count > 1").first()
    if twice is not None:
        raise AnabranchError(
            "BAD_ARGUMENT", place=f"table {stream.name!r}", need=f"one row for each {', '.join(stream.spec.key)}",
            got=f"{twice['count']} rows for {tuple(twice)[:-1]}", next_step="Group by the key, or choose one of them.",
        )  # fmt: skip
    told = F.to_json(F.struct(*names), {"ignoreNullFields": "false", **EXACT_JSON})
    before = there.select(*key, told.alias("_told"))
    changed = rows.withColumn("_told", told).join(before, [*stream.spec.key, "_told"], "left_anti").select(*names)
    gone = before.join(rows, list(stream.spec.key), "left_anti").select(*key)
    with stream.unit_of_work() as work:
        work.replace(changed)
        work.delete(gone)
        header = work.commit()
    reached = stream.state().reached
    if reached is None or reached < now:
        stream.punctuate(datetime.fromtimestamp(now / 1e6, UTC) + _FAR)
    return header.rows


class Tables:
    """The tables of a warehouse."""

    def __init__(self, log: Log, queries: Queries, stream_of: Callable[[StreamState], Stream]) -> None:
        self.log = log
        self.queries = queries
        self.stream_of = stream_of

    def create(self, name: str, frame: DataFrame, key: Sequence[str] | str) -> Stream:
        """Make a table of what a frame has, or read it again into one that has this declaration."""
        return self._read(self.log.create_stream(table_spec(name, frame, key)), frame)

    def replace(self, name: str, frame: DataFrame) -> Stream:
        """Read a table again."""
        state = self.log.stream(name)
        if SINCE not in state.spec.schema.names or not state.spec.key:
            raise AnabranchError(
                "BAD_ARGUMENT", place=f"REPLACE TABLE {name}", need="a table", got="a stream",
                next_step="Use append(), replace() and delete() for streams.",
            )  # fmt: skip
        return self._read(state, frame)

    def _read(self, state: StreamState, frame: DataFrame) -> Stream:
        stream = self.stream_of(state)
        there = self.queries.table(state.name)
        read_into(stream, frame, there, self.log.clock())
        return stream
