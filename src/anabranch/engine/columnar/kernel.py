"""The columnar kernel behind the same interface as the Spark kernel."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import SparkSession

from anabranch.diagram.columnar.kinds import NotProven
from anabranch.engine.columnar.pipeline import Pipeline
from anabranch.engine.columnar.portions import Portion, portions, shared_out
from anabranch.engine.columnar.reducing import MergePartials, ReduceJob, merging
from anabranch.engine.columnar.saying import SayingTask, SayJob
from anabranch.engine.columnar.shares import shares
from anabranch.engine.columnar.task import DECLINED, ColumnarTask, MakePartials, Work
from anabranch.engine.emit import CHANGE_TYPE, BucketWriter, Written, placed
from anabranch.engine.kernel import PartialJob, PartialsWritten
from anabranch.engine.reports import collect_reports, raise_reported
from anabranch.log.segments import SegmentLayout, remove_files
from anabranch.model.run import Segment
from anabranch.model.schema import Schema

# So many rows are worth a task of their own.
_ROWS_A_TASK = 50_000
# What one SELECT reads at most, so that the groups of a task have a bound however much it is given.
_ROWS_AT_ONCE = 4_000_000


class Declined(Exception):
    """The columnar kernel leaves a job to the Spark kernel; the text says why."""


def installed() -> bool:
    return find_spec("duckdb") is not None


class ColumnarKernel:
    """DuckDB inside Spark's tasks."""

    name = "columnar"

    def __init__(self, spark: SparkSession, root: Path, tasks: int) -> None:
        self.spark = spark
        self.root = root
        self.tasks = tasks

    def partials(self, job: PartialJob) -> PartialsWritten:
        pipelines = job.recipe.columnar
        if isinstance(pipelines, str):
            raise Declined(pipelines)
        if job.guard.on or job.history is not None or job.oldest is not None:
            raise Declined("rows that fail, or deletions that do not subtract")
        try:
            for pipeline in pipelines:
                pipeline.require(job.schema)
            work = self._portions(job, pipelines)
        except NotProven as reason:
            raise Declined(str(reason)) from None
        rows = sum(portion.rows for portion in work)
        return self._run(job, pipelines, shared_out(work, max(1, min(self.tasks, rows // _ROWS_A_TASK)), _ROWS_AT_ONCE))

    def _portions(self, job: PartialJob, pipelines: Sequence[Pipeline]) -> list[Portion]:
        return [
            portion
            for number, pipeline in enumerate(pipelines)
            for portion in portions(number, pipeline, job.feeds[pipeline.leaf], self.root)
            if portion.files
        ]

    def _run(
        self, job: PartialJob, pipelines: Sequence[Pipeline], work: Sequence[Sequence[Portion]]
    ) -> PartialsWritten:
        task = MakePartials(
            tuple(map(tuple, work)),
            tuple(pipeline.sql for pipeline in pipelines),
            any(pipeline.fails for pipeline in pipelines),
            BucketWriter(job.layout, job.schema, pane=job.box.pane, ordinals=False),
            tuple(job.schema.names),
        )
        return PartialsWritten(tuple(self._done(task, len(work), job.layout)))

    def say(self, job: SayJob, layout: SegmentLayout, schema: Schema) -> list[Written]:
        """The changes of a query of aggregates."""
        rows = sum(segment.rows for segment in job.segments)
        # Windows without an end cannot be shared out.
        if job.answer.box.window is None and rows > _ROWS_AT_ONCE:
            raise Declined("a running aggregate of many groups")
        parts = job.shares(self.root, self._tasks(rows))
        return self._done(SayingTask(job, parts, BucketWriter(layout, schema, CHANGE_TYPE)), len(parts), layout)

    def reduce(self, job: ReduceJob, layout: SegmentLayout) -> list[Written]:
        """Partial results of the same pane and group made one."""
        rows = sum(segment.rows for segment in job.segments)
        if job.box.pane is None and rows > _ROWS_AT_ONCE:
            raise Declined("a running aggregate of many groups")
        try:
            how = merging(job.box, job.lowered, job.schema)
        except NotProven as reason:
            raise Declined(str(reason)) from None
        parts = shares(job.segments, self.root, 1 if job.box.pane is None else self._tasks(rows))
        writer = BucketWriter(layout, job.schema, ordinals=False, split=False)
        return self._done(MergePartials(how, parts, writer), len(parts), layout)

    def _tasks(self, rows: int) -> int:
        return max(-(-rows // _ROWS_AT_ONCE), min(self.tasks, rows // _ROWS_A_TASK))

    def _done(self, work: Work, tasks: int, layout: SegmentLayout) -> list[Written]:
        """What some tasks have written. If one of them declines, nothing is."""
        numbers = self.spark.range(0, tasks, 1, max(tasks, 1))
        reports = collect_reports(numbers, ColumnarTask(work).reports)
        raise_reported(reports)
        refused = next((report[DECLINED] for report in reports if DECLINED in report), None)
        if refused is not None:
            done = [Segment.from_json(text) for report in reports for text in report.get("segments", ())]
            remove_files(layout.root, done)
            raise Declined(refused)
        return placed(reports)
