"""The columnar kernel behind the same interface as the Spark kernel: DuckDB inside Spark's tasks.

What it is asked is planned first, or declined; then all that a step has planned goes through one job of Spark's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from anabranch.diagram.columnar.kinds import NotProven
from anabranch.engine.columnar.pipeline import Pipeline
from anabranch.engine.columnar.portions import Portion, portions, shared_out
from anabranch.engine.columnar.reading import OPEN, ReadTask
from anabranch.engine.columnar.reducing import MergePartials, ReduceJob, merging
from anabranch.engine.columnar.saying import SayingTask, SayJob
from anabranch.engine.columnar.shares import Share, shares
from anabranch.engine.columnar.task import DECLINED, ColumnarTask, MakePartials, Work
from anabranch.engine.emit import CHANGE_TYPE, BucketWriter, Written, placed
from anabranch.engine.kernel import PartialJob
from anabranch.engine.reports import NumberedTasks, Report, raise_reported
from anabranch.log.segments import SegmentLayout, remove_files
from anabranch.log.timing import tell
from anabranch.model.run import Segment
from anabranch.model.schema import Schema

# So many rows are worth a task of their own.
_ROWS_A_TASK = 50_000
# What one SELECT reads at most, so that the groups of a task have a bound however much it is given.
_ROWS_AT_ONCE = 4_000_000
# What a part costs however few rows it has, in rows.
_ROWS_A_PART = 20_000


class Declined(Exception):
    """The columnar kernel leaves a job to the Spark kernel; the text says why."""


def installed() -> bool:
    return find_spec("duckdb") is not None


@dataclass(frozen=True)
class Planned:
    """Work in some parts, about so many rows each, and where its files go."""

    work: Work
    parts: int
    rows: int
    layout: SegmentLayout


class ColumnarKernel:
    """Plans what it can do, and does it."""

    name = "columnar"

    def __init__(self, numbered: NumberedTasks, root: Path, tasks: int) -> None:
        self.numbered = numbered
        self.root = root
        self.tasks = tasks

    def partials(self, job: PartialJob) -> Planned:
        """Rows to be reduced to partial results."""
        pipelines = job.recipe.columnar
        if isinstance(pipelines, str):
            raise Declined(pipelines)
        if job.guard.on or job.history is not None or job.oldest is not None or job.final is not None:
            raise Declined("rows that fail, or deletions that do not subtract")
        try:
            for pipeline in pipelines:
                pipeline.require(job.schema)
            work = self._portions(job, pipelines)
        except NotProven as reason:
            raise Declined(str(reason)) from None
        rows = sum(portion.rows for portion in work)
        shared = shared_out(work, max(1, min(self.tasks, rows // _ROWS_A_TASK)), _ROWS_AT_ONCE)
        task = MakePartials(
            tuple(map(tuple, shared)),
            tuple(pipeline.sql for pipeline in pipelines),
            any(pipeline.fails for pipeline in pipelines),
            BucketWriter(job.layout, job.schema, pane=job.box.pane, ordinals=False),
            tuple(job.schema.names),
        )
        return Planned(task, len(shared), rows // max(len(shared), 1), job.layout)

    def _portions(self, job: PartialJob, pipelines: Sequence[Pipeline]) -> list[Portion]:
        return [
            portion
            for number, pipeline in enumerate(pipelines)
            for portion in portions(number, pipeline, job.feeds[pipeline.leaf], self.root)
            if portion.files
        ]

    def say(self, job: SayJob, layout: SegmentLayout, schema: Schema) -> Planned:
        """The changes of a query of aggregates."""
        parts = self._shared(job, schema)
        task = SayingTask(job, parts, BucketWriter(layout, schema, CHANGE_TYPE))
        return Planned(task, len(parts), job.rows // len(parts), layout)

    def table(
        self, spark: SparkSession, job: SayJob, schema: Schema, open_from: int | None, *, marked: bool
    ) -> DataFrame:
        """The results of a query as rows, which tasks compute when they are read; `marked`: open windows are told."""
        if job.rows > _ROWS_AT_ONCE * self.tasks:
            raise Declined("a table of which people rather read a part")
        if not job.answer.only_sums_fail:  # by then it is too late to ask Spark
            raise Declined("expressions that can fail")
        parts = self._shared(job, schema)
        fields = [pa.field(f.name, f.arrow.type) for f in schema if not f.name.startswith("_")]
        said = pa.schema([*fields, pa.field(OPEN, pa.bool_())] if marked else fields)
        task = ReadTask(job, parts, said, open_from)
        numbers = spark.range(0, len(parts), 1, len(parts))
        return numbers.mapInArrow(task.batches, from_arrow_schema(said, prefer_timestamp_ntz=True))

    def _shared(self, job: SayJob, schema: Schema) -> tuple[Share, ...]:
        """The windows of a job shared out, if it gives what Spark would give."""
        # Windows without an end cannot be shared out.
        if job.answer.box.window is None and job.rows > _ROWS_AT_ONCE:
            raise Declined("a running aggregate of many groups")
        try:
            job.answer.require(schema)
        except NotProven as reason:
            raise Declined(str(reason)) from None
        return job.shares(self.root, self._parts(job.rows))

    def reduce(self, job: ReduceJob, layout: SegmentLayout) -> Planned:
        """Partial results of the same pane and group made one."""
        rows = sum(segment.rows for segment in job.segments)
        if job.box.pane is None and rows > _ROWS_AT_ONCE:
            raise Declined("a running aggregate of many groups")
        try:
            how = merging(job.box, job.lowered, job.schema)
        except NotProven as reason:
            raise Declined(str(reason)) from None
        parts = shares(job.segments, self.root, 1 if job.box.pane is None else self._parts(rows))
        writer = BucketWriter(layout, job.schema, ordinals=False, split=False)
        return Planned(MergePartials(how, parts, writer), len(parts), rows // len(parts), layout)

    def _parts(self, rows: int) -> int:
        return max(-(-rows // _ROWS_AT_ONCE), min(self.tasks, rows // _ROWS_A_TASK))

    def run(self, planned: Sequence[Planned]) -> list[list[Written] | Declined]:
        """Do all that is planned in one job: what each has written; or why it has written nothing, and Spark must."""
        given = _given(planned, self.tasks)
        if not given:
            return [[] for _ in planned]
        task = ColumnarTask(tuple(plan.work for plan in planned), given)
        reports = self.numbered.run(len(given), task.reports)
        raise_reported(reports)
        of_work: list[list[Report]] = [[] for _ in planned]
        for report in reports:
            if "work" in report:
                of_work[report["work"]].append(report)
        _tell(reports)
        return [_outcome(mine, plan) for mine, plan in zip(of_work, planned, strict=True)]


def _tell(reports: Sequence[Report]) -> None:
    """How long the longest task was at work, and how much of that it wrote."""
    tell("tasks", max((report["took"] for report in reports if "took" in report), default=0.0))
    tell("writing", sum(report.get("wrote", 0.0) for report in reports) / sum(1 for r in reports if "took" in r))


def _outcome(reports: Sequence[Report], plan: Planned) -> list[Written] | Declined:
    refused = next((report[DECLINED] for report in reports if DECLINED in report), None)
    if refused is None:
        return placed(reports)
    done = [Segment.from_json(text) for report in reports for text in report.get("segments", ())]
    remove_files(plan.layout.root, done)
    return Declined(refused)


def _given(planned: Sequence[Planned], most: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The parts of all works for each task, in order: neighbours often read the same."""
    parts = [(at, part, plan.rows + _ROWS_A_PART) for at, plan in enumerate(planned) for part in range(plan.parts)]
    total = sum(rows for *_, rows in parts)
    # Works that were cut into more parts than there are tasks are cut so because a part holds as much as it may.
    tasks = max([plan.parts for plan in planned] + [min(most, len(parts), max(1, total // _ROWS_A_TASK))], default=0)
    given: list[list[tuple[int, int]]] = [[] for _ in range(tasks)]
    before = 0
    for at, part, rows in parts:
        given[min(int((before + rows / 2) * tasks / total), tasks - 1)].append((at, part))
        before += rows
    return tuple(tuple(some) for some in given if some)
