"""A warehouse with many queries over the same streams: the steps that it takes, and what is wrong with its answers.

A step is a file of new rows for every stream, which cover five minutes of event time; one row in a hundred is late by
up to as much, so that nearly every query has windows to say and windows to correct in every step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from anabranch.api.engine import connect
from anabranch.bench.differing import differing
from anabranch.bench.impressions import HOUR_US, MINUTE_US, START_US
from anabranch.bench.questions import COLUMNS, DEVICES, KINDS, REGIONS, Question, Rows
from anabranch.model.time import to_datetime

STEP_US = 5 * MINUTE_US
_LATE = 0.01


@dataclass(frozen=True)
class Files:
    """The files of all steps, made when they are first asked for."""

    directory: Path
    rows: int  # of one stream in one step

    def path(self, stream: int, step: int) -> str:
        path = self.directory / f"{stream:03}-{step:04}.parquet"
        if not path.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows_of(stream, step, self.rows), path)
        return str(path)


def rows_of(stream: int, step: int, rows: int) -> pa.Table:
    """The rows of a stream in a step. Those of the same number are in all streams, at about the same time."""
    chance = np.random.default_rng((stream, step))
    numbers = np.arange(step * rows, (step + 1) * rows, dtype="int64")
    late = np.where(chance.random(rows) < _LATE, chance.integers(0, STEP_US, rows), 0)
    times = numbers * STEP_US // rows + chance.integers(0, STEP_US // rows, rows) - late
    return pa.table(
        {
            "id": numbers,
            "person": pa.array(chance.integers(0, 1_000_000, rows), pa.int32()),
            "kind": pa.array(KINDS).take(pa.array(chance.integers(0, len(KINDS), rows))),
            "region": pa.array(chance.integers(0, REGIONS, rows), pa.int32()),
            "device": pa.array(chance.integers(0, DEVICES, rows), pa.int32()),
            "price": pa.array(chance.integers(1, 1_000, rows), pa.int32()),
            "ts": pa.array(START_US + np.maximum(times, 0), pa.timestamp("us", "UTC")),
        }
    )


@dataclass(frozen=True)
class Took:
    """What a step cost."""

    seconds: float
    jobs: int  # of Spark's


@dataclass(frozen=True)
class Compared:
    """Results that were compared with those of a batch, and how many differ."""

    results: int = 0
    faults: int = 0

    def __add__(self, other: Compared) -> Compared:
        return Compared(self.results + other.results, self.faults + other.faults)


class Crowd:
    """An engine with streams and queries over them."""

    def __init__(self, place: Path, files: Files, streams: Sequence[str], asked: Sequence[tuple[Question, Rows]]):
        self.engine = connect(place)
        self.files = files
        self.streams = tuple(streams)
        self.asked = {f"q{number}": both for number, both in enumerate(asked)}
        self.steps = 0

    def create(self, tell: Callable[[], None]) -> None:
        for stream in self.streams:
            self.engine.sql(f"CREATE STREAM {stream} ({COLUMNS}) EVENT TIME ts")
        for name, (question, rows) in self.asked.items():
            self.engine.sql(f"CREATE STREAM {name} AS {question.live(rows)}")
            tell()

    def step(self) -> Took:
        """One file into every stream, until what all queries say of it is durable."""
        paths = [self.files.path(number, self.steps) for number in range(len(self.streams))]
        context = self.engine.spark.sparkContext
        group = f"{self.engine.warehouse}, step {self.steps}"  # by which Spark tells which jobs are ours
        context.setJobGroup(group, "a step")
        self.steps += 1
        start = time.perf_counter()
        for stream, path in zip(self.streams, paths, strict=True):
            self.engine.stream(stream).load(path)
        self.engine.advance()
        seconds = time.perf_counter() - start
        return Took(seconds, len(context.statusTracker().getJobIdsForGroup(group)))

    def compared(self, tell: Callable[[], None]) -> Compared:
        """Close every window, and look for differences from a batch over all rows."""
        for stream in self.streams:
            self.engine.stream(stream).punctuate(to_datetime(START_US + self.steps * STEP_US + HOUR_US))
        self.engine.advance()
        found = Compared()
        for name, (question, rows) in self.asked.items():
            batch = self.engine.sql(question.at_once(rows))
            assert batch is not None
            found += compare(self.engine.table(name), batch)
            tell()
        return found


def compare(ours: DataFrame, batch: DataFrame) -> Compared:
    """How often a row is in one table and not in the other. A batch without rows has shown nothing: that is a fault."""
    many, (amiss,) = differing(batch, [ours.select(*batch.columns)])
    return Compared(many, amiss if many else amiss + 1)
