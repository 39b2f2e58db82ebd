"""From segments of rows to segments of partial results: what a kernel is asked, and the Spark kernel.

A kernel is given which segments to read, the boxes on the way, and where to write. It works in Spark
tasks, reads and writes there, and returns what it wrote: a segment with its bucket and panes for each.
The Spark kernel computes with Spark SQL and can do everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.stages import Leaf
from anabranch.engine import netting
from anabranch.engine.aggregates import Lowered, takes_deletions
from anabranch.engine.bounds import Oldest, write_ignored
from anabranch.engine.emit import Written, write_buckets
from anabranch.engine.final import Final, apart
from anabranch.engine.groups import Recipe, partial, prepared
from anabranch.engine.guard import FAILED, NO_GUARD, QUOTED, Guard
from anabranch.engine.paths import literal_path
from anabranch.engine.read import dataframe, spark_schema
from anabranch.engine.relation import Leaves, Relation, listed, quoted
from anabranch.engine.resets import RESET, remade, unreset, with_resets
from anabranch.engine.rows import lower_linear
from anabranch.engine.states import read_state
from anabranch.log.buckets import Bounds
from anabranch.log.reading import ReadPlan
from anabranch.log.segments import SegmentLayout
from anabranch.model.errors import AnabranchError
from anabranch.model.run import Role, Segment
from anabranch.model.schema import Schema

# Below this many rows one task is faster than an exchange.
SMALL = 200_000

# Rows that a query has set aside: as they came, in JSON, and why.
QUARANTINE = Schema.parse({"row": "STRING", "_reason": "STRING"}, "quarantine")


class KernelChoice(StrEnum):
    """What the caller wants; `columnar` refuses queries whose aggregates are not proven there."""

    AUTO = "auto"
    SPARK = "spark"
    COLUMNAR = "columnar"

    @classmethod
    def parse(cls, text: str) -> KernelChoice:
        if text not in list(cls):
            raise AnabranchError(
                "BAD_ARGUMENT",
                place="connect(), kernel=",
                need=f"one of {', '.join(cls)}",
                got=repr(text),
                next_step="Leave it out to let each box run where it is fastest.",
            )
        return cls(text)


@dataclass(frozen=True)
class Feed:
    """What is new in one stream: the segments, and how their rows are assigned to buckets.

    In a base stream a bucket is a range of positions. In a derived one the rows say their buckets themselves;
    whoever reads it for the first time takes all that was there before as part of `first`.
    """

    plan: ReadPlan
    bounds: tuple[Bounds, ...] = ()
    revisions: bool = False
    derived: bool = False
    first: int | None = None
    last: int | None = None  # what was said after it does not count yet
    # Deletions have come, and equal rows must be added up: all that there are at these event times is in the plan.
    resolved: bool = False
    since: int | None = None  # of what they come to, only what comes after this bucket
    came: int | None = None  # how many of the rows are new, where others are among them
    oldest: Oldest | None = None  # deletions of rows beyond the stream's history bound, which are ignored
    after: int | None = None  # derived: only later event times, for what came before is no longer whole
    # What all that came before the plan amounts to, for whoever reads it again, and the bucket to which it counts.
    state: tuple[Segment, ...] = ()
    state_bucket: int = 0

    @property
    def rows(self) -> int:
        return sum(s.segment.rows for s in self.plan.segments) + sum(s.rows for s in self.state)

    @property
    def new_rows(self) -> int:
        return self.rows if self.came is None else self.came


@dataclass(frozen=True)
class PartialJob:
    """Rows to be reduced to partial results."""

    box: Partials
    recipe: Recipe
    feeds: Mapping[Leaf, Feed]
    schema: Schema
    layout: SegmentLayout
    guard: Guard = NO_GUARD
    aside: tuple[SegmentLayout, ...] = ()  # where rows go on which an expression failed
    history: Mapping[Leaf, Feed] | None = None  # all rows of the panes, where deletions are among the new ones
    oldest: Oldest | None = None  # deletions that are ignored, where there may be such
    ignored: tuple[SegmentLayout, ...] = ()  # and where they go
    final: Final | None = None  # of a stream with a key: the rows that are not revised any more


@dataclass(frozen=True)
class PartialsWritten:
    partials: tuple[Written, ...]
    aside: tuple[tuple[Written, ...], ...] = ()
    ignored: tuple[tuple[Written, ...], ...] = ()


class SparkKernel:
    """SQL over DataFrames, all the way."""

    name = "spark"

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root

    def partials(self, job: PartialJob) -> PartialsWritten:
        few = sum(feed.rows for feed in job.feeds.values()) < SMALL
        with Leaves(self.spark) as leaves:

            def scan(leaf: Leaf) -> Relation:
                return self.scan(leaves, leaf, job.feeds[leaf], guard=job.guard, together=few)

            below = rows_below(job.box, scan, job.guard)
            ignored = leaves.frame(job.oldest.ignored(below)) if job.oldest else None
            if job.final is not None:
                below, aside_sql = apart(leaves, job.box, job.recipe, below, job.final, str(self.root))
                ignored = leaves.frame(aside_sql)
            below = job.oldest.kept(below) if job.oldest else below
            rows = paned(prepared(below, job.box.keys, job.box.calls, job.recipe.ties, job.guard), job.box)
            keys = [key.name for key in job.box.keys]
            made = self._made(leaves, job, rows, keys)
            frame = leaves.frame(f"SELECT {listed(job.schema.names)} FROM {made.source}")
            aside = leaves.frame(failed_rows(rows)) if job.guard.aside else None
        ordered = frame.sortWithinPartitions("_bucket", "_pane", *keys)
        written = write_buckets(ordered, job.layout, job.schema, pane=job.box.pane, ordinals=False)
        return PartialsWritten(
            tuple(written),
            tuple(tuple(write_aside(aside, layout)) for layout in job.aside),
            tuple(tuple(write_ignored(ignored, layout)) for layout in job.ignored),
        )

    def _made(self, leaves: Leaves, job: PartialJob, rows: Relation, keys: list[str]) -> Relation:
        """Partial results of new rows; where rows have gone that they do not subtract, made again from what is left."""
        names, lowered = job.schema.names, job.recipe.lowered
        if RESET not in names:
            return partial(rows, lowered, _PLACE, keys)
        if job.history is None:
            return unreset(partial(rows, lowered, _PLACE, keys), names)
        history = job.history

        def scan(leaf: Leaf) -> Relation:
            return self.scan(leaves, leaf, history[leaf], guard=job.guard, together=history[leaf].rows < SMALL)

        every = paned(prepare_partials(job.box, scan, job.recipe.ties, job.guard), job.box)
        good = [replace(r, sql=f"SELECT * FROM {r.source} WHERE {FAILED} IS NULL") if job.guard.aside else r
                for r in (rows, every)]  # fmt: skip
        left, places = remade(good[0], good[1], keys)
        return with_resets(partial(left, lowered, _PLACE, keys), places, names)

    def scan(
        self,
        leaves: Leaves,
        leaf: Leaf,
        feed: Feed,
        *,
        guard: Guard = NO_GUARD,
        ordered: bool = False,
        together: bool = False,
    ) -> Relation:
        """The rows of a feed, with event time, weight and bucket; in their places in the log if asked."""
        spec = feed.plan.spec
        messages = isinstance(leaf, Source) and leaf.messages
        if feed.derived:
            frame, made = self._said(feed), _SAID | {"_bucket": _from(feed.first)}
        else:
            logged = len(feed.bounds) > 1 or feed.revisions or ordered or messages
            frame = dataframe(self.spark, feed.plan, self.root, log_columns=logged)
            made = {
                "_event_time": quoted(spec.event_time),
                "_weight": netting.WEIGHT if feed.revisions and not messages else "1",
                "_bucket": _bucket(feed.bounds),
                "_of": "CAST(NULL AS BIGINT)",
            }
            if ordered:
                made |= {"_position": "_position", "_ordinal": "_ordinal"}
            if messages:
                made |= _MESSAGE
        columns = tuple(c for c in spec.schema.names if not c.startswith("_"))
        carried = ", ".join(f"{sql} AS {name}" for name, sql in made.items())
        if feed.state:
            both = [leaves.add(frame), leaves.add(read_state(self.spark, self.root, spec, feed.state))]
            bucket = {**{name: name for name in made}, "_bucket": f"{feed.state_bucket}L"}
            of_state = ", ".join(f"{sql} AS {name}" for name, sql in bucket.items())
            chosen = listed([*columns])
            sql = f"SELECT {chosen}, {carried} FROM {both[0]} UNION ALL SELECT {chosen}, {of_state} FROM {both[1]}"
            frame, carried = leaves.frame(sql), ", ".join(made)
        name = leaves.add(frame.coalesce(1) if together else frame)
        alias = leaf.stream if isinstance(leaf, Source) else "_kept"
        rows = Relation(f"SELECT {listed([*columns])}, {carried} FROM {name}", tuple(made), columns, alias)
        return guard.begin(_resolved(rows, feed) if feed.resolved and not messages else rows)

    def _said(self, feed: Feed) -> DataFrame:
        """The changes that a derived stream has said."""
        schema = spark_schema(feed.plan.spec.schema).add("_change_type", T.StringType())
        paths = [literal_path(str(self.root / s.segment.path)) for s in feed.plan.segments]
        frame = self.spark.read.schema(schema).parquet(*paths) if paths else self.spark.createDataFrame([], schema)
        frame = frame if feed.last is None else frame.where(f"_bucket <= {feed.last}")
        late = f"_event_time IS NULL OR UNIX_MICROS(_event_time) > {feed.after}L"
        return frame if feed.after is None else frame.where(late)


_PLACE = ("_bucket", "_pane")
_MESSAGE = {"_gone": f"({netting.TAKES_AWAY})", "_stamp": netting.STAMP}
_SAID = {"_event_time": "_event_time", "_weight": netting.WEIGHT, "_of": "_of"}


def _from(first: int | None) -> str:
    return "_bucket" if first is None else f"GREATEST(_bucket, {first}L)"


def _bucket(bounds: Sequence[Bounds]) -> str:
    if not bounds:  # a stream of which the buckets hold nothing
        return "0L"
    cases = " ".join(f"WHEN _position <= {bound.end}L THEN {bound.bucket}L" for bound in bounds[:-1])
    last = f"{bounds[-1].bucket}L"
    return f"CASE {cases} ELSE {last} END" if cases else last


def _resolved(rows: Relation, feed: Feed) -> Relation:
    """How often each row is there after every bucket, as differences; never less than not at all."""
    content = ["_event_time", *rows.columns]
    by = listed(content)
    beyond = ""
    if feed.oldest is not None:  # what was there cannot be known: what comes is new, and what goes is ignored
        late = f"FROM {rows.source} WHERE {feed.oldest.beyond} AND _weight > 0"
        beyond = f" UNION ALL SELECT {by}, CAST(NULL AS BIGINT), _bucket, CAST(_weight AS BIGINT) {late}"
        rows = replace(rows, sql=f"SELECT * FROM {rows.source} WHERE NOT {feed.oldest.beyond}")
    buckets = [bound.bucket for bound in feed.bounds]
    counts = ", ".join(
        f"{netting.there(f'SUM(_weight) FILTER (WHERE _bucket <= {bucket}L)')} AS _w{n}"
        for n, bucket in enumerate(buckets)
    )
    said = [(bucket, f"_w{n}" + (f" - _w{n - 1}" if n else "")) for n, bucket in enumerate(buckets)]
    wanted = [(bucket, weight) for bucket, weight in said if feed.since is None or bucket > feed.since]
    items = ", ".join(f"NAMED_STRUCT('_bucket', {bucket}L, '_weight', {weight})" for bucket, weight in wanted)
    listing = f"INLINE(FILTER(ARRAY({items}), i -> i._weight <> 0))"
    inner = f"SELECT {by}, {counts} FROM {rows.source} GROUP BY {by}"
    sql = f"SELECT {by}, CAST(NULL AS BIGINT) AS _of, {listing} FROM ({inner}){beyond}"
    return replace(rows, sql=sql, carried=("_event_time", "_of", "_bucket", "_weight"))


def failed_rows(rows: Relation) -> str:
    reason = f"CONCAT('fails: ', {FAILED})"
    return f"SELECT {QUOTED} AS row, {reason} AS _reason, _bucket FROM {rows.source} WHERE {FAILED} IS NOT NULL"


def write_aside(failed: DataFrame | None, layout: SegmentLayout) -> list[Written]:
    """Keep the rows on which an expression failed, beside the stream."""
    if failed is None:
        return []
    extra = [pa.field("_bucket", pa.int64())]
    return write_buckets(failed, layout, QUARANTINE, extra=extra, role=Role.QUARANTINE, ordinals=False)


def rows_below(box: Partials, scan: Callable[[Leaf], Relation], guard: Guard = NO_GUARD) -> Relation:
    """The rows that go into some partials."""

    def lower(inner: Box) -> Relation:
        return scan(inner) if isinstance(inner, Source | Keep) else lower_linear(inner, lower, guard)

    return lower(box.input)


def prepare_partials(
    box: Partials, scan: Callable[[Leaf], Relation], ties: Sequence[str], guard: Guard = NO_GUARD
) -> Relation:
    """The rows below some partials, with keys and arguments computed."""
    return prepared(rows_below(box, scan, guard), box.keys, box.calls, ties, guard)


def paned(rows: Relation, box: Partials) -> Relation:
    """Rows with the pane that they are in."""
    instant = "UNIX_MICROS(_event_time)"
    pane = "CAST(NULL AS TIMESTAMP)"
    if box.pane is not None:
        pane = f"TIMESTAMP_MICROS({instant} - PMOD({instant} - {box.offset}L, {box.pane}L))"
    return replace(rows, sql=f"SELECT *, {pane} AS _pane FROM {rows.source}", carried=(*rows.carried, "_pane"))


def partial_rows(rows: Relation, box: Partials, lowered: Lowered, keys: Sequence[str]) -> Relation:
    """Partial results per bucket, pane and group."""
    made = partial(paned(rows, box), lowered, _PLACE, keys)
    return made if takes_deletions(box.calls) else unreset(made, (*made.carried, RESET))
