"""From segments of rows to segments of partial results: one interface for whatever computes it.

A kernel is given which segments to read, the boxes on the way, and where to write. It works in Spark
tasks, reads and writes there, and returns what it wrote: a segment with its bucket and panes for each.
The Spark kernel computes with Spark SQL and can do everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.engine.aggregates import Lowered, takes_deletions
from anabranch.engine.emit import Written, write_buckets
from anabranch.engine.groups import Recipe, partial, prepared
from anabranch.engine.guard import FAILED, NO_GUARD, QUOTED, Guard
from anabranch.engine.read import dataframe
from anabranch.engine.relation import Leaves, Relation, listed, quoted
from anabranch.engine.rows import lower_linear
from anabranch.log.buckets import Bounds
from anabranch.log.reading import ReadPlan
from anabranch.log.segments import SegmentLayout
from anabranch.model.run import ChangeType, Role
from anabranch.model.schema import Schema

# Below this many rows one task is faster than an exchange.
SMALL = 200_000

# Rows that a query has set aside: as they came, in JSON, and why.
QUARANTINE = Schema.parse({"row": "STRING", "_reason": "STRING"}, "quarantine")


@dataclass(frozen=True)
class Feed:
    """What is new in one base stream: the segments, and which positions belong to which bucket."""

    plan: ReadPlan
    bounds: tuple[Bounds, ...]
    revisions: bool = False

    @property
    def rows(self) -> int:
        return sum(s.segment.rows for s in self.plan.segments)


@dataclass(frozen=True)
class PartialJob:
    """Rows to be reduced to partial results."""

    box: Partials
    recipe: Recipe
    feeds: Mapping[str, Feed]
    schema: Schema
    layout: SegmentLayout
    guard: Guard = NO_GUARD
    aside: SegmentLayout | None = None  # where rows go on which an expression failed


@dataclass(frozen=True)
class PartialsWritten:
    partials: tuple[Written, ...]
    aside: tuple[Written, ...] = ()


class Kernel(Protocol):
    name: str

    def partials(self, job: PartialJob) -> PartialsWritten: ...


class SparkKernel:
    """SQL over DataFrames, all the way."""

    name = "spark"

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root

    def partials(self, job: PartialJob) -> PartialsWritten:
        few = sum(feed.rows for feed in job.feeds.values()) < SMALL
        with Leaves(self.spark) as leaves:

            def scan(stream: str) -> Relation:
                return self.scan(leaves, job.feeds[stream], guard=job.guard, together=few)

            rows = prepare_partials(job.box, scan, job.recipe.ties, job.guard)
            keys = [key.name for key in job.box.keys]
            made = partial_rows(rows, job.box, job.recipe.lowered, keys)
            frame = leaves.frame(f"SELECT {listed(job.schema.names)} FROM {made.source}")
            aside = leaves.frame(failed_rows(rows)) if job.guard.aside else None
        ordered = frame.sortWithinPartitions("_bucket", "_pane", *keys)
        written = write_buckets(ordered, job.layout, job.schema, pane=job.box.pane, ordinals=False)
        return PartialsWritten(tuple(written), tuple(write_aside(aside, job.aside)))

    def scan(
        self, leaves: Leaves, feed: Feed, *, guard: Guard = NO_GUARD, ordered: bool = False, together: bool = False
    ) -> Relation:
        """The new rows of a stream, with event time, weight and bucket; in their places in the log if asked."""
        spec = feed.plan.spec
        logged = len(feed.bounds) > 1 or feed.revisions or ordered
        frame = dataframe(self.spark, feed.plan, self.root, log_columns=logged)
        made = {
            "_event_time": quoted(spec.event_time),
            "_weight": _WEIGHT if feed.revisions else "1",
            "_bucket": _bucket(feed.bounds),
        }
        if ordered:
            made |= {"_position": "_position", "_ordinal": "_ordinal"}
        columns = spec.schema.names
        carried = ", ".join(f"{sql} AS {name}" for name, sql in made.items())
        name = leaves.add(frame.coalesce(1) if together else frame)
        rows = Relation(f"SELECT {listed(columns)}, {carried} FROM {name}", tuple(made), tuple(columns), spec.name)
        return guard.begin(rows)


_NO_DELETION = "DELETION_NOT_TAKEN: the results of min, max, first, last and of sketches do not take deletions"
_WEIGHT = f"CASE WHEN _change_type IN ('{ChangeType.DELETE}', '{ChangeType.UPDATE_PREIMAGE}') THEN -1 ELSE 1 END"


def _bucket(bounds: Sequence[Bounds]) -> str:
    cases = " ".join(f"WHEN _position <= {bound.end}L THEN {bound.bucket}L" for bound in bounds[:-1])
    last = f"{bounds[-1].bucket}L"
    return f"CASE {cases} ELSE {last} END" if cases else last


def failed_rows(rows: Relation) -> str:
    reason = f"CONCAT('fails: ', {FAILED})"
    return f"SELECT {QUOTED} AS row, {reason} AS _reason, _bucket FROM {rows.source} WHERE {FAILED} IS NOT NULL"


def write_aside(failed: DataFrame | None, layout: SegmentLayout | None) -> list[Written]:
    """Keep the rows on which an expression failed, beside the stream."""
    if failed is None or layout is None:
        return []
    extra = [pa.field("_bucket", pa.int64())]
    return write_buckets(failed, layout, QUARANTINE, extra=extra, role=Role.QUARANTINE, ordinals=False)


def rows_below(box: Partials, scan: Callable[[str], Relation], guard: Guard = NO_GUARD) -> Relation:
    """The rows that go into some partials."""

    def lower(inner: Box) -> Relation:
        return scan(inner.stream) if isinstance(inner, Source) else lower_linear(inner, lower, guard)

    rows = lower(box.input)
    if takes_deletions(box.calls):
        return rows
    weight = f"CASE WHEN _weight < 0 THEN RAISE_ERROR('{_NO_DELETION}') ELSE _weight END AS _weight"
    names = [name for name in rows.names if name != "_weight"]
    return replace(rows, sql=f"SELECT {listed(names)}, {weight} FROM {rows.source}")


def prepare_partials(
    box: Partials, scan: Callable[[str], Relation], ties: Sequence[str], guard: Guard = NO_GUARD
) -> Relation:
    """The rows below some partials, with keys and arguments computed."""
    return prepared(rows_below(box, scan, guard), box.keys, box.calls, ties, guard)


def partial_rows(rows: Relation, box: Partials, lowered: Lowered, keys: Sequence[str]) -> Relation:
    """Partial results per bucket, pane and group."""
    instant = "UNIX_MICROS(_event_time)"
    pane = "CAST(NULL AS TIMESTAMP)"
    if box.pane is not None:
        pane = f"TIMESTAMP_MICROS({instant} - PMOD({instant}, {box.pane}L))"
    sql = f"SELECT *, {pane} AS _pane FROM {rows.source}"
    return partial(replace(rows, sql=sql, carried=(*rows.carried, "_pane")), lowered, ["_bucket", "_pane"], keys)
