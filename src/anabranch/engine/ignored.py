"""Reading what queries have ignored: for people, and for the joins that ignored it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.diagram.reach import Interval
from anabranch.engine.bounds import IGNORED
from anabranch.engine.live import Live, LiveQuery
from anabranch.engine.paths import literal_path
from anabranch.engine.read import spark_schema
from anabranch.engine.relation import Leaves, Relation
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadRange
from anabranch.model.run import Role, Segment

_SHOWN = ("row", "_change_type", "_event_time", "_bucket", "_reason")


def _segments(log: Log, state: StreamState) -> list[Segment]:
    plan = log.plan(state.name, ReadRange(role=Role.IGNORED, held=True))
    return [logged.segment for logged in plan.segments]


def _of_all(log: Log, live: Live, query: LiveQuery) -> list[Segment]:
    """What a query has ignored, and the stages behind it that nobody can name."""
    states = [log.stream_by_id(stage.stored.stream_id) for stage in live.stages_of(query)]
    return [segment for state in states for segment in _segments(log, state)]


def _frame(log: Log, spark: SparkSession, segments: Sequence[Segment]) -> DataFrame:
    schema = spark_schema(IGNORED).add("_bucket", T.LongType())
    paths = [literal_path(str(log.root / segment.path)) for segment in segments]
    return spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)


def ignored_rows(log: Log, spark: SparkSession, live: Live, query: LiveQuery) -> DataFrame:
    """What a query has ignored, because rows beyond its history bound would have to be read again."""
    return _frame(log, spark, _of_all(log, live, query)).select(*_SHOWN)


def count_ignored(log: Log, live: Live, query: LiveQuery) -> int:
    return sum(segment.rows for segment in _of_all(log, live, query))


def ignored_before(log: Log, leaves: Leaves, query: LiveQuery, times: Sequence[Interval]) -> Relation | None:
    """What a query has ignored at some event times in earlier steps; None if there is nothing.

    The catalog finds it by its event times: however much was ignored at others is not looked at.
    """
    state = log.stream_by_id(query.stored.stream_id)
    found = [logged.segment for logged in log.plan_panes(state, times, role=Role.IGNORED)]
    if not found:
        return None
    name = leaves.add(_frame(log, leaves.spark, found).coalesce(1))
    return Relation(f"SELECT * FROM {name}", tuple(IGNORED.names))
