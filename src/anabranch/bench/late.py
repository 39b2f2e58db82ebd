"""`bench late`: counts per campaign and minute over rows of which some are late, up to a day.

The engine drops nothing and corrects what it said. The rival that it is measured against drops nothing
either, because it waits for 25 hours; one that waits for ten minutes is beside it, to show what that costs.
Every answer is compared with that of DuckDB over the finished files, which is also the limit of the machine.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from anabranch.api.engine import connect
from anabranch.bench.contest import CONTESTANTS, FILES_A_BATCH, Outcome, run_apart, run_here
from anabranch.bench.impressions import made
from anabranch.bench.judge import write_truth
from anabranch.engine.driver import local_memory, machine_memory
from anabranch.model.report import Claim, Report

_FULL = (20_000_000, 200)
_SMALL = (100_000, 16)
_RIVAL = "update"
# How many times as fast as the rival: what must be, and what should.
_CLAIMS = {"ours": 2.5, "ours-train": 10.0}
_AIMS = {"ours": 5.0, "ours-train": 20.0}
_READ_TIMES = 1.5
_MOST_MEMORY = 0.5
_OF_THE_LIMIT = 0.3


def bench_late(
    *,
    small: bool = False,
    quiet: bool = False,
    rows: int | None = None,
    files: int | None = None,
    data: Path | None = None,
) -> Report:
    """Run every contestant over the same files; with `data`, the files are kept there and used again."""
    size = _SMALL if small else _FULL
    rows, files = rows or size[0], files or size[1]
    parameters = {
        "small": small,
        "rows": rows,
        "files": files,
        "files a batch": FILES_A_BATCH,
        "cores": os.cpu_count(),
        "heap": local_memory(machine_memory()),
    }
    place = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    try:
        with Progress(transient=True, console=Console(stderr=True), disable=quiet) as progress:
            outcomes = _race(place, data or place, rows, files, small, progress)
    finally:
        shutil.rmtree(place)
    return _report(Report("late", parameters), outcomes)


def _race(place: Path, kept: Path, rows: int, files: int, small: bool, progress: Progress) -> Mapping[str, Outcome]:
    task = progress.add_task("making the files", total=files)

    def tell(done: int, of: int) -> None:
        progress.update(task, completed=done, total=of)

    impressions = made(kept, rows, files, tell)
    truth = str(place / "truth.parquet")
    write_truth(impressions.paths, truth)
    outcomes = {}
    with connect(place / "held") if small else nullcontext() as held:
        if held is not None:
            _ = held.spark  # one JVM for all of them
        for name, contestant in CONTESTANTS.items():
            progress.reset(task, description=contestant.title, total=None)
            home = place / name
            home.mkdir()
            if small:
                outcomes[name] = run_here(name, impressions, truth, home, tell)
            else:
                outcomes[name] = run_apart(name, impressions, truth, home, tell)
            shutil.rmtree(home)
    return outcomes


def _report(report: Report, outcomes: Mapping[str, Outcome]) -> Report:
    rows = report.parameters["rows"]
    rival = outcomes[_RIVAL].seconds
    for name, outcome in outcomes.items():
        verdict = outcome.verdict
        report.rows.append(
            {
                "contestant": CONTESTANTS[name].title,
                "rows/s": round(rows / outcome.seconds),
                "ratio": round(rival / outcome.seconds, 2),
                "seconds": round(outcome.seconds, 2),
                "read s": "n/a" if outcome.reading is None else round(outcome.reading, 2),
                "peak MB": "n/a" if outcome.memory is None else round(outcome.memory / 1e6),
                "rows dropped": verdict.dropped,
                "windows wrong": verdict.wrong,
                "windows missing": verdict.missing,
            }
        )
    report.parameters["windows"] = outcomes[_RIVAL].verdict.windows
    for name, contestant in CONTESTANTS.items():
        if contestant.ours:
            verdict = outcomes[name].verdict
            faults = verdict.wrong + verdict.missing
            report.claims.append(Claim(f"{contestant.title}: rows dropped", 0, verdict.dropped, verdict.dropped == 0))
            report.claims.append(Claim(f"{contestant.title}: windows wrong or missing", 0, faults, faults == 0))
    if not report.parameters["small"]:
        _judge_speed(report, outcomes)
    return report


def _judge_speed(report: Report, outcomes: Mapping[str, Outcome]) -> None:
    rival = outcomes[_RIVAL]
    for name in _CLAIMS:
        ratio = round(rival.seconds / outcomes[name].seconds, 2)
        what = f"{CONTESTANTS[name].title}: times as fast as {CONTESTANTS[_RIVAL].title}"
        report.claims.append(Claim(what, f">= {_CLAIMS[name]}", ratio, ratio >= _CLAIMS[name]))
        report.aims.append(Claim(what, f">= {_AIMS[name]}", ratio, ratio >= _AIMS[name]))
    for name in _CLAIMS:
        found, title = outcomes[name], CONTESTANTS[name].title
        if found.reading:
            faster = round(outcomes["batch"].seconds / found.reading, 2)
            what = f"{title}: reading the table, times as fast as {CONTESTANTS['batch'].title}"
            report.claims.append(Claim(what, f">= {_READ_TIMES}", faster, faster >= _READ_TIMES))
        if found.memory and rival.memory:
            share = round(found.memory / rival.memory, 2)
            what = f"{title}: peak memory, of {CONTESTANTS[_RIVAL].title}"
            report.claims.append(Claim(what, f"<= {_MOST_MEMORY}", share, share <= _MOST_MEMORY))
    of_limit = round(outcomes["duckdb"].seconds / outcomes["ours-train"].seconds, 2)
    what = f"{CONTESTANTS['ours-train'].title}: throughput, of {CONTESTANTS['duckdb'].title}"
    report.aims.append(Claim(what, f">= {_OF_THE_LIMIT}", of_limit, of_limit >= _OF_THE_LIMIT))
