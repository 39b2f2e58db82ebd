"""Warehouses with histories of different length that take the same steps, and what goes into them.

All histories end at the same instant, with one row for every campaign and minute, so that there is a partial
result for each. After it every step is a file of new rows that cover a third of a minute, and of a few
late ones: into windows of the last hour, or of all the history.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from anabranch.api.engine import Engine, connect
from anabranch.bench.impressions import MINUTE_US, START_US
from anabranch.model.time import to_datetime

COLUMNS = "campaign INT, price INT, ts TIMESTAMP"
MONTH = 30 * 1_440  # minutes
NOW_US = START_US + MONTH * MINUTE_US  # where every history ends
STEP_US = MINUTE_US // 3
_CHUNK = 1_440  # minutes of history in one run

_QUERY = """
    CREATE STREAM per_minute AS
    SELECT campaign, count(*) AS c, sum(price) AS s, cq_close(*) AS t
    FROM impressions <SLICES '1 minute'> GROUP BY campaign
"""


@dataclass(frozen=True)
class StepSize:
    """What is in a step."""

    rows: int
    late: int
    windows: int  # into which the late ones go
    campaigns: int

    def write(self, path: Path, number: int, minutes: int) -> str:
        """Write a step's rows; the late ones fall into windows of the last so many minutes."""
        chance = np.random.default_rng((number, minutes))
        start = NOW_US + number * STEP_US
        new = start + np.arange(self.rows - self.late) * STEP_US // (self.rows - self.late)
        opened = start // MINUTE_US * MINUTE_US
        chosen = chance.choice(minutes, min(self.windows, minutes), replace=False) + 1
        late = opened - np.resize(chosen, self.late) * MINUTE_US + chance.integers(0, MINUTE_US, self.late)
        pq.write_table(_table(chance, np.concatenate([new, late]), self.campaigns), path)
        # Spark's file source takes files by the time of their last change.
        os.utime(path, (START_US // 1_000_000 + number, START_US // 1_000_000 + number))
        return str(path)


def _table(chance: np.random.Generator, times: np.ndarray, campaigns: int) -> pa.Table:
    which = chance.integers(0, campaigns, len(times))
    return rows_at(chance, times, which)


def rows_at(chance: np.random.Generator, times: np.ndarray, campaigns: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "campaign": pa.array(campaigns, pa.int32()),
            "price": pa.array(chance.integers(1, 1_000, len(times)), pa.int32()),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )


def history(minutes: int, campaigns: int) -> Iterator[pa.Table]:
    """One row for every campaign in each of the minutes before the steps, oldest first."""
    for end in range(minutes, 0, -_CHUNK):
        count = min(_CHUNK, end)
        chance = np.random.default_rng(end)
        opened = NOW_US - end * MINUTE_US + np.repeat(np.arange(count, dtype="int64"), campaigns) * MINUTE_US
        which = np.tile(np.arange(campaigns), count)
        yield rows_at(chance, opened + which * (MINUTE_US // campaigns), which)


@dataclass
class Warehouse:
    """A warehouse that counts per campaign and minute, with so many minutes of history."""

    engine: Engine
    title: str
    minutes: int
    rows: int = 0

    @classmethod
    def open(cls, place: Path, title: str, minutes: int) -> Warehouse:
        engine = connect(place)
        engine.sql(f"CREATE STREAM impressions ({COLUMNS}) EVENT TIME ts")
        engine.sql(_QUERY)
        return cls(engine, title, minutes)

    def build(self, campaigns: int, tell: Callable[[int], None]) -> None:
        stream = self.engine.stream("impressions")
        for table in history(self.minutes, campaigns):
            stream.append(table)
            self.engine.advance()
            self.rows += table.num_rows
            tell(table.num_rows)

    def step(self, path: str, rows: int) -> float:
        """Seconds from a file to its changes durable."""
        start = time.perf_counter()
        self.engine.stream("impressions").load(path)
        self.engine.advance()
        self.rows += rows
        return time.perf_counter() - start

    def faults(self, steps: int) -> int:
        """How many results differ from those of a batch over all rows, after the last windows were closed."""
        stream = self.engine.stream("impressions")
        stream.punctuate(to_datetime(NOW_US + (steps + 3) * STEP_US))
        self.engine.advance()
        minute = f"unix_micros(ts) DIV {MINUTE_US} + 1 AS w"
        counted = [F.count("*").alias("c"), F.sum("price").alias("s")]
        batch = stream.read().selectExpr("campaign", minute, "price").groupBy("campaign", "w").agg(*counted)
        ours = self.engine.table("per_minute").selectExpr("campaign", f"unix_micros(t) DIV {MINUTE_US} AS w", "c", "s")
        both = ours.withColumn("side", F.lit(1)).unionByName(batch.withColumn("side", F.lit(-1)))
        beside = both.groupBy("campaign", "w").agg(
            F.expr("count(*) != 2 OR sum(side * c) != 0 OR sum(side * s) != 0 AS differs"),
            F.expr("sum(IF(side = 1, c, 0)) AS c"),
        )
        found = beside.agg(F.count_if("differs"), F.sum("c")).first()
        assert found is not None
        return int(found[0]) + abs(self.rows - int(found[1] or 0))
