"""`bench log`: what durability, headers and checks cost beside plain I/O.

The rival of an append from Arrow is `pyarrow.parquet.write_table` of the same table, of a DataFrame
`write.parquet`, of a read Spark's own read of plain Parquet files with the same rows. None of them
syncs, checks or records anything. Ours and the rival's take turns, and medians are compared.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from rich.console import Console
from rich.progress import Progress

from anabranch.api.engine import Engine, connect
from anabranch.model.report import Claim, Report

_SCHEMA = "user BIGINT, campaign INT, price DOUBLE, country STRING, ts TIMESTAMP"
_START_US = 1_767_225_600_000_000


@dataclass(frozen=True)
class _Sizes:
    small_runs: int
    small_rows: int
    large_rows: int
    repeats: int


_FULL = _Sizes(small_runs=1_000, small_rows=10, large_rows=5_000_000, repeats=5)
_SMALL = _Sizes(small_runs=30, small_rows=10, large_rows=50_000, repeats=1)


def bench_log(*, small: bool = False, quiet: bool = False) -> Report:
    """Measure commits, appends and reads."""
    sizes = _SMALL if small else _FULL
    place = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    report = Report("log", {"small": small, **vars(sizes)})
    try:
        with (
            connect(place / "warehouse") as engine,
            Progress(transient=True, console=Console(stderr=True), disable=quiet) as progress,
        ):
            task = progress.add_task("measuring", total=4)
            for measure in (_small_commits, _from_arrow, _from_spark, _read_back):
                progress.update(task, description=measure.__name__.strip("_").replace("_", " "))
                measure(engine, place, sizes, report)
                progress.advance(task)
    finally:
        shutil.rmtree(place)
    return report


def _impressions(rows: int, seed: int) -> pa.Table:
    """Ad impressions in order of arrival: 5 % of them up to an hour late, 0.5 % up to a day."""
    chance = np.random.default_rng(seed)
    late = np.where(chance.random(rows) < 0.05, chance.random(rows) * 3_600_000_000, 0)
    very_late = np.where(chance.random(rows) < 0.005, chance.random(rows) * 86_400_000_000, 0)
    times = _START_US + np.arange(rows) * 400 - np.maximum(late, very_late).astype("int64")
    countries = pa.array(["de", "fr", "it", "jp", "us"])
    return pa.table(
        {
            "user": chance.integers(0, 1_000_000, rows),
            "campaign": pa.array(chance.integers(0, 1_000, rows), pa.int32()),
            "price": chance.random(rows),
            "country": countries.take(pa.array(chance.integers(0, 5, rows))),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )


def _take_turns(ours: Callable[[], Any], rival: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Median seconds of each, one warm-up apart."""
    if repeats > 1:
        ours(), rival()
    mine, theirs = [], []
    for _ in range(repeats):
        mine.append(_seconds(ours))
        theirs.append(_seconds(rival))
    return statistics.median(mine), statistics.median(theirs)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _row(report: Report, what: str, unit: str, count: int, ours: float, rival: float, rival_name: str) -> float:
    ratio = rival / ours
    report.rows.append(
        {
            "what": what,
            "ours /s": count / ours,
            "rival /s": count / rival,
            "ratio": ratio,
            "unit": unit,
            "rival": rival_name,
        }
    )
    return ratio


def _held(report: Report, what: str, expected: int, ours: int) -> None:
    report.claims.append(Claim(f"{what}: every row is held once", expected, ours, expected == ours))


def _aim(report: Report, what: str, expected: float, ours: float) -> None:
    if not report.parameters["small"]:
        report.aims.append(Claim(what, expected, round(ours, 2), ours >= expected))


def _small_commits(engine: Engine, place: Path, sizes: _Sizes, report: Report) -> None:
    stream = engine.create_stream("small", _SCHEMA, event_time="ts")
    tables = [_impressions(sizes.small_rows, seed) for seed in range(sizes.small_runs)]
    plain = place / "small"
    plain.mkdir()

    def rival() -> None:
        for number, table in enumerate(tables):
            pq.write_table(table, plain / f"{number}.parquet")

    def ours() -> None:
        for table in tables:
            stream.append(table)

    mine, theirs = _take_turns(ours, rival, 1)
    _row(report, "small durable commits", "runs", sizes.small_runs, mine, theirs, "pyarrow, not synced")
    _aim(report, "small durable commits a second", 100, sizes.small_runs / mine)
    _held(report, "small commits", sizes.small_runs * sizes.small_rows, stream.state().rows)


def _from_arrow(engine: Engine, place: Path, sizes: _Sizes, report: Report) -> None:
    stream = engine.create_stream("arrow", _SCHEMA, event_time="ts")
    table = _impressions(sizes.large_rows, 1)
    ours, rival = _take_turns(
        lambda: stream.append(table), lambda: pq.write_table(table, place / "arrow.parquet"), sizes.repeats
    )
    ratio = _row(report, "append from Arrow", "rows", sizes.large_rows, ours, rival, "pyarrow.parquet")
    _aim(report, "append from Arrow, of plain I/O", 0.7, ratio)
    runs = sizes.repeats + (sizes.repeats > 1)
    _held(report, "append from Arrow", runs * sizes.large_rows, stream.state().rows)


def _from_spark(engine: Engine, place: Path, sizes: _Sizes, report: Report) -> None:
    stream = engine.create_stream("spark", _SCHEMA, event_time="ts")
    source = str(place / "source.parquet")
    pq.write_table(_impressions(sizes.large_rows, 2), source, row_group_size=sizes.large_rows // 8)
    frame = engine.spark.read.parquet(source)
    plain = str(place / "spark")
    ours, rival = _take_turns(
        lambda: stream.append(frame), lambda: frame.write.mode("overwrite").parquet(plain), sizes.repeats
    )
    ratio = _row(report, "append from a DataFrame", "rows", sizes.large_rows, ours, rival, "Spark write.parquet")
    _aim(report, "append from a DataFrame, of plain I/O", 0.7, ratio)
    runs = sizes.repeats + (sizes.repeats > 1)
    _held(report, "append from a DataFrame", runs * sizes.large_rows, stream.state().rows)


def _read_back(engine: Engine, place: Path, sizes: _Sizes, report: Report) -> None:
    stream = engine.stream("spark")
    plain = engine.spark.read.parquet(str(place / "spark"))
    ours, rival = _take_turns(
        lambda: _drain(stream.read(starting_position=1, ending_position=1)), lambda: _drain(plain), sizes.repeats
    )
    ratio = _row(report, "read back", "rows", sizes.large_rows, ours, rival, "Spark read.parquet")
    _aim(report, "read back, of plain I/O", 0.7, ratio)
    _held(report, "read back", sizes.large_rows, stream.read(starting_position=1, ending_position=1).count())


def _drain(frame: DataFrame) -> None:
    """Read every row and column, and keep none."""
    frame.write.format("noop").mode("overwrite").save()
