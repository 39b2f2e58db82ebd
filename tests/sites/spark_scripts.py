"""Scripts that run in processes of their own, with a Spark of their own.

python -m tests.sites.spark_scripts NAME ARGUMENTS...
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil

import anabranch as ab

COLUMNS = "user INT, ts TIMESTAMP"
ROWS = 1000


def frame(engine: ab.Engine, user: int) -> Any:
    return engine.spark.range(0, ROWS, 1, 2).selectExpr(
        f"{user} user", "timestamp'2026-01-01' + make_interval(0,0,0,0,0,0,id) ts"
    )


def say(*words: object) -> None:
    print(*words, flush=True)


def shutdown(place: str) -> None:
    """Start, stop and start again; say how many JVMs are left each time."""
    for _ in range(2):
        with ab.connect(place) as engine:
            assert engine.spark.range(5).count() == 5
            java = [p for p in psutil.Process().children(recursive=True) if "java" in p.name()]
            assert java
        psutil.wait_procs(java, timeout=20)
        say("left", sum(p.is_running() for p in java))


def writer(place: str, phase: str, user: str) -> None:
    """Append a DataFrame, and stop for ever in the phase in which the test wants to kill."""
    from anabranch.engine import write
    from anabranch.log import units

    def stop() -> None:
        say("reached", phase)
        signal.pause()

    engine = ab.connect(place, master="local[2]", memory="1g")
    stream = engine.create_stream("impsns", COLUMNS, event_time="ts")
    rows = frame(engine, int(user))
    java = [p.pid for p in psutil.Process().children(recursive=True) if "java" in p.name()]
    say("jvm", java[0])
    if phase == "before_segment":
        stop_before(write, "collect_reports", stop)
    elif phase == "during_tasks":
        rows = rows.mapInArrow(Blocking(f"{place}/in_task").run, rows.schema)
    elif phase == "before_header":
        stop_before(units.UnitOfWork, "commit", stop)
    elif phase == "inside_transaction":
        stop_before(units, "end_intents", stop)
    stream.append(rows, run_id=("spark", int(user)))
    stop()


class Blocking:
    """One partition goes through and is written; in the other the task stops, having left a sign."""

    def __init__(self, sign: str) -> None:
        self.sign = sign

    def run(self, batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1:
            Path(self.sign).touch()
            signal.pause()
        yield from batches


def nonsense(place: str) -> None:
    """Settings with which Spark does not start, and then a session of somebody else that must survive."""
    from pyspark.sql import SparkSession

    for options in ({"master": "nonsense"}, {"memory": "lots"}):
        with ab.connect(place, **options) as engine:  # type: ignore[arg-type]
            try:
                _ = engine.spark
            except ab.AnabranchError as error:
                say("error", error.id)
    theirs = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    with ab.connect(place) as engine:
        say("shared", engine.spark.range(2).count())
    say("theirs", theirs.range(3).count())
    theirs.stop()


def stop_before(owner: Any, name: str, action: Any) -> None:
    real = getattr(owner, name)

    def wrapped(*args: Any, **options: Any) -> Any:
        action()
        return real(*args, **options)

    setattr(owner, name, wrapped)


def cluster(place: str) -> None:
    """On a cluster of other processes: they write, this one must not."""
    from anabranch.log import segments

    with ab.connect(place, master="local-cluster[2,1,1024]") as engine:
        stream = engine.create_stream("impsns", COLUMNS, event_time="ts")

        def forbidden(*args: object, **options: object) -> None:
            raise AssertionError("the driver wrote a segment")

        real = segments._write_one
        segments._write_one = forbidden  # type: ignore[assignment]
        say("appended", stream.append(frame(engine, 1)).rows)
        segments._write_one = real
        for user in range(8):
            stream.append([{"user": user, "ts": "2026-01-01T00:00:00Z"}])
        segments._write_one = forbidden  # type: ignore[assignment]
        done = stream.compact()
        say("compacted", done.rows, done.segments_written)
        (Path(place) / "x.jsonl").write_text('{"user": 5, "ts": "2026-01-01T00:00:00Z"}\n')
        say("loaded", stream.load(Path(place) / "x.jsonl").rows)
        say("read", stream.read(log_columns=True).where("_position IS NOT NULL").count())


def laws_on_cluster(place: str, first: str, many: str) -> None:
    """Cases of the order-independence law on a cluster; say which processes wrote the derived segments."""
    import duckdb

    from anabranch.engine import emit
    from anabranch.engine.reports import NumberedTasks
    from tests.laws.cases import draw_case
    from tests.laws.play import assert_replays, assert_same, oracle, play, table

    wrote: set[str] = set()

    def noting(kernel: str, collect: Any) -> Any:
        def collecting(*args: Any) -> Any:
            reports = collect(*args)
            wrote.update(f"{kernel}:{_runs_in(r['process'])}" for r in reports if "process" in r)
            return reports

        return collecting

    def forbidden(*args: object, **options: object) -> None:
        raise AssertionError("the driver read or wrote rows")

    emit.collect_reports = noting("spark", emit.collect_reports)
    NumberedTasks.run = noting("columnar", NumberedTasks.run)  # type: ignore[method-assign]
    duckdb.connect = forbidden  # type: ignore[assignment]
    emit.write_segments = forbidden  # type: ignore[assignment]
    with ab.connect(place, master="local-cluster[2,1,1024]") as warm:
        warm.spark.range(1).count()
        for seed in range(int(first), int(first) + int(many)):
            case = draw_case(seed, kills=False)
            with ab.connect(f"{place}/{seed}", master="local-cluster[2,1,1024]") as engine:
                play(engine, case)
                for query in case.queries:
                    assert_same(table(engine, query.name), oracle(engine, case, query), f"case {seed}")
                    assert_replays(engine, query.name)
            say("case", seed)
    say("wrote", *sorted(wrote))


def _runs_in(process: int) -> str:
    """Whose a Python worker is: the nearest JVM above it."""
    for parent in psutil.Process(process).parents():
        words = parent.cmdline()
        if "java" in words[0]:
            return "executor" if any("CoarseGrainedExecutorBackend" in word for word in words) else "driver"
    return "driver"


def connect(place: str, url: str) -> None:
    """Everything over Spark Connect, in a session that we open and in one that we adopt."""
    from pyspark.sql import SparkSession

    with ab.connect(place, master=url) as engine:
        stream = engine.create_stream("impsns", COLUMNS, event_time="ts")
        say("appended", stream.append(frame(engine, 1)).rows)
        for user in range(8):
            stream.append([{"user": user, "ts": "2026-01-01T00:00:00Z"}])
        say("compacted", stream.compact().rows)
        (Path(place) / "x.jsonl").write_text('{"user": 5, "ts": "2026-01-01T00:00:00Z"}\n')
        say("loaded", stream.load(Path(place) / "x.jsonl").rows)
        say("read", stream.read(log_columns=True).where("_position IS NOT NULL").count())
        engine.sql("""CREATE STREAM counts AS SELECT user, count(*) AS c, avg(DOUBLE(user)) AS a, cq_close(*) AS t
            FROM impsns <SLICES '1 minute'> GROUP BY user""")
        engine.advance()
        stream.append([{"user": 5, "ts": "2026-01-01T00:00:01Z"}])
        engine.advance()
        said = [(row._change_type, row.c) for row in engine.changes("counts").where("user = 5").collect()]
        say("said", *(f"{change}:{count}" for change, count in said))
    theirs = SparkSession.builder.remote(url).getOrCreate()
    theirs.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    with ab.connect(place, spark=theirs) as engine:
        say("adopted", engine.stream("impsns").read().count(), theirs.conf.get("spark.sql.session.timeZone"))
    say("theirs", theirs.range(3).count())
    with ab.connect(place, master="sc://127.0.0.1:1") as engine:
        try:
            _ = engine.spark
        except ab.AnabranchError as error:
            say("error", error.id)


if __name__ == "__main__":
    os.environ["PYTHONFAULTHANDLER"] = "1"
    globals()[sys.argv[1]](*sys.argv[2:])
