"""How tasks tell the driver what they did: small reports, and errors that arrive as they were raised.

Spark wraps what a task raises in its own words. A task that fails for a reason that the user must know
therefore reports the error instead, and the driver raises it.
"""

from __future__ import annotations

import gc
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession

from anabranch.log.timing import timed
from anabranch.model.errors import AnabranchError

Report = dict[str, Any]
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[Report]]
_TOLD = "report STRING"
_TASK = "anabranch.task"
_MOST_TOLD = 1 << 18  # it goes to every task with the news that it is to start
_serializer = CloudPickleSerializer()  # Spark's own, for functions that go to tasks


def collect_reports(frame: DataFrame, task: Task) -> list[Report]:
    """Run a task over the partitions of a frame and gather what it reports."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _told(task, batches)

    with timed("jobs"):
        rows = frame.mapInArrow(run, _TOLD).collect()
    return [json.loads(row.report) for row in rows]


class NumberedTasks:
    """Runs tasks that need no rows, only their number.

    To plan such a job takes Spark as long as to run it. There is therefore one plan for each count, which is used
    again, and what is to be done goes to the tasks beside it, as a property of the job.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._plans: dict[int, DataFrame] = {}

    def run(self, count: int, task: Task) -> list[Report]:
        """Run so many at once."""
        told = b64encode(_serializer.dumps(task)).decode()
        if "connect" in type(self.spark).__module__ or len(told) > _MOST_TOLD:
            return collect_reports(self._numbers(count), task)
        if count not in self._plans:
            self._plans[count] = self._numbers(count).mapInArrow(_as_told, _TOLD)
        context = self.spark.sparkContext
        with timed("jobs"):
            context.setLocalProperty(_TASK, told)
            try:
                rows = self._plans[count].collect()
            finally:
                context.setLocalProperty(_TASK, None)
        return [json.loads(row.report) for row in rows]

    def _numbers(self, count: int) -> DataFrame:
        return self.spark.range(0, count, 1, count)


def _as_told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task does that finds its work in the properties of its job."""
    context = TaskContext.get()
    assert context is not None
    told = context.getLocalProperty(_TASK)
    assert told is not None
    return _told(_serializer.loads(b64decode(told)), batches)


def _told(task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    _spare_the_collector()
    try:
        for report in task(batches):
            yield pa.RecordBatch.from_pydict({"report": [json.dumps(report)]})
    except AnabranchError as error:
        yield pa.RecordBatch.from_pydict({"report": [json.dumps({"error": error.parts()})]})


def _spare_the_collector() -> None:
    """What a worker has loaded stays loaded: Spark's collection after every task need not look at it again.

    Measured: with pandas, Arrow and DuckDB in a worker it is half of what an empty task takes.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def chunks(batches: Iterator[pa.RecordBatch], most_rows: int) -> Iterator[pa.Table]:
    """A task's rows in tables of about so many rows at most, so that its memory has a bound."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= most_rows:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting)


def raise_reported(reports: list[Report]) -> None:
    """Raise the first error that a task has reported."""
    for report in reports:
        if "error" in report:
            raise AnabranchError(**report["error"])
