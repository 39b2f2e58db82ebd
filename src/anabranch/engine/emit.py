"""Derived runs, written by the executors: sorted rows in, segments of buckets out.

A task takes its partition, splits it by bucket, numbers the rows of each bucket, writes and syncs
segments, and reports them with the panes that they touch. Ordinals are local to a partition until the
driver, which knows how many rows each one had, gives every segment its base: so the items of a bucket
have the same numbers on one partition as on a thousand.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from anabranch.diagram.reach import Interval, join
from anabranch.engine.reports import Report, chunks, collect_reports, raise_reported
from anabranch.engine.spreading import write_spread
from anabranch.log.segments import SegmentLayout, numbered
from anabranch.model.run import Role, Segment
from anabranch.model.schema import Schema

_MOST_INTERVALS = 512
CHANGE_TYPE = (pa.field("_change_type", pa.string()),)  # beside the columns of what is said


@dataclass(frozen=True)
class Written:
    """A segment of a bucket, and the panes that its rows are in."""

    bucket: int
    segment: Segment
    panes: tuple[Interval, ...] = ()


def write_buckets(
    frame: DataFrame, layout: SegmentLayout, schema: Schema, *, extra: Sequence[pa.Field] = (), pane: int | None = None,
    role: Role = Role.ROWS, ordinals: bool = True, split: bool = True,
) -> list[Written]:  # fmt: skip
    """Write a frame with a `_bucket` column, sorted within its partitions; buckets apart unless told otherwise."""
    task = BucketWriter(layout, schema, tuple(extra), pane, role, ordinals, split)
    reports = collect_reports(frame, task.reports)
    raise_reported(reports)
    return placed(reports)


def placed(reports: Sequence[Report]) -> list[Written]:
    """What tasks have written, each segment with the ordinal that its rows begin with."""
    bases: defaultdict[int, int] = defaultdict(int)
    written = []
    for report in sorted(reports, key=lambda r: (r["bucket"], r["partition"], r["part"])):
        base = bases[report["bucket"]]
        for text in report["segments"]:
            segment = replace(Segment.from_json(text), ordinal_base=base)
            written.append(Written(report["bucket"], segment, tuple(map(tuple, report["panes"]))))
        bases[report["bucket"]] += report["rows"]
    return written


@dataclass(frozen=True)
class BucketWriter:
    """What one executor task does; small, and sent to it."""

    layout: SegmentLayout
    schema: Schema
    extra: tuple[pa.Field, ...] = ()
    pane: int | None = None
    role: Role = Role.ROWS
    ordinals: bool = True
    split: bool = True

    def reports(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Report]:
        context = TaskContext.get()
        assert context is not None
        for part, chunk in enumerate(chunks(batches, self.layout.most_rows)):
            for report in self.written(chunk):
                yield {**report, "partition": context.partitionId(), "part": part}

    def written(self, rows: pa.Table) -> Iterator[Report]:
        """Write rows, the buckets in them apart."""
        if not rows.num_rows:
            return
        fields = [pa.field(f.name, f.arrow.type) for f in self.schema] + list(self.extra)
        table = rows.cast(pa.schema(fields))
        numbers = pc.cast(table["_bucket"], pa.int64()).to_numpy()
        if not self.split:
            numbers = np.zeros_like(numbers)
        buckets = np.unique(numbers).tolist()
        for bucket in buckets:
            some = table if len(buckets) == 1 else table.filter(pa.array(numbers == bucket))
            yield {**self._write(some), "bucket": bucket}

    def _write(self, table: pa.Table) -> Report:
        begin = time.perf_counter()
        rows = numbered(table, 0) if self.ordinals else table
        segments = list(write_spread(self.layout, rows, self.role))
        return {
            "rows": table.num_rows,
            "wrote": time.perf_counter() - begin,
            "segments": [s.to_json() for s in segments],
            "panes": self._panes(table),
            "process": os.getpid(),
        }

    def _panes(self, table: pa.Table) -> list[Interval]:
        """The panes of partial results, neighbours together."""
        if self.pane is None or self.layout.event_time not in table.column_names:
            return []
        panes = np.unique(pc.cast(table[self.layout.event_time], pa.int64()).to_numpy())
        breaks = np.flatnonzero(np.diff(panes) > self.pane) + 1
        stretches = [(int(s[0]), int(s[-1])) for s in np.split(panes, breaks)]
        return list(join(stretches, _MOST_INTERVALS))
