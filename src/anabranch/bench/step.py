"""`bench step`: what a small step costs, and that it does not grow with the history.

The same steps go, in turns, into three warehouses with an hour, a day and thirty days of history, so that
a JVM that gets warmer favours none. Between them Structured Streaming takes the same files as micro-batches,
with an hour of history as its state. A third of the steps closes a window; some of them reduce.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress

from anabranch.bench.histories import COLUMNS, MONTH, StepSize, Warehouse, history
from anabranch.bench.profile import bench_profile
from anabranch.bench.structured import Micro
from anabranch.model.report import Claim, Report

_HOUR = 60
_MOST_GROWTH = 1.2
_MOST_SPREAD = 2.0
_MOST_OF_A_BATCH, _AIM_OF_A_BATCH = 1.2, 0.7
_MOST_OF_THE_MEDIAN = 3.0  # for the 95th percentile


@dataclass(frozen=True)
class _Sizes:
    histories: dict[str, int]  # minutes
    step: StepSize
    warm: int  # steps that are not counted
    steps: int
    spread: int  # steps with late rows from all of the history
    rounds: int  # in which ours and the rival's take turns


_FULL = _Sizes(
    {"1 hour": _HOUR, "1 day": 24 * _HOUR, "30 days": MONTH}, StepSize(10_000, 100, 50, 1_000), 20, 500, 30, 5
)
_SMALL = _Sizes({"1 hour": _HOUR, "2 hours": 2 * _HOUR, "1 day": 24 * _HOUR}, StepSize(500, 100, 50, 10), 1, 3, 1, 1)


def bench_step(
    *,
    small: bool = False,
    quiet: bool = False,
    steps: int | None = None,
    campaigns: int | None = None,
    profile: bool = False,
) -> Report:
    """Measure steps over histories of different length, beside micro-batches; or say where their time goes."""
    sizes = _SMALL if small else _FULL
    step = replace(sizes.step, campaigns=campaigns or sizes.step.campaigns)
    if profile:
        title, minutes = list(sizes.histories.items())[-1]
        return bench_profile(title, minutes, step, sizes.warm, steps or min(sizes.steps, 60), quiet=quiet)
    sizes = replace(sizes, step=step, steps=steps or sizes.steps)
    kept = {title: minutes * step.campaigns for title, minutes in sizes.histories.items()}
    parameters = {"small": small, **asdict(sizes), "partial results of history": kept, "cores": os.cpu_count()}
    report = Report("step", parameters)
    place = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    try:
        with Progress(transient=True, console=Console(stderr=True), disable=quiet) as progress:
            _Run(place, sizes, report, progress).run()
    finally:
        shutil.rmtree(place)
    return report


class _Run:
    """One run of the benchmark."""

    def __init__(self, place: Path, sizes: _Sizes, report: Report, progress: Progress) -> None:
        self.place, self.sizes, self.report, self.progress = place, sizes, report, progress
        self.warehouses: list[Warehouse] = []
        self.rival = _Rival(place / "rival", sizes.step.campaigns)
        self.taken = 0  # steps so far

    def run(self) -> None:
        with ExitStack() as opened:
            for number, (title, minutes) in enumerate(self.sizes.histories.items()):
                warehouse = Warehouse.open(self.place / f"warehouse-{number}", title, minutes)
                opened.callback(warehouse.engine.close)
                self.warehouses.append(warehouse)
            self._build()
            recent, batches = self._recent()
            spread = self._spread()
            self._figures(recent, spread, batches)
            self._judge()

    def _build(self) -> None:
        total = sum(w.minutes for w in self.warehouses) * self.sizes.step.campaigns
        task = self.progress.add_task("building histories", total=total)
        for warehouse in self.warehouses:
            warehouse.build(self.sizes.step.campaigns, lambda rows: self.progress.advance(task, rows))
        self.progress.remove_task(task)

    def _recent(self) -> tuple[dict[str, list[float]], list[float]]:
        """Steps whose late rows fall into the last hour, and micro-batches over the same files."""
        seconds: dict[str, list[float]] = {w.title: [] for w in self.warehouses}
        batches: list[float] = []
        task = self.progress.add_task("taking steps", total=self.sizes.warm + self.sizes.steps)
        shares = [self.sizes.warm, *map(len, np.array_split(np.arange(self.sizes.steps), self.sizes.rounds))]
        for part, share in enumerate(shares):
            files = [self._file(_HOUR) for _ in range(share)]
            took: dict[str, list[float]] = {w.title: [] for w in self.warehouses}
            for turn, path in enumerate(files):
                for warehouse in self._in_turn(turn):
                    took[warehouse.title].append(warehouse.step(path, self.sizes.step.rows))
                self.progress.advance(task)
            spent = self.rival.batches(self.warehouses[0].engine.spark, files)
            if part:  # the first part was for warming up
                batches += spent
                for title, found in took.items():
                    seconds[title] += found
        self.progress.remove_task(task)
        return seconds, batches

    def _spread(self) -> dict[str, list[float]]:
        """Steps whose late rows fall anywhere into the history."""
        seconds: dict[str, list[float]] = {w.title: [] for w in self.warehouses}
        task = self.progress.add_task("late rows from all of the history", total=self.sizes.spread)
        for turn in range(self.sizes.spread):
            for warehouse in self._in_turn(turn):
                path = self._file(warehouse.minutes, again=True)
                seconds[warehouse.title].append(warehouse.step(path, self.sizes.step.rows))
            self.taken += 1
            self.progress.advance(task)
        self.progress.remove_task(task)
        return seconds

    def _in_turn(self, turn: int) -> list[Warehouse]:
        """All warehouses, and another one first each time: who comes first finds the caches cold."""
        at = turn % len(self.warehouses)
        return self.warehouses[at:] + self.warehouses[:at]

    def _file(self, minutes: int, *, again: bool = False) -> str:
        """The file of the next step; or another one of it, for another warehouse."""
        path = self.sizes.step.write(self.place / f"{self.taken:05}-{minutes}.parquet", self.taken, minutes)
        self.taken += not again
        return path

    def _figures(
        self, recent: dict[str, list[float]], spread: dict[str, list[float]], batches: Sequence[float]
    ) -> None:
        batch = statistics.median(batches)
        for title, seconds in recent.items():
            self._row(f"anabranch, {title} of history", seconds, batch)
        self._row("Structured Streaming, micro-batch, 1 hour of state", batches, batch)
        for title, seconds in spread.items():
            self._row(f"anabranch, {title} of history, late rows from all of it", seconds, batch)
        if not self.report.parameters["small"]:
            self._judge_times(recent, spread, batch)

    def _judge_times(self, recent: dict[str, list[float]], spread: dict[str, list[float]], batch: float) -> None:
        short, *_, long = recent
        first, last, wide = (statistics.median(some) for some in (recent[short], recent[long], spread[long]))
        tail = float(np.percentile(recent[long], 95))
        found = [
            (f"median step with {long} of history, in micro-batches", last / batch, _MOST_OF_A_BATCH),
            (f"growth of the median step from {short} to {long} of history", last / first, _MOST_GROWTH),
            (f"the same, with late rows from all of the {long}", wide / first, _MOST_SPREAD),
            (f"95th percentile with {long} of history, in medians", tail / last, _MOST_OF_THE_MEDIAN),
        ]
        for what, ratio, most in found:
            self.report.claims.append(Claim(what, f"<= {most}", round(ratio, 2), ratio <= most))
        what, ratio, _ = found[0]
        self.report.aims.append(Claim(what, f"<= {_AIM_OF_A_BATCH}", round(ratio, 2), ratio <= _AIM_OF_A_BATCH))

    def _row(self, what: str, seconds: Sequence[float], batch: float) -> None:
        median = statistics.median(seconds)
        row: dict[str, Any] = {
            "what": what,
            "median ms": round(median * 1000, 1),
            "95 % ms": round(float(np.percentile(seconds, 95)) * 1000, 1),
            "of a micro-batch": round(median / batch, 2),
            "steps": len(seconds),
        }
        self.report.rows.append(row)

    def _judge(self) -> None:
        task = self.progress.add_task("comparing with a batch", total=len(self.warehouses))
        for warehouse in self.warehouses:
            faults = warehouse.faults(self.taken)
            what = f"{warehouse.title} of history: results that differ from a batch over all rows"
            self.report.claims.append(Claim(what, 0, faults, faults == 0))
            self.progress.advance(task)


class _Rival:
    """Structured Streaming over the same files, in rounds; its state outlives them."""

    def __init__(self, place: Path, campaigns: int) -> None:
        self.place = place
        self.files = place / "files"
        self.campaigns = campaigns
        self.micro = Micro(COLUMNS, "true", "2 hours", "update", files_a_batch=1)

    def batches(self, spark: Any, files: Sequence[str]) -> list[float]:
        """Seconds of each micro-batch by its own count, without the first, which loads the state."""
        if not self.files.exists():
            self.files.mkdir(parents=True)
            first = self.files / "history.parquet"
            pq.write_table(pa.concat_tables(history(_HOUR, self.campaigns)), first)
            os.utime(first, (0, 0))
        for path in files:
            os.link(path, self.files / Path(path).name)
        query = self.micro.start(spark, str(self.files), self.place)
        query.awaitTermination()
        full = [progress for progress in query.recentProgress if progress.numInputRows]
        return [progress.durationMs["triggerExecution"] / 1000 for progress in full[1:]]
