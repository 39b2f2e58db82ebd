"""`bench nexmark`: eleven queries of the Nexmark suite, each compared with one Spark batch of the same query.

People, auctions and bids come in buckets, a file of each stream in a bucket, and some of them late. What is
measured is the time from the first file to the last change said. Beside it, where it can answer the same,
Structured Streaming takes the same files in as many micro-batches; its answers are compared too.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.progress import Progress, TaskID

from anabranch.api.engine import Engine, connect
from anabranch.bench.differing import differing
from anabranch.bench.nexmark_events import COLUMNS, LATE_SHARE, LATEST_US, SECOND_US, Events, written
from anabranch.bench.nexmark_queries import QUERIES, Query
from anabranch.bench.nexmark_rival import Race
from anabranch.model.report import Claim, Report
from anabranch.model.time import to_datetime

_WARM_FILES = 2
_AFTER_US = 60 * SECOND_US  # every window has closed by then
_WAYS = 2  # in which an answer of ours is read
_NONE = "n/a"

Tell = Callable[[int], None]


@dataclass(frozen=True)
class _Sizes:
    events: int
    a_second: int  # of event time
    buckets: int


_FULL = _Sizes(2_000_000, 1_000, 8)
_SMALL = _Sizes(5_000, 20, 3)


def bench_nexmark(
    *, small: bool = False, quiet: bool = False, events: int | None = None, queries: Sequence[str] = ()
) -> Report:
    """Run the queries that are named, or all."""
    sizes = _SMALL if small else _FULL
    sizes = replace(sizes, events=events or sizes.events)
    chosen = [query for name, query in QUERIES.items() if name in queries or not queries]
    parameters = {
        "small": small,
        **asdict(sizes),
        "late": LATE_SHARE,
        "late by up to seconds": LATEST_US // SECOND_US,
        "cores": os.cpu_count(),
    }
    report = Report("nexmark", parameters)
    place = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    try:
        with (
            Progress(transient=True, console=Console(stderr=True), disable=quiet) as progress,
            connect(place / "held") as held,
        ):
            _Run(place, sizes, report, progress, held.spark).run(chosen)
    finally:
        shutil.rmtree(place)
    return report


def kernels_of(engine: Engine, query_name: str) -> str:
    """The kernel of each box of a query, in few words."""
    drawn = engine.sql(f"EXPLAIN {query_name}")
    assert drawn is not None
    lines = [row.plan for row in drawn.collect()]
    begin = lines.index("Kernels:") + 1
    said = [line.strip().split(": ", 1) for line in lines[begin : lines.index("", begin)]]
    named = [(what if what.startswith("all") else what.split()[0], kernel.split(",")[0]) for what, kernel in said]
    return ", ".join(f"{what} {kernel}" for what, kernel in named)


@dataclass
class _Outcome:
    """How a query did."""

    rows: int
    seconds: float = 0.0
    its_seconds: float = 0.0  # those of the rival
    kernels: str = ""
    answers: int = 0
    differ: list[int] = field(default_factory=list)  # rows of each of our answers, then of the rival's


class _Run:
    """One run of the benchmark; one JVM for all of it."""

    def __init__(self, place: Path, sizes: _Sizes, report: Report, progress: Progress, spark: SparkSession) -> None:
        self.place, self.sizes, self.report, self.progress, self.spark = place, sizes, report, progress, spark

    def run(self, queries: Sequence[Query]) -> None:
        task = self.progress.add_task("making events", total=self.sizes.buckets)
        data = written(
            self.place / "events",
            self.sizes.events,
            self.sizes.a_second,
            self.sizes.buckets,
            lambda done, of: self.progress.update(task, completed=done),
        )
        for query in queries:
            self.progress.reset(task, description=f"{query.name}, {query.title}", total=2 * self.sizes.buckets)
            home = self.place / query.name
            home.mkdir()
            if not self.report.parameters["small"]:
                self._warm(query, data.first(_WARM_FILES), home)
            self._measure(query, data, home, task)
            shutil.rmtree(home)

    def _warm(self, query: Query, few: Events, home: Path) -> None:
        with _warehouse(query, home / "warm-ours") as engine:
            feed(engine, query, few, lambda done: None)
        if query.rival is not None:
            race = Race(query.rival, query.reads, few, home / "warm-rival")
            race.prepare()
            race.run(self.spark, lambda done: None)

    def _measure(self, query: Query, data: Events, home: Path, task: TaskID) -> None:
        """The rival first: nothing of ours is at work then, not even in the background."""
        outcome, its_answer = _Outcome(data.rows(query.reads)), []
        if query.rival is not None:
            race = Race(query.rival, query.reads, data, home / "rival")
            race.prepare()
            outcome.its_seconds = race.run(self.spark, lambda done: self.progress.update(task, completed=done))
            its_answer = [race.said(self.spark)]
        with _warehouse(query, home / "ours") as engine:
            outcome.seconds = feed(
                engine, query, data, lambda done: self.progress.update(task, completed=data.files + done)
            )
            outcome.kernels = kernels_of(engine, query.name)
            answers = [*_answers(engine, query.name), *its_answer]
            outcome.answers, outcome.differ = differing(self._batch(query, data), answers)
        self.report.rows.append(_row(query, outcome))
        faults = max(outcome.differ[:_WAYS])
        self.report.claims.append(Claim(f"{query.name}: rows that differ from a batch", 0, faults, faults == 0))

    def _batch(self, query: Query, data: Events) -> DataFrame:
        """The same query as one batch over all rows, straight from the files."""
        return self.spark.sql(query.batch, **{name: self.spark.read.parquet(*data.paths(name)) for name in query.reads})


def _row(query: Query, outcome: _Outcome) -> dict[str, Any]:
    row: dict[str, Any] = {
        "query": f"{query.name}, {query.title}",
        "rows": outcome.rows,
        "answers": outcome.answers,
        "seconds": round(outcome.seconds, 2),
        "rows/s": round(outcome.rows / outcome.seconds),
        "kernel": outcome.kernels,
        "Structured Streaming": f"{_NONE}: {query.why_none}",
        "its rows/s": _NONE,
        "ratio": _NONE,
        "its rows that differ": _NONE,
    }
    if query.rival is not None:
        row |= {
            "Structured Streaming": query.rival.mode,
            "its rows/s": round(outcome.rows / outcome.its_seconds),
            "ratio": round(outcome.its_seconds / outcome.seconds, 2),
            "its rows that differ": outcome.differ[_WAYS],
        }
    return row


def _warehouse(query: Query, place: Path) -> Engine:
    engine = connect(place)
    for stream in query.reads:
        engine.sql(f"CREATE STREAM {stream} ({COLUMNS[stream]}) EVENT TIME ts")
    engine.sql(query.ours)
    return engine


def feed(engine: Engine, query: Query, data: Events, tell: Tell) -> float:
    """Seconds from the first file to the last change said. At the end a promise closes the windows still open."""
    streams = {name: engine.stream(name) for name in query.reads}
    began = time.perf_counter()
    for bucket in range(data.files):
        for name, stream in streams.items():
            stream.load(data.path(name, bucket))
        engine.advance()
        tell(bucket + 1)
    for stream in streams.values():
        stream.punctuate(to_datetime(data.end_us + _AFTER_US))
    engine.advance()
    return time.perf_counter() - began


def _answers(engine: Engine, name: str) -> list[DataFrame]:
    """A query's table, and what all changes that it ever said add up to."""
    last = engine.stream(name).state().last_position
    return [engine.table(name), engine.table(name, position_as_of=last)]
