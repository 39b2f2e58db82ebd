"""What people read: the table of a stream, consolidated now, and the changes that it said.

The table of a query is a view over partial results: nothing is stored for it, and it is computed when it
is read. The table of the past is what had been said by then: the changes up to there, added up.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.diagram.progress import progress_into, top_aggregate
from anabranch.diagram.reach import needed
from anabranch.engine.answers import Version
from anabranch.engine.columnar.kernel import ColumnarKernel, Declined
from anabranch.engine.columnar.saying import Moment, SayJob
from anabranch.engine.columnar.shares import FOREVER
from anabranch.engine.kept import Shelf
from anabranch.engine.live import Live, LiveQuery
from anabranch.engine.netting import VERSION, rows_of
from anabranch.engine.read import dataframe
from anabranch.engine.recompute import closed_times, recomputed
from anabranch.engine.relation import Leaves, quoted
from anabranch.engine.states import read_state
from anabranch.log.buckets import BASE
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadRange
from anabranch.model.run import ChangeType

CHANGE_COLUMNS = ("_change_type", "_stability", "_bucket", "_ordinal", "_position", "_stime")


def table_of_query(
    log: Log, live: Live, spark: SparkSession, query: LiveQuery, kernel: ColumnarKernel | None, *, include_open: bool
) -> DataFrame:
    """What a query has said, consolidated now; with the windows that are still open, marked, if asked."""
    state = log.stream_by_id(query.stored.stream_id)
    if query.from_changes:
        rows = rows_of(_all_changes(log, spark, state, query.columns), (), query.columns)
        if not include_open:
            return rows
        rows = rows.withColumn("_open", F.lit(False))
        if query.linear or query.rereads:
            return rows
        return rows.unionAll(_answer(log, live, spark, query, kernel, include_open=True).where("_open"))
    return _answer(log, live, spark, query, kernel, include_open=include_open)


def _all_changes(log: Log, spark: SparkSession, state: StreamState, columns: tuple[str, ...]) -> DataFrame:
    """What a stream has emitted, as far as it matters for what is there now: from its state, if there is one."""
    found = log.states.read(state.id, None)
    if found is None:
        return changes_of(log, spark, state, None, None)
    materialised, tail = found
    chosen = [*(f"`{name}`" for name in columns), "_change_type"]
    late = dataframe(spark, tail, log.root, log_columns=True).select(*chosen)
    if not materialised.segments:
        return late
    rows = read_state(spark, log.root, state.spec, [logged.segment for logged in materialised.segments])
    kind = f"IF(_weight < 0, '{ChangeType.DELETE}', '{ChangeType.INSERT}') AS _change_type"
    copies = rows.withColumn("_copy", F.expr("EXPLODE(SEQUENCE(1L, ABS(_weight)))"))
    return copies.selectExpr(*chosen[:-1], kind).unionAll(late)


def _answer(
    log: Log, live: Live, spark: SparkSession, query: LiveQuery, kernel: ColumnarKernel | None, *, include_open: bool
) -> DataFrame:
    """The answer of a query now, from partial results, by whichever kernel can compute it."""
    bucket = query.stored.bucket if query.stored.bucket is not None else -1
    progress = {s: live.progress_at(s, bucket) for s in query.sources}
    version = Version(bucket, progress, open=include_open)
    with Leaves(spark) as leaves:
        if kernel is not None:
            try:
                return _by_columns(log, live, leaves, query, version, kernel)
            except Declined:
                pass
        answer = recomputed(log, live, leaves, query, version)
        chosen = [quoted(name) for name in query.columns]
        if include_open:
            chosen.append(f"{_is_open(query, progress)} AS _open")
        return leaves.frame(f"SELECT {', '.join(chosen)} FROM {answer.source}")


def _is_open(query: LiveQuery, progress: Mapping[str, int | None]) -> str:
    reached = _open_from(query, progress)
    return "FALSE" if reached is None else f"UNIX_MICROS(_event_time) >= {reached}L"


def _open_from(query: LiveQuery, progress: Mapping[str, int | None]) -> int | None:
    """The event time from which results are of open windows; None if there are no windows."""
    top = top_aggregate(query.plan)
    if top is None or top.window is None:
        return None
    reached = progress_into(top, progress)
    return -FOREVER if reached is None else reached


def _by_columns(
    log: Log, live: Live, leaves: Leaves, query: LiveQuery, version: Version, kernel: ColumnarKernel
) -> DataFrame:
    """The answer of one aggregate, by the columnar kernel."""
    wanted = needed(query.plan, closed_times(query, version))
    if query.guard.aside or len(wanted) != 1:
        raise Declined("more than a plain answer of one aggregate")
    ((box, panes),) = wanted.items()
    shelf = Shelf(log, live, query, leaves)
    choice = shelf.choose(box, panes)
    answer = shelf.analysis(box).columnar_answer(leaves, query.plan)
    if isinstance(answer, str) or shelf.resets(box, choice):
        raise Declined("what is not proven")
    open_from = _open_from(query, version.progress)
    closes = FOREVER if version.open else open_from
    moment = Moment(version.bucket, None if closes == -FOREVER else closes)
    job = SayJob(answer, choice.state.spec.schema, choice.segments, choice.panes, choice.keys, (moment,), (), True)
    schema = live.state(query.stored.stream_id).spec.schema
    return kernel.table(leaves.spark, job, schema, open_from, marked=version.open)


def changes_of(
    log: Log, spark: SparkSession, state: StreamState, first: int | None, last: int | None, *, versions: bool = False
) -> DataFrame:
    """The changes of a stream in a range of its positions; with `versions`, by which a key's latest is found."""
    plan = log.plan(state.name, ReadRange(first_position=first, last_position=last))
    frame = dataframe(spark, plan, log.root, log_columns=True)
    own = [f"`{name}`" for name in state.spec.schema.names if not name.startswith("_")]
    if state.role == BASE:  # a base stream's rows are in no bucket of their own
        frame = frame.withColumn("_bucket", F.lit(None).cast("bigint"))
    more = [name for name in VERSION if name not in CHANGE_COLUMNS] if versions else []
    return frame.select(*own, *CHANGE_COLUMNS, *more)
