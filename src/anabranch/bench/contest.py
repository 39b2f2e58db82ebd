"""The contestants of `bench late`, each run the same way: warmed up, measured, and its answers judged.

What is measured is the time from the first file to the last change durable, and the memory held meanwhile.
In full size each contestant has a process of its own, so that neither its memory nor a warm JVM is
another's; in small size they share one, since only their answers matter.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.api.engine import connect
from anabranch.bench.impressions import COLUMNS, KEPT, Impressions
from anabranch.bench.judge import Verdict, judged, write_truth
from anabranch.bench.memory import PeakMemory
from anabranch.bench.ours import counting
from anabranch.bench.structured import Micro, counted, plain_spark, said

FILES_A_BATCH = 4
_READS = 3
_WARM_SHARE = 5  # one file in so many warms the contestant up

Tell = Callable[[int, int], None]


class Stopwatch:
    """Seconds and memory of a block."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.reading: float | None = None
        self.memory = PeakMemory()

    def read(self, table: Callable[[], pa.Table]) -> pa.Table:
        """Read an answer to its end, several times, and note what that usually takes."""
        took = []
        for _ in range(_READS):
            begin = time.perf_counter()
            found = table()
            took.append(time.perf_counter() - begin)
        self.reading = statistics.median(took)
        return found

    def __enter__(self) -> Self:
        self.memory.__enter__()
        self.seconds = -time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds += time.perf_counter()
        self.memory.__exit__(kind, error, trace)


# Processes the files within the stopwatch's block; afterwards returns its answer, in every way that it can be read.
Run = Callable[[Impressions, Path, Stopwatch, Tell], Sequence[pa.Table]]


def _one_by_one(data: Impressions, place: Path, watch: Stopwatch, tell: Tell) -> Sequence[pa.Table]:
    with counting(place / "warehouse") as job:
        with watch:
            job.one_by_one(data, FILES_A_BATCH, tell)
        return [watch.read(job.table), job.replayed()]


def _catching_up(data: Impressions, place: Path, watch: Stopwatch, tell: Tell) -> Sequence[pa.Table]:
    with counting(place / "warehouse") as job:
        with watch:
            job.catching_up(data, FILES_A_BATCH)
        return [watch.read(job.table), job.replayed()]


def _structured(mode: str, watermark: str, files_a_batch: int | None, *, rocksdb: bool = False) -> Run:
    def run(data: Impressions, place: Path, watch: Stopwatch, tell: Tell) -> Sequence[pa.Table]:
        batch = files_a_batch or data.files
        micro = Micro(COLUMNS, f"kind = '{KEPT}'", watermark, mode, batch, rocksdb)
        files = _alone(data, place / "files")
        with plain_spark() as spark:
            with watch:
                query = micro.start(spark, str(files), place)
                while not query.awaitTermination(1):
                    tell(min(data.files, batch * len(query.recentProgress)), data.files)
            return [said(place)]

    return run


def _alone(data: Impressions, directory: Path) -> Path:
    """A directory with only these files, since that is what a streaming source reads."""
    directory.mkdir()
    for path in data.paths:
        try:
            os.link(path, directory / Path(path).name)
        except OSError:  # on another disk
            shutil.copy2(path, directory)
    return directory


def _batch(data: Impressions, place: Path, watch: Stopwatch, tell: Tell) -> Sequence[pa.Table]:
    """What it takes to ask Spark anew: one batch over the raw files, to the end as Arrow."""
    with plain_spark() as spark:
        with watch:
            answer = watch.read(lambda: counted(spark, data.paths, KEPT).toArrow())
        watch.seconds = watch.reading or watch.seconds
        return [answer]


def _duckdb(data: Impressions, place: Path, watch: Stopwatch, tell: Tell) -> Sequence[pa.Table]:
    target = place / "truth.parquet"
    with watch:
        write_truth(data.paths, str(target))
    return [pq.read_table(target)]


@dataclass(frozen=True)
class Contestant:
    title: str
    run: Run
    spark: bool = True
    ours: bool = False


CONTESTANTS: Mapping[str, Contestant] = {
    "duckdb": Contestant("DuckDB over the finished files, the limit", _duckdb, spark=False),
    "batch": Contestant("Spark, one batch over the finished files", _batch),
    "ours": Contestant(f"anabranch, {FILES_A_BATCH} files a bucket", _one_by_one, ours=True),
    "ours-train": Contestant("anabranch, catching up", _catching_up, ours=True),
    "append": Contestant(
        f"Structured Streaming, append, 10 min watermark, {FILES_A_BATCH} files a batch",
        _structured("append", "10 minutes", FILES_A_BATCH),
    ),
    "update": Contestant(
        f"Structured Streaming, update, 25 h watermark, {FILES_A_BATCH} files a batch",
        _structured("update", "25 hours", FILES_A_BATCH),
    ),
    "update-rocksdb": Contestant(
        f"Structured Streaming, the same with RocksDB, {FILES_A_BATCH} files a batch",
        _structured("update", "25 hours", FILES_A_BATCH, rocksdb=True),
    ),
    "update-once": Contestant(
        "Structured Streaming, update, 25 h watermark, one batch", _structured("update", "25 hours", None)
    ),
}


@dataclass(frozen=True)
class Outcome:
    """How a contestant did; the worst of its answers counts."""

    seconds: float
    memory: int | None
    verdict: Verdict
    reading: float | None = None  # what it takes to read the finished table


def run_here(
    name: str,
    data: Impressions,
    truth: str,
    place: Path,
    tell: Tell,
    *,
    warm: Impressions | None = None,
    master: str | None = None,
) -> Outcome:
    """Run a contestant in this process; `warm` goes before, uncounted."""
    contestant = CONTESTANTS[name]
    with _held(contestant, place / "held", master):
        if warm is not None:
            (place / "warm").mkdir()
            contestant.run(warm, place / "warm", Stopwatch(), lambda done, of: None)
        (place / "race").mkdir()
        watch = Stopwatch()
        answers = contestant.run(data, place / "race", watch, tell)
    verdict = worst([judged(truth, answer) for answer in answers])
    return Outcome(watch.seconds, watch.memory.bytes, verdict, watch.reading)


@contextmanager
def _held(contestant: Contestant, place: Path, master: str | None) -> Iterator[None]:
    """One JVM from the warm-up to the end: the engine's, or Spark as people start it."""
    if contestant.ours:
        with connect(place, master=master) as engine:
            _ = engine.spark
            yield
    elif contestant.spark:
        with plain_spark():
            yield
    else:
        yield


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Of each kind of fault, the most that one of them has."""
    return replace(
        verdicts[0],
        dropped=max(v.dropped for v in verdicts),
        wrong=max(v.wrong for v in verdicts),
        missing=max(v.missing for v in verdicts),
    )


def run_apart(
    name: str,
    data: Impressions,
    truth: str,
    place: Path,
    tell: Tell,
    *,
    warm: Impressions | None = None,
    master: str | None = None,
) -> Outcome:
    """Run a contestant in a process of its own, warmed up: by the first of its files, or by others."""
    first = warm or data.first(max(data.files // _WARM_SHARE, 1))
    task = {"name": name, "data": asdict(data), "truth": truth, "place": str(place), "warm": asdict(first),
            "master": master}  # fmt: skip
    command = [sys.executable, "-m", "anabranch.bench.contest", json.dumps(task)]
    found: dict[str, Any] | None = None
    with tempfile.TemporaryFile("w+") as complaints:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                message = json.loads(line) if line.startswith("{") else {}
                if "done" in message:
                    tell(message["done"], message["of"])
                found = message.get("outcome", found)
        complaints.seek(0)
        if child.returncode != 0 or found is None:
            raise RuntimeError(f"{name} ended with {child.returncode}:\n{complaints.read()[-4000:]}")
    return Outcome(found["seconds"], found["memory"], Verdict(**found["verdict"]), found["reading"])


def _say(message: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main(task: Mapping[str, Any]) -> None:
    """What the process of a contestant does."""

    def tell(done: int, of: int) -> None:
        _say({"done": done, "of": of})

    data, warm, place = Impressions(**task["data"]), Impressions(**task["warm"]), Path(task["place"])
    outcome = run_here(task["name"], data, task["truth"], place, tell, warm=warm, master=task["master"])
    _say({"outcome": asdict(outcome)})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
