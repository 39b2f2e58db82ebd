"""Structured Streaming over Nexmark's files: the same question, in micro-batches of the same files.

It gets what `structured` gives it. Where it waits for late rows, it waits for as long as they take, so that none is
dropped; one event of an hour later makes it say its last windows.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from anabranch.bench.nexmark_events import COLUMNS, LATEST_US, SECOND_US, Events, of_stream, table
from anabranch.bench.nexmark_queries import Rival
from anabranch.bench.structured import plain_session

_LATER_US = 3_600 * SECOND_US


@dataclass(frozen=True)
class Race:
    """One run of a rival over some files; its place is its own."""

    rival: Rival
    reads: tuple[str, ...]
    data: Events
    place: Path

    def run(self, spark: SparkSession, tell: Callable[[int], None]) -> float:
        """Process all files, one of each stream in a batch; the seconds that it took."""
        began = time.perf_counter()
        query = self._start(plain_session(spark))
        while not query.awaitTermination(1):
            tell(min(len(query.recentProgress), self.data.files))
        return time.perf_counter() - began

    def prepare(self) -> None:
        """A directory with only these files, since that is what a streaming source reads."""
        for stream in self.reads:
            directory = self._files(stream)
            directory.mkdir(parents=True)
            for path in self.data.paths(stream):
                _link(path, directory / Path(path).name)
            if self.rival.watermark:
                self._write_end(stream, directory / "end.parquet")

    def said(self, spark: SparkSession) -> DataFrame:
        """What it has said in the end."""
        said = spark.read.parquet(str(self.place / "said"))
        if self.rival.mode == "append":
            return said
        names = [name for name in said.columns if name != "batch"]
        last = said.groupBy(*self.rival.key).agg(F.max_by(F.struct(*names), "batch").alias("last"))
        return last.select("last.*")

    def _files(self, stream: str) -> Path:
        return self.place / "files" / stream

    def _start(self, session: SparkSession) -> StreamingQuery:
        answer = session.sql(self.rival.sql, **{stream: self._rows(session, stream) for stream in self.reads})
        writer = answer.writeStream.outputMode(self.rival.mode)
        writer = writer.option("checkpointLocation", str(self.place / "checkpoint")).trigger(availableNow=True)
        if self.rival.mode == "append":
            return writer.format("parquet").start(str(self.place / "said"))

        def write(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").parquet(str(self.place / "said" / f"batch={number}"))

        return writer.foreachBatch(write).start()

    def _rows(self, session: SparkSession, stream: str) -> DataFrame:
        reader = session.readStream.schema(COLUMNS[stream]).option("maxFilesPerTrigger", 1)
        rows = reader.parquet(str(self._files(stream)))
        return rows.withWatermark("ts", f"{LATEST_US // SECOND_US} seconds") if self.rival.watermark else rows

    def _write_end(self, stream: str, path: Path) -> None:
        number = of_stream(stream, self.data.events + _LATER_US // SECOND_US * self.data.a_second)
        pq.write_table(table(stream, np.array([number]), self.data.a_second), path)
        late = self.data.end_us // SECOND_US
        os.utime(path, (late, late))


def _link(path: str, to: Path) -> None:
    try:
        os.link(path, to)
    except OSError:  # on another disk
        shutil.copy2(path, to)
