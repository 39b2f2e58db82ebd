"""`bench revise`: what corrections cost, and that it does not grow with the history.

The first part gives the same stream with a key, and the same query of a minute's totals, steps in which no row, one
row in a hundred and one in ten replaces one of the last hour, in turns. The second takes steps of a join
with a band, of windows of rows and of replacements by key into warehouses with an hour, a day and thirty
days of history; how late rows are is the same everywhere.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import Progress

from anabranch.api.engine import Engine, connect
from anabranch.bench.impressions import MINUTE_US, START_US
from anabranch.model.report import Claim, Report
from anabranch.model.time import to_datetime

_HOUR, _DAY, _MONTH = 60, 1_440, 43_200
_MOST_GROWTH = 1.3
_AIMS = {0.01: 1.2, 0.1: 2.0}
_END_US = START_US + _MONTH * MINUTE_US  # where every history ends
_GROUPS = 100

_KEYED = "CREATE STREAM s (id BIGINT, k INT, v INT, ts TIMESTAMP) EVENT TIME ts KEY (id)"
_PLAIN = "CREATE STREAM {} (id BIGINT, k INT, v INT, ts TIMESTAMP) EVENT TIME ts"
_TOTALS = "CREATE STREAM q AS SELECT k, count(*) AS c, sum(v) AS v FROM s <SLICES '1 minute'> GROUP BY k"
_TOTALS_AT_ONCE = "SELECT k, count(*) AS c, sum(v) AS v FROM s GROUP BY k, date_trunc('minute', ts)"
_QUERIES = {
    "banded join": [
        _PLAIN.format("s"), _PLAIN.format("r"),
        "CREATE STREAM q AS SELECT s.id, r.v FROM s JOIN r ON s.id = r.id WITHIN '2 minutes'",
    ],
    "windows of rows": [
        _PLAIN.format("s"),
        "CREATE STREAM q AS SELECT k, sum(v) AS v FROM s <VISIBLE 20 ROWS ADVANCE 10 ROWS> GROUP BY k",
    ],
    "replacements by key": [_KEYED, _TOTALS],
}  # fmt: skip
# The same, as one batch of Spark's over all rows.
_AT_ONCE = {
    "banded join": """SELECT s.id, r.v FROM s JOIN r ON s.id = r.id
        AND abs(unix_micros(s.ts) - unix_micros(r.ts)) <= 120000000""",
    "windows of rows": """SELECT k, sum(v) AS v FROM (
            SELECT k, v, explode(sequence(greatest(0, (n - 10) div 10), n div 10)) AS w FROM (
                SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts, id, v) - 1 AS n FROM s))
        GROUP BY k, w HAVING count(*) = 20""",
    "replacements by key": _TOTALS_AT_ONCE,
}


@dataclass(frozen=True)
class _Sizes:
    histories: dict[str, int]  # minutes
    a_minute: int  # rows of history
    step: int  # rows of a step
    late: int  # of which so many are late, by up to ten minutes; or replace rows of that time
    costs: int  # rows of a step of the first part
    warm: int
    steps: int


_FULL = _Sizes({"1 hour": _HOUR, "1 day": _DAY, "30 days": _MONTH}, 100, 2_000, 50, 20_000, 10, 30)
_SMALL = _Sizes({"1 hour": _HOUR, "2 hours": 2 * _HOUR}, 20, 200, 10, 500, 1, 2)


def bench_revise(*, small: bool = False, quiet: bool = False, steps: int | None = None) -> Report:
    """Measure the cost of revisions, and its growth with the history."""
    sizes = _SMALL if small else _FULL
    sizes = _Sizes(**{**asdict(sizes), "steps": steps or sizes.steps})
    report = Report("revise", {"small": small, **asdict(sizes), "cores": os.cpu_count()})
    place = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    try:
        with Progress(transient=True, console=Console(stderr=True), disable=quiet) as progress:
            _costs(place, sizes, report, progress)
            for what, statements in _QUERIES.items():
                _growth(place, what, statements, sizes, report, progress)
    finally:
        shutil.rmtree(place)
    return report


class _Warehouse:
    """A warehouse that takes steps; row numbers rise with event time."""

    def __init__(self, place: Path, statements: Sequence[str], sizes: _Sizes) -> None:
        self.engine: Engine = connect(place)
        for statement in statements:
            self.engine.sql(statement)
        self.streams = [stream.name for stream in self.engine.streams() if stream.name in ("s", "r")]
        self.keyed = bool(self.engine.stream("s").spec.key)
        self.sizes = sizes
        self.number = 0
        self.chance = np.random.default_rng(7)
        self.recent: list[np.ndarray] = []  # numbers of the rows of the last steps
        self.steps = 0

    def build(self, minutes: int) -> None:
        for end in range(minutes, 0, -_DAY):
            many = min(_DAY, end)
            rows = many * self.sizes.a_minute
            times = _END_US - end * MINUTE_US + np.arange(rows, dtype="int64") * (many * MINUTE_US) // rows
            table = self._table(self._numbers(rows), times)
            for name in self.streams:
                self.engine.stream(name).append(table)
            self.engine.advance()

    def step(self, rows: int, share: float, late: int = 0) -> float:
        """Seconds of a step of new rows, of which a share replaces earlier ones, or some are late."""
        start = _END_US + self.steps * MINUTE_US
        self.steps += 1
        replaced = int(rows * share) if self.recent else 0
        times = start + np.arange(rows - replaced - late, dtype="int64") * MINUTE_US // (rows - replaced - late)
        behind = start - self.chance.integers(1, 10 * MINUTE_US, late)
        fresh = self._numbers(len(times) + late)
        tables = [self._table(fresh, np.concatenate([times, behind]))]
        if replaced:
            chosen = self.chance.choice(np.concatenate(self.recent), replaced, replace=False)
            tables.append(self._table(chosen, start - self.chance.integers(1, 10 * MINUTE_US, replaced)))
        self.recent = [*self.recent[-9:], fresh]
        table = pa.concat_tables(tables)
        began = time.perf_counter()
        for name in self.streams:
            self.engine.stream(name).append(table)
        self.engine.advance()
        return time.perf_counter() - began

    def faults(self, at_once: str) -> int:
        """How many results differ from those of a batch over all rows, after everything was closed."""
        for name in self.streams:
            self.engine.stream(name).punctuate(to_datetime(_END_US + (self.steps + _HOUR) * MINUTE_US))
        self.engine.advance()
        ours, batch = self.engine.table("q"), self.engine.sql(at_once)
        assert batch is not None
        return int(ours.exceptAll(batch).count() + batch.exceptAll(ours).count())

    def _numbers(self, many: int) -> np.ndarray:
        self.number += many
        return np.arange(self.number - many, self.number, dtype="int64")

    def _table(self, numbers: np.ndarray, times: np.ndarray) -> pa.Table:
        return pa.table(
            {
                "id": numbers,
                "k": pa.array(numbers % _GROUPS, pa.int32()),
                "v": pa.array(self.chance.integers(1, 1_000, len(numbers)), pa.int32()),
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
            }
        )


def _costs(place: Path, sizes: _Sizes, report: Report, progress: Progress) -> None:
    """Steps without revisions, and with one row in a hundred and one in ten."""
    shares = (0.0, 0.01, 0.1)
    task = progress.add_task("what revisions cost", total=sizes.warm + sizes.steps)
    took: dict[float, list[float]] = {share: [] for share in shares}
    with ExitStack() as opened:
        warehouses = {share: _Warehouse(place / f"share-{share}", [_KEYED, _TOTALS], sizes) for share in shares}
        for warehouse in warehouses.values():
            opened.callback(warehouse.engine.close)
        for number in range(sizes.warm + sizes.steps):
            for share in shares[number % 3 :] + shares[: number % 3]:
                seconds = warehouses[share].step(sizes.costs, share)
                took[share] += [seconds] if number >= sizes.warm else []
            progress.advance(task)
        faults = sum(warehouse.faults(_TOTALS_AT_ONCE) for warehouse in warehouses.values())
        report.claims.append(Claim("results that differ from a batch over all rows", 0, faults, faults == 0))
    progress.remove_task(task)
    none = statistics.median(took[0.0])
    for share, found in took.items():
        _row(report, f"{share:.0%} of {sizes.costs:,} rows replace others", found, none)
    if not report.parameters["small"]:
        for share, most in _AIMS.items():
            ratio = statistics.median(took[share]) / none
            report.aims.append(Claim(f"{share:.0%} revised, against none", most, round(ratio, 2), ratio <= most))


def _growth(
    place: Path, what: str, statements: Sequence[str], sizes: _Sizes, report: Report, progress: Progress
) -> None:
    """Steps of one kind, over histories of different length."""
    task = progress.add_task(what, total=len(sizes.histories) + sizes.warm + sizes.steps)
    took: dict[str, list[float]] = {title: [] for title in sizes.histories}
    with ExitStack() as opened:
        warehouses: dict[str, _Warehouse] = {}
        for number, (title, minutes) in enumerate(sizes.histories.items()):
            warehouses[title] = _Warehouse(place / f"{what}-{number}", statements, sizes)
            opened.callback(warehouses[title].engine.close)
            warehouses[title].build(minutes)
            progress.advance(task)
        titles = list(warehouses)
        for number in range(sizes.warm + sizes.steps):
            for title in titles[number % len(titles) :] + titles[: number % len(titles)]:
                warehouse = warehouses[title]
                share = sizes.late / sizes.step if warehouse.keyed else 0.0
                seconds = warehouse.step(sizes.step, share, 0 if warehouse.keyed else sizes.late)
                took[title] += [seconds] if number >= sizes.warm else []
            progress.advance(task)
        faults = sum(warehouse.faults(_AT_ONCE[what]) for warehouse in warehouses.values())
        claim = f"{what}: results that differ from a batch over all rows"
        report.claims.append(Claim(claim, 0, faults, faults == 0))
    progress.remove_task(task)
    first, *_, last = (statistics.median(seconds) for seconds in took.values())
    for title, found in took.items():
        _row(report, f"{what}, {title} of history", found, first)
    if not report.parameters["small"]:
        short, *_, long = took
        claim = f"{what}: growth of the median step from {short} to {long} of history"
        report.claims.append(Claim(claim, f"< {_MOST_GROWTH}", round(last / first, 2), last / first < _MOST_GROWTH))


def _row(report: Report, what: str, seconds: Sequence[float], base: float) -> None:
    median = statistics.median(seconds)
    row: dict[str, Any] = {
        "what": what,
        "median ms": round(median * 1000, 1),
        "95 % ms": round(float(np.percentile(seconds, 95)) * 1000, 1),
        "ratio": round(median / base, 2),
        "steps": len(seconds),
    }
    report.rows.append(row)
