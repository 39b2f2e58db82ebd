"""`bench scale`: that rows cost the same when there are many more of them, and that a cluster answers the same.

Counts per campaign and minute over impressions that wait on disk: a first size, and five and twenty times as many
rows. They last five and twenty times as long, so that a window has as many rows in each size. Every run has a
process of its own, and the first size goes before as its warm-up; runs of different sizes take turns, and the
middle one of each counts. Fixed costs weigh most on the first size, which makes the others look better: so what
the added rows cost by themselves is told too. Then the first size goes to a cluster of one worker, and to one of
two, on this machine: the answers must be right there as well, and how the times compare is told.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TaskID

from anabranch.api.engine import connect
from anabranch.bench.contest import Outcome, run_apart, run_here, worst
from anabranch.bench.impressions import HOUR_US, Impressions, made
from anabranch.bench.judge import write_truth
from anabranch.engine.driver import local_memory, machine_memory
from anabranch.model.report import Claim, Report

_CONTESTANT = "ours-train"  # everything waits when the engine begins
_LEAST = 0.8


@dataclass(frozen=True)
class _Sizes:
    rows: int  # of the first size
    files: int
    hours: int
    times: tuple[int, ...]
    workers: tuple[int, ...]
    memory: int  # of a worker, in MB
    runs: int  # of each size


_FULL = _Sizes(2_000_000, 20, 3, (1, 5, 20), (1, 2), 2_048, 3)
_SMALL = _Sizes(10_000, 2, 1, (1, 2, 3), (2,), 1_024, 1)


@dataclass(frozen=True)
class _Size:
    """Files, and what a batch over them says."""

    data: Impressions
    truth: str


def bench_scale(
    *, small: bool = False, quiet: bool = False, rows: int | None = None, data: Path | None = None
) -> Report:
    """Measure sizes and clusters; with `data`, the files are kept there and used again."""
    sizes = _SMALL if small else _FULL
    sizes = replace(sizes, rows=rows or sizes.rows)
    heap = local_memory(machine_memory())
    report = Report("scale", {"small": small, **asdict(sizes), "cores": os.cpu_count(), "heap": heap})
    place = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    try:
        with Progress(transient=True, console=Console(stderr=True), disable=quiet) as progress:
            run = _Run(place, data or place, sizes, small, progress)
            grown, clusters = run.grown(), run.clusters()
    finally:
        shutil.rmtree(place)
    _report_sizes(report, sizes, grown)
    _report_clusters(report, sizes, clusters)
    return report


class _Run:
    """One run of the benchmark."""

    def __init__(self, place: Path, kept: Path, sizes: _Sizes, small: bool, progress: Progress) -> None:
        self.place, self.sizes, self.small, self.progress = place, sizes, small, progress
        task = progress.add_task("making the files", total=None)
        self.made = {times: self._made(kept, times, task) for times in sizes.times}
        progress.remove_task(task)
        self.done = 0

    def _made(self, kept: Path, times: int, task: TaskID) -> _Size:
        sizes = self.sizes

        def tell(done: int, of: int) -> None:
            self.progress.update(task, completed=done, total=of)

        lasting = sizes.hours * HOUR_US * times
        data = made(kept, sizes.rows * times, sizes.files * times, tell, length_us=lasting)
        truth = str(self.place / f"truth-{times}.parquet")
        write_truth(data.paths, truth)
        return _Size(data, truth)

    def grown(self) -> dict[int, Outcome]:
        """How each size did."""
        times = self.sizes.times
        task = self.progress.add_task("more rows", total=self.sizes.runs * sum(times))
        found: dict[int, list[Outcome]] = {many: [] for many in times}
        with connect(self.place / "held") if self.small else nullcontext() as held:
            if held is not None:
                _ = held.spark  # one JVM for all of them
            for turn in range(self.sizes.runs):
                at = turn % len(times)
                for many in times[at:] + times[:at]:
                    found[many].append(self._run(self.made[many], None))
                    self.progress.advance(task, many)
        self.progress.remove_task(task)
        return {many: _middle(outcomes) for many, outcomes in found.items()}

    def clusters(self) -> dict[int, Outcome]:
        """How the first size did, by how many workers there were."""
        workers = self.sizes.workers
        task = self.progress.add_task("clusters", total=self.sizes.runs * len(workers))
        found: dict[int, list[Outcome]] = {many: [] for many in workers}
        for _ in range(self.sizes.runs):
            for many in workers:
                master = f"local-cluster[{many},1,{self.sizes.memory}]"
                found[many].append(self._run(self.made[1], master))
                self.progress.advance(task)
        self.progress.remove_task(task)
        return {many: _middle(outcomes) for many, outcomes in found.items()}

    def _run(self, size: _Size, master: str | None) -> Outcome:
        self.done += 1
        home = self.place / f"run-{self.done}"
        home.mkdir()
        try:
            if self.small and master is None:
                return run_here(_CONTESTANT, size.data, size.truth, home, _nobody)
            first = self.made[1].data
            return run_apart(_CONTESTANT, size.data, size.truth, home, _nobody, warm=first, master=master)
        finally:
            shutil.rmtree(home)


def _nobody(done: int, of: int) -> None:
    """The engine takes it all in one step: there is nothing to tell on the way."""


def _middle(outcomes: Sequence[Outcome]) -> Outcome:
    """The median of the times, and the worst of the rest."""
    memory = [outcome.memory for outcome in outcomes if outcome.memory is not None]
    seconds = statistics.median(outcome.seconds for outcome in outcomes)
    return Outcome(seconds, max(memory, default=None), worst([outcome.verdict for outcome in outcomes]))


def _report_sizes(report: Report, sizes: _Sizes, found: Mapping[int, Outcome]) -> None:
    speeds = {times: sizes.rows * times / outcome.seconds for times, outcome in found.items()}
    added = _added(sizes, found)
    for times, outcome in found.items():
        ratio = speeds[times] / speeds[1]
        _row(report, f"x {times}", sizes.rows * times, outcome, ratio, "x 1", added.get(times))
    if report.parameters["small"]:
        return
    more = sizes.times[1:]
    least = min(speeds[times] for times in more) / speeds[1]
    what = f"lowest rows/s of {' and '.join(f'x {times}' for times in more)}, of those of x 1"
    report.claims.append(Claim(what, f">= {_LEAST}", round(least, 2), least >= _LEAST))
    first, last = more[0], more[-1]
    ratio = added.get(last, 0.0) / added.get(first, math.inf)
    what = f"rows/s of the rows added for x {last}, of those added for x {first}"
    report.aims.append(Claim(what, f">= {_LEAST}", round(ratio, 2), ratio >= _LEAST))


def _added(sizes: _Sizes, found: Mapping[int, Outcome]) -> dict[int, float]:
    """Rows a second of what each size has more than the one before: fixed costs are in both and cancel.

    Where more rows took no more time, as in small sizes, there is no figure.
    """
    speeds = {}
    for before, after in itertools.pairwise(sizes.times):
        seconds = found[after].seconds - found[before].seconds
        if seconds > 0:
            speeds[after] = sizes.rows * (after - before) / seconds
    return speeds


def _report_clusters(report: Report, sizes: _Sizes, found: Mapping[int, Outcome]) -> None:
    base = found[sizes.workers[0]].seconds
    for workers, outcome in found.items():
        what = f"x 1, cluster of {_workers(workers)}"
        _row(report, what, sizes.rows, outcome, base / outcome.seconds, _workers(sizes.workers[0]), None)


def _workers(many: int) -> str:
    return f"{many} worker{'' if many == 1 else 's'}"


def _row(report: Report, what: str, rows: int, outcome: Outcome, ratio: float, to: str, added: float | None) -> None:
    verdict = outcome.verdict
    faults = verdict.dropped + verdict.wrong + verdict.missing
    report.rows.append(
        {
            "what": what,
            "rows": rows,
            "seconds": round(outcome.seconds, 2),
            "rows/s": round(rows / outcome.seconds),
            "ratio": round(ratio, 2),
            "to": to,
            "added rows/s": "n/a" if added is None else round(added),
            "peak MB": "n/a" if outcome.memory is None else round(outcome.memory / 1e6),
            "windows": verdict.windows,
            "faults": faults,
        }
    )
    report.claims.append(Claim(f"{what}: rows dropped, windows wrong or missing", 0, faults, faults == 0))
