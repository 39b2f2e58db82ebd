"""`bench wide`: a hundred different queries in one engine, and what each of them costs.

No two of them have a filter, a grouping or a window in common. The first part asks one, ten and a hundred of them
of the same stream; since the stream is the same, a hundred must cost far less than a hundred times one. The second
asks a hundred of fifty streams, alone, united and joined, each stream read by several.
Warehouses take turns in rounds; the first step of each turn is not counted, because what Spark has
compiled for one warehouse may have been dropped for another's.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from anabranch.bench.crowd import Compared, Crowd, Files, Took
from anabranch.bench.questions import one, over_streams, question
from anabranch.model.report import Claim, Report

_MOST = 25.0  # times one query, for a hundred
_AIM = 15.0


@dataclass(frozen=True)
class _Sizes:
    counts: tuple[int, ...]  # queries over one stream; the first count is of queries by themselves
    alone: tuple[int, ...]  # the questions that are asked by themselves
    rows: int  # of a step
    streams: int
    queries: int  # over all of them
    steps: int  # that are counted
    rounds: int


_FULL = _Sizes((1, 10, 100), (0, 49, 99), 20_000, 50, 100, 12, 3)
_SMALL = _Sizes((1, 3, 6), (5,), 400, 4, 6, 1, 1)


def bench_wide(*, small: bool = False, quiet: bool = False, steps: int | None = None) -> Report:
    """Measure steps with one query and with many."""
    sizes = _SMALL if small else _FULL
    sizes = replace(sizes, steps=steps or sizes.steps)
    report = Report("wide", {"small": small, **asdict(sizes), "cores": os.cpu_count()})
    place = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    try:
        with Progress(transient=True, console=Console(stderr=True), disable=quiet) as progress:
            run = _Run(place, sizes, report, progress)
            run.one_stream()
            run.many_streams()
    finally:
        shutil.rmtree(place)
    return report


class _Run:
    """One run of the benchmark."""

    def __init__(self, place: Path, sizes: _Sizes, report: Report, progress: Progress) -> None:
        self.place, self.sizes, self.report, self.progress = place, sizes, report, progress
        self.base: float | None = None  # seconds of a step with one query

    def one_stream(self) -> None:
        """One query, some and many over one stream."""
        sizes = self.sizes
        files = Files(self.place / "one", sizes.rows)
        first, *others = sizes.counts
        asked = [(first, [number]) for number in sizes.alone]
        asked += [(count, list(range(count))) for count in others]
        with ExitStack() as opened:
            crowds: dict[int, list[Crowd]] = {}
            for at, (count, numbers) in enumerate(asked):
                wanted = [(question(number), one("s")) for number in numbers]
                crowd = Crowd(self.place / f"one-{at}", files, ["s"], wanted)
                opened.callback(crowd.engine.close)
                crowds.setdefault(count, []).append(crowd)
            took = self._measured(crowds, "queries over one stream", sizes.steps, sizes.rounds)
            for count, found in took.items():
                self._row(f"{count} {'query' if count == 1 else 'queries'} over one stream", count, found)
            self._compare([crowd for some in crowds.values() for crowd in some], "one stream")
        if not self.report.parameters["small"]:
            self._judge(took)

    def many_streams(self) -> None:
        """Many queries over many streams."""
        sizes = self.sizes
        streams = [f"s{number}" for number in range(sizes.streams)]
        files = Files(self.place / "many", sizes.rows // sizes.streams)
        with ExitStack() as opened:
            crowd = Crowd(self.place / "many-streams", files, streams, over_streams(sizes.queries, streams))
            opened.callback(crowd.engine.close)
            what = f"queries over {sizes.streams} streams"
            took = self._measured({sizes.queries: [crowd]}, what, math.ceil(sizes.steps / 2), 1)
            self._row(f"{sizes.queries} {what}", sizes.queries, took[sizes.queries])
            self._compare([crowd], f"{sizes.streams} streams")

    def _measured(
        self, crowds: Mapping[int, Sequence[Crowd]], what: str, steps: int, rounds: int
    ) -> dict[int, list[Took]]:
        """The counted steps of warehouses, by how many queries they have, after two steps of each to warm up."""
        every = [(count, crowd) for count, some in crowds.items() for crowd in some]
        task = self.progress.add_task(f"creating {what}", total=sum(len(crowd.asked) for _, crowd in every))
        for _, crowd in every:
            crowd.create(lambda: self.progress.advance(task))
        turns = [1, *map(len, np.array_split(np.arange(steps), rounds))]
        weight = sum(count for count, _ in every)  # steps with more queries take longer
        self.progress.reset(task, description=f"steps of {what}", total=weight * sum(many + 1 for many in turns))
        took: dict[int, list[Took]] = {count: [] for count in crowds}
        for turn, many in enumerate(turns):
            for count, crowd in every:
                for step in range(many + 1):
                    spent = crowd.step()
                    took[count] += [spent] if turn and step else []
                    self.progress.advance(task, count)
        self.progress.remove_task(task)
        return took

    def _row(self, what: str, count: int, took: Sequence[Took]) -> None:
        seconds = [spent.seconds for spent in took]
        median = statistics.median(seconds)
        self.base = self.base or median
        self.report.rows.append(
            {
                "what": what,
                "median ms": round(median * 1000, 1),
                "95 % ms": round(float(np.percentile(seconds, 95)) * 1000, 1),
                "ms a query": round(median * 1000 / count, 1),
                "times one query": round(median / self.base, 2),
                "Spark jobs": round(statistics.median(spent.jobs for spent in took)),
                "steps": len(took),
            }
        )

    def _judge(self, took: Mapping[int, Sequence[Took]]) -> None:
        first, *_, last = took
        few, many = (statistics.median(spent.seconds for spent in took[count]) for count in (first, last))
        ratio = round(many / few, 2)
        what = f"{last} queries over one stream, in steps of one query"
        self.report.claims.append(Claim(what, f"<= {_MOST:g}", ratio, many / few <= _MOST))
        self.report.aims.append(Claim(what, f"<= {_AIM:g}", ratio, many / few <= _AIM))

    def _compare(self, crowds: Sequence[Crowd], where: str) -> None:
        task = self.progress.add_task("comparing with a batch", total=sum(len(crowd.asked) for crowd in crowds))
        found = Compared()
        for crowd in crowds:
            found += crowd.compared(lambda: self.progress.advance(task))
        self.progress.remove_task(task)
        self.report.parameters[f"results of {where}"] = found.results
        what = f"{where}: results that differ from a batch over all rows"
        self.report.claims.append(Claim(what, 0, found.faults, found.faults == 0))
