"""Ad impressions in the order in which they arrived, some of them late, as Parquet files; and the right answer.

Thirty hours of event time, or as many as are asked for, pass evenly from the first row to the last. One row in
twenty is late by up to an hour and one in two hundred by up to a day, though never older than the first. The
same size gives the same bytes, so files that are kept can be used again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
LENGTH_US = 30 * HOUR_US
CAMPAIGNS = 1_000
KINDS = ("click", "purchase", "view")
KEPT = "view"
COLUMNS = "user INT, campaign INT, kind STRING, price INT, ts TIMESTAMP"


@dataclass(frozen=True)
class Impressions:
    """Files of impressions, oldest arrivals first."""

    directory: str
    rows: int
    files: int
    length_us: int = LENGTH_US

    @property
    def end_us(self) -> int:
        """After every event time."""
        return START_US + self.length_us

    @property
    def paths(self) -> list[str]:
        return [f"{self.directory}/{number:05}.parquet" for number in range(self.files)]

    def first(self, files: int) -> Impressions:
        """The same impressions, and only the first few files of them."""
        return replace(self, rows=sum(self._rows_of(n) for n in range(files)), files=files)

    def groups(self, size: int) -> list[list[str]]:
        paths = self.paths
        return [paths[at : at + size] for at in range(0, len(paths), size)]

    def _rows_of(self, number: int) -> int:
        return self.rows * (number + 1) // self.files - self.rows * number // self.files


def made(
    place: Path, rows: int, files: int, tell: Callable[[int, int], None], *, length_us: int = LENGTH_US
) -> Impressions:
    """The files of this size under `place`: those that are there, or new ones."""
    lasting = "" if length_us == LENGTH_US else f"-{length_us // MINUTE_US}-minutes"
    directory = place / f"impressions-{rows}-rows-{files}-files{lasting}"
    whole = Impressions(str(directory), rows, files, length_us)
    if directory.exists():
        return whole
    unfinished = directory.with_suffix(f".{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        for number in range(files):
            first, end = rows * number // files, rows * (number + 1) // files
            path = unfinished / f"{number:05}.parquet"
            pq.write_table(arrivals(first, end, rows, length_us), path, compression="snappy")
            # Spark's file source takes files by the time of their last change: let that be the order of arrival.
            os.utime(path, (START_US // 1_000_000 + number, START_US // 1_000_000 + number))
            tell(number + 1, files)
        unfinished.rename(directory)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return whole


def arrivals(first: int, end: int, rows: int, length_us: int = LENGTH_US) -> pa.Table:
    """The rows from `first` up to `end` of so many that make up thirty hours, or another length."""
    chance = np.random.default_rng((first, rows))
    count = end - first
    elapsed = np.arange(first, end, dtype="int64") * length_us // rows
    late = np.select(
        [(lot := chance.random(count)) < 0.005, lot < 0.055],
        [np.minimum(elapsed, 24 * HOUR_US), np.minimum(elapsed, HOUR_US)],
        0,
    )
    times = START_US + elapsed - (late * chance.random(count)).astype("int64")
    return pa.table(
        {
            "user": pa.array(chance.integers(0, 1_000_000, count), pa.int32()),
            "campaign": pa.array(chance.integers(0, CAMPAIGNS, count), pa.int32()),
            "kind": pa.array(KINDS).take(pa.array(chance.integers(0, len(KINDS), count))),
            "price": pa.array(chance.integers(1, 1_000, count), pa.int32()),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )
