"""Revisions that are not said: what becomes of a step's changes under the limits of their query (BOREALIS 3.4).

Where a query says only revisions that matter, each result goes through the step's buckets by itself: what is right
after a bucket is compared with what was last *said*, here or in the query's own log. A result that is new or gone
always matters; two images of one matter unless the condition is false. Where revisions are ignored, windows are
said as they close and never again, which needs no work for the others; of answers without windows, what is
inserted is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.explode import Explode
from anabranch.diagram.boxes.partials import Consolidate
from anabranch.diagram.expression import literal
from anabranch.diagram.progress import has_event_time
from anabranch.diagram.query import Query
from anabranch.diagram.reach import Interval
from anabranch.diagram.stages import boxes_of
from anabranch.diagram.taxonomy import arbitrary_in
from anabranch.engine.analysis import Analysis
from anabranch.engine.changes import ORDER, comparable
from anabranch.engine.guard import Guard, fails
from anabranch.engine.live import LiveQuery
from anabranch.engine.mistakes import ExpressionRefused, quietly
from anabranch.engine.paths import literal_path
from anabranch.engine.read import spark_schema
from anabranch.engine.relation import Leaves, Relation, listed, quoted
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadRange
from anabranch.model.errors import AnabranchError
from anabranch.model.run import ChangeType, LoggedSegment

_DROPPED = "dropped"


def check_importance(analysis: Analysis, box: Box, query: Query) -> None:
    """Refuse a condition on revisions that Spark does not accept, or that is about results which are not one each."""
    when = query.limits.when
    if when is None:
        return
    stage = list(boxes_of(box))
    if not any(isinstance(b, Aggregate | Consolidate) for b in stage) or any(isinstance(b, Explode) for b in stage):
        raise AnabranchError(
            "NOT_SUPPORTED",
            place=f"query {query.name!r}, REVISE WHEN",
            need="results of an aggregate, of which each group has one",
            got="rows, of which there may be many about the same thing",
            next_step="Leave it out, or aggregate; ON REVISION IGNORE works for any query.",
        )
    if function := arbitrary_in(when):
        raise ExpressionRefused(when, f"{function}, which is another one each time")
    with Leaves(analysis.spark) as leaves, quietly():
        answer = analysis.answer(leaves, box)
        fields = ", ".join(f"{literal(name)}, {quoted(name)}" for name in box.columns)
        images = f"SELECT NAMED_STRUCT({fields}) AS _image FROM {answer.source}"
        try:
            found = leaves.frame(f"SELECT {_both('_image', '_image', when.text)} AS _matters FROM ({images})")
        except (AnalysisException, ParseException) as error:
            raise ExpressionRefused(when, error) from error
        if not isinstance(found.schema["_matters"].dataType, T.BooleanType):
            raise ExpressionRefused(when, f"a value of type {found.schema['_matters'].dataType.simpleString()}")


def insertions(changes: Relation) -> Relation:
    """Only what is new."""
    return replace(changes, sql=f"SELECT * FROM {changes.source} WHERE _change_type = '{ChangeType.INSERT}'")


def important(
    changes: Relation, said: Relation, query: LiveQuery, kinds: T.StructType, guard: Guard, whole: int | None = None
) -> Relation:
    """Changes as they are from what was said; those that matter too little are marked, to be counted and left out.

    `changes` have `_id` and the order of items, `said` has for each result, as `_of`, its last image in `_said`. If
    the changes are `whole`, from nothing, what they do not have is gone in that bucket.
    """
    image = _image(query.columns)
    after = f"CASE WHEN _change_type <> '{ChangeType.DELETE}' THEN {image} END"
    event = f"NAMED_STRUCT('b', _bucket, 'after', {after})"
    in_order = f"ARRAY_SORT(COLLECT_LIST({event}), (x, y) -> CAST(SIGN(x.b - y.b) AS INT))"
    events = (
        f"SELECT _id, ANY_VALUE(_of) AS _of, {in_order} AS _events FROM {changes.source} "
        f"WHERE _change_type <> '{ChangeType.UPDATE_PREIMAGE}' GROUP BY _id"
    )
    gone = f"ARRAY(NAMED_STRUCT('b', {whole or 0}L, 'after', IF(FALSE, s._said, NULL)))"
    known = (
        f"SELECT c._id, COALESCE(c._of, s._of) AS _of, COALESCE(c._events, {gone}) AS _events, s._said "
        f"FROM ({events}) AS c {'LEFT' if whole is None else 'FULL'} JOIN ({said.sql}) AS s ON c._of = s._of"
    )
    items = f"SELECT _id, _of, INLINE({_fold(query, kinds, guard)}) FROM ({known})"
    both = ", ".join(
        f"NAMED_STRUCT('_rank', {rank}, '_change_type', {kind}, '_said', {image})" for rank, kind, image in _IMAGES
    )
    flat = (
        f"SELECT _id, _of, _bucket, COALESCE(new._event_time, old._event_time) AS _at, "
        f"INLINE(FILTER(ARRAY({both}), i -> i._change_type IS NOT NULL)) FROM ({items})"
    )
    columns = "".join(f", _said.c{n} AS {quoted(name)}" for n, name in enumerate(query.columns))
    sql = f"SELECT {listed(ORDER)}, _change_type, _of, _said._event_time{columns} FROM ({flat})"
    return Relation(sql, (*ORDER, "_change_type", "_of", "_event_time"), query.columns)


_IMAGES = (
    (
        0,
        f"CASE WHEN dropped THEN '{_DROPPED}' WHEN old IS NULL THEN NULL "
        f"WHEN new IS NULL THEN '{ChangeType.DELETE}' ELSE '{ChangeType.UPDATE_PREIMAGE}' END",
        "old",
    ),
    (
        1,
        f"CASE WHEN dropped OR new IS NULL THEN NULL "
        f"WHEN old IS NULL THEN '{ChangeType.INSERT}' ELSE '{ChangeType.UPDATE_POSTIMAGE}' END",
        "new",
    ),
)


def _fold(query: LiveQuery, kinds: T.StructType, guard: Guard) -> str:
    """A result through the buckets of a step: what was said of it last, and the items that come of it."""
    places = [T.StructField(f"c{n}", kinds[name].dataType) for n, name in enumerate(query.columns)]
    kind = T.StructType([kinds["_event_time"], *places])
    same = f"{comparable('_a.said', kind)} <=> {comparable('_e.after', kind)}"
    images = [_named(query.columns, of) for of in ("_a.said", "_e.after")]
    matters = _both(images[0], images[1], _matters(query, guard))
    dropped = f"_a.said IS NOT NULL AND _e.after IS NOT NULL AND NOT {matters}"

    def said(last: str, is_dropped: str) -> str:
        item = f"NAMED_STRUCT('_bucket', _e.b, 'old', _a.said, 'new', _e.after, 'dropped', {is_dropped})"
        return f"NAMED_STRUCT('said', {last}, 'items', CONCAT(_a.items, ARRAY({item})))"

    none = "NAMED_STRUCT('_bucket', 0L, 'old', _said, 'new', _said, 'dropped', FALSE)"
    start = f"NAMED_STRUCT('said', _said, 'items', FILTER(ARRAY({none}), i -> FALSE))"
    step = (
        f"CASE WHEN {same} THEN _a WHEN {dropped} THEN {said('_a.said', 'TRUE')} ELSE {said('_e.after', 'FALSE')} END"
    )
    return f"AGGREGATE(_events, {start}, (_a, _e) -> {step}, _a -> _a.items)"


def _matters(query: LiveQuery, guard: Guard) -> str:
    text = "TRUE" if query.limits.when is None else query.limits.when.text
    unless_false = f"COALESCE(({text}), TRUE)"  # where it cannot be told, it matters
    return f"CASE WHEN {fails(text)} THEN TRUE ELSE {unless_false} END" if guard.on else unless_false


def _both(old: str, new: str, text: str) -> str:
    """A condition on two images, under the names that people give them."""
    return f"ZIP_WITH(ARRAY({old}), ARRAY({new}), (old, new) -> ({text}))[0]"


def _image(columns: Sequence[str]) -> str:
    fields = "".join(f", 'c{n}', {quoted(name)}" for n, name in enumerate(columns))
    return f"NAMED_STRUCT('_event_time', _event_time{fields})"


def _named(columns: Sequence[str], image: str) -> str:
    return f"NAMED_STRUCT({', '.join(f'{literal(name)}, {image}.c{n}' for n, name in enumerate(columns))})"


def last_said(log: Log, leaves: Leaves, query: LiveQuery, changed: Sequence[Interval]) -> Relation:
    """What a query has last said of each result at some event times, from its own log."""
    state = log.stream_by_id(query.stored.stream_id)
    schema = spark_schema(state.spec.schema).add("_change_type", T.StringType())
    paths = [literal_path(str(log.root / s.segment.path)) for s in _segments(log, state, query, changed)]
    spark = leaves.spark
    frame = spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)
    image = f"CASE WHEN _change_type <> '{ChangeType.DELETE}' THEN {_image(query.columns)} END"
    sql = (
        f"SELECT _of, MAX_BY({image}, _bucket) AS _said FROM {leaves.add(frame)} "
        f"WHERE _change_type <> '{ChangeType.UPDATE_PREIMAGE}' GROUP BY _of"
    )
    return Relation(sql, ("_of", "_said"))


def _segments(log: Log, state: StreamState, query: LiveQuery, changed: Sequence[Interval]) -> Sequence[LoggedSegment]:
    if has_event_time(query.plan):
        return log.plan_panes(state, changed)
    return log.plan(state.name, ReadRange(held=True)).segments


class Tally:
    """Counts what is left out of a step's changes, while they are written."""

    def __init__(self, query: LiveQuery) -> None:
        self.seen = Observation() if query.limits.when is not None else None

    def left(self, changes: DataFrame) -> DataFrame:
        """What is to be said."""
        if self.seen is None:
            return changes
        watched = changes.observe(self.seen, F.count_if(F.col("_change_type") == _DROPPED).alias(_DROPPED))
        return watched.where(F.col("_change_type") != _DROPPED)

    @property
    def dropped(self) -> int:
        """How many were left out; known once the changes are written."""
        return 0 if self.seen is None else int(self.seen.get.get(_DROPPED, 0))
