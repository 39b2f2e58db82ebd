"""What people read: the table of a stream, consolidated now, and the changes that it said.

The table of a query is a view over partial results: nothing is stored for it, and it is computed when it
is read. The table of the past is what had been said by then: the changes up to there, added up.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.diagram.progress import progress_into, top_aggregate
from anabranch.engine.answers import Version
from anabranch.engine.live import Live, LiveQuery
from anabranch.engine.read import dataframe
from anabranch.engine.recompute import recomputed
from anabranch.engine.relation import Leaves, quoted
from anabranch.log.buckets import BASE
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadRange
from anabranch.model.run import ChangeType
from anabranch.model.stream import StreamSpec

CHANGE_COLUMNS = ("_change_type", "_stability", "_bucket", "_ordinal", "_position", "_stime")
_TAKEN = (ChangeType.DELETE.value, ChangeType.UPDATE_PREIMAGE.value)


def table_of_query(log: Log, live: Live, spark: SparkSession, query: LiveQuery, *, include_open: bool) -> DataFrame:
    """What a query has said, consolidated now; with the windows that are still open, marked, if asked."""
    state = log.stream_by_id(query.stored.stream_id)
    if query.from_changes:
        rows = net(changes_of(log, spark, state, None, None), query.columns)
        if not include_open:
            return rows
        rows = rows.withColumn("_open", F.lit(False))
        if query.linear or query.rereads:
            return rows
        return rows.unionAll(_answer(log, live, spark, query, include_open=True).where("_open"))
    return _answer(log, live, spark, query, include_open=include_open)


def _answer(log: Log, live: Live, spark: SparkSession, query: LiveQuery, *, include_open: bool) -> DataFrame:
    """The answer of a query now, from partial results."""
    bucket = query.stored.bucket if query.stored.bucket is not None else -1
    progress = {s: live.progress_at(s, bucket) for s in query.sources}
    version = Version(bucket, progress, open=include_open)
    with Leaves(spark) as leaves:
        answer = recomputed(log, live, leaves, query, version)
        chosen = [quoted(name) for name in query.columns]
        if include_open:
            chosen.append(f"{_is_open(query, progress)} AS _open")
        return leaves.frame(f"SELECT {', '.join(chosen)} FROM {answer.source}")


def _is_open(query: LiveQuery, progress: dict[str, int | None]) -> str:
    top = top_aggregate(query.plan)
    if top is None or top.window is None:
        return "FALSE"
    reached = progress_into(top, progress)
    return "TRUE" if reached is None else f"UNIX_MICROS(_event_time) >= {reached}L"


def changes_of(log: Log, spark: SparkSession, state: StreamState, first: int | None, last: int | None) -> DataFrame:
    """What a derived stream said in a range of its positions, in order."""
    plan = log.plan(state.name, ReadRange(first_position=first, last_position=last))
    frame = dataframe(spark, plan, log.root, log_columns=True)
    own = [f"`{name}`" for name in state.spec.schema.names if not name.startswith("_")]
    if state.role == BASE:  # a base stream's rows are in no bucket of their own
        frame = frame.withColumn("_bucket", F.lit(None).cast("bigint"))
    return frame.select(*own, *CHANGE_COLUMNS)


def live_rows(messages: DataFrame, spec: StreamSpec) -> DataFrame:
    """The rows of a stream with a key that are alive: of each key the latest version, unless that one deletes."""
    own = [f"`{name}`" for name in spec.schema.names]
    latest = F.max_by(F.struct("_change_type", *own), F.struct("_stime", "_position", "_ordinal"))
    found = messages.groupBy(*(f"`{name}`" for name in spec.key)).agg(latest.alias("_latest"))
    alive = found.where(F.col("_latest._change_type") != ChangeType.DELETE.value)
    return alive.select(*(F.col(f"_latest.{name}") for name in own))


def net(changes: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    """The rows that are left when changes are added up."""
    weight = F.when(F.col("_change_type").isin(*_TAKEN), -1).otherwise(1)
    names = [f"`{name}`" for name in columns]
    left = changes.groupBy(*names).agg(F.sum(weight).alias("_left")).where("_left > 0")
    return left.withColumn("_copy", F.expr("EXPLODE(SEQUENCE(1, _left))")).select(*names)
