"""Playing a case: what happens to the log, the steps in between, and the comparisons at the end."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.engine.live import Live
from anabranch.model.time import EPOCH
from anabranch.reference.rows import WeightedRow
from anabranch.reference.run import answer
from anabranch.reference.values import Timestamp
from tests.laws.cases import END, SCHEMA, Case, CaseQuery

KILLS: Counter[str] = Counter()  # the processes that were killed, by where
ROOT = Path(__file__).parents[2]


def open_case(engine: ab.Engine, case: Case) -> ab.Stream:
    drift = "" if case.drift is None else f" DRIFT '{case.drift} seconds'"
    engine.sql(f"CREATE STREAM s ({SCHEMA}) EVENT TIME ts SLACK '{case.slack} seconds'{drift}")
    for query in case.queries:
        engine.sql(query.ours)
    return engine.stream("s")


def play(engine: ab.Engine, case: Case, *, at_once: int | None = None, catch_up: bool = False) -> None:
    """Do what the case says. With `catch_up`, buckets are only recorded, and processed together in the end."""
    stream = open_case(engine, case)
    for action in case.actions:
        if action.do == "append":
            stream.append(list(action.rows), source=action.source)
        elif action.do in ("abort", "speculate"):
            _speculate(engine, stream, action.rows, action.source, commit=action.commit, advance=not catch_up)
        elif action.do == "bucket":
            record(engine)
        elif action.do == "advance":
            record(engine) if catch_up else engine.advance()
        elif action.do == "kill" and not catch_up:
            killed_advance(engine.warehouse, action.point)
    record(engine)
    stream.punctuate(END)
    record(engine)
    engine._queries.advance(at_once=at_once)


def record(engine: ab.Engine) -> None:
    """Record what is waiting as a bucket, and leave it at that."""
    advancer = engine._queries.advancer
    with advancer._leased() as lease:
        advancer.log.register.record_bucket(lease, release=False)


def _speculate(
    engine: ab.Engine, stream: ab.Stream, rows: Any, source: str | None, *, commit: bool, advance: bool
) -> None:
    work = stream.unit_of_work(source=source, speculative=True)
    work.append(list(rows[: len(rows) // 2]) or list(rows))
    if advance:
        engine.advance()
    if len(rows) > 1:
        work.append(list(rows[len(rows) // 2 :]))
    work.commit() if commit else work.abort()


def killed_advance(warehouse: Path, point: str) -> None:
    """Another process advances the warehouse, and is killed at some point of it: fails if it is not."""
    script = Path(__file__).with_name("killed.py")
    done = subprocess.run(
        [sys.executable, str(script), str(warehouse), point],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (-signal.SIGKILL, [f"dies at {point}"]), (
        f"it was not killed at {point}, but ended with {done.returncode}: {done.stderr[-2000:]}"
    )
    KILLS[point] += 1


def oracle(engine: ab.Engine, case: Case, query: CaseQuery) -> list[tuple[Any, ...]]:
    """The same SQL as one Spark batch over all committed rows."""
    spark = engine.spark
    spark.createDataFrame(case.committed, SCHEMA).createOrReplaceTempView("rows")
    rows = [tuple(row) for row in spark.sql(query.oracle).collect()]
    return [_finished(row, query) for row in rows]


def _finished(row: tuple[Any, ...], query: CaseQuery) -> tuple[Any, ...]:
    values = list(row)
    for at, function in query.exact:
        found = values[at]
        total = exact_sum(found)
        values[at] = None if not found else total / len(found) if function == "avg" else total
    return tuple(values)


def exact_sum(values: list[float]) -> float:
    if any(math.isnan(v) for v in values) or {math.inf, -math.inf} <= set(values):
        return math.nan
    infinite = [v for v in values if math.isinf(v)]
    return infinite[0] if infinite else math.fsum(values)


def meant(engine: ab.Engine, case: Case, query: CaseQuery) -> list[tuple[Any, ...]]:
    """What the reference executor makes of the query's own diagram, over all committed rows."""
    box = Live(engine._log).queries[query.name].asked
    names = [field.split()[0] for field in SCHEMA.replace("(12, 2)", "").split(", ")]
    rows = [WeightedRow(dict(zip(names, row, strict=True)), _micros(row[-1])) for row in case.committed]
    said = answer(box, {"s": rows}, {"s": _micros(END)})
    return [tuple(_plain(value) for value in row.values.values()) for row in said.rows]


def _micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def _plain(value: Any) -> Any:
    """As Spark's `collect` gives it: naive, in the process's own zone."""
    if isinstance(value, Timestamp):
        return (EPOCH + timedelta(microseconds=int(value))).astimezone().replace(tzinfo=None)
    return value


def table(engine: ab.Engine, name: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in engine.table(name).collect()]


def assert_same(
    ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]], what: str, exact: Collection[int] = ()
) -> None:
    """The same rows, in any order; doubles to 1e-9, those of some columns to the bit."""
    left, right = sorted(ours, key=_order), sorted(theirs, key=_order)
    assert len(left) == len(right), f"{what}: {len(left)} rows instead of {len(right)}\n{left[:5]}\n{right[:5]}"
    for a, b in zip(left, right, strict=True):
        same = (_same(x, y, to_the_bit=n in exact) for n, (x, y) in enumerate(zip(a, b, strict=True)))
        assert all(same), f"{what}: {a} instead of {b}"


def _same(x: Any, y: Any, *, to_the_bit: bool) -> bool:
    if isinstance(x, float) and isinstance(y, float):
        near = not to_the_bit and math.isclose(x, y, rel_tol=1e-9)
        return (math.isnan(x) and math.isnan(y)) or x == y or near
    return x == y


def _order(row: tuple[Any, ...]) -> str:
    return json.dumps([_key(value) for value in row], default=str)


def _key(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"{value:.6e}" if value else "0"
    return value


def assert_replays(engine: ab.Engine, name: str) -> None:
    """Every stable change, replayed in order, gives the table; the tentative ones and their undos cancel."""
    said = [row.asDict() for row in engine.changes(name).collect()]
    kept: Counter[str] = Counter()
    tentative: Counter[str] = Counter()
    for change in said:
        row = json.dumps([_exact(v) for c, v in change.items() if not c.startswith("_")], default=str)
        sign = 1 if change["_change_type"] in ("insert", "update_postimage") else -1
        counter = kept if change["_stability"] == "stable" else tentative
        counter[row] += sign
        assert change["_stability"] == "tentative" or counter[row] >= 0, f"{name}: {row} was taken back before it came"
    have = Counter(json.dumps([_exact(v) for v in row], default=str) for row in table(engine, name))
    assert +kept == have, f"{name}: the changes give {+kept - have} too much and {have - +kept} too little"
    assert not +tentative, f"{name}: {+tentative} was said tentatively and not undone"
    assert not -tentative, f"{name}: {-tentative} was undone and not said"


def _exact(value: Any) -> Any:
    return value.hex() if isinstance(value, float) and not math.isnan(value) else value


def assert_reduced(engine: ab.Engine, query: CaseQuery) -> None:
    """The reducer has been at work on the partial results of a query, if it keeps any."""
    live = Live(engine._log)
    for store in live.stores_of(live.queries[query.name]):
        levels = {(run.cause or {}).get("level", 0) for run in engine._log.headers(live.state(store.stored.stream_id))}
        assert max(levels, default=1) > 0, f"{query.ours}: runs of {levels}"


def said(engine: ab.Engine, name: str) -> bytes:
    """All stable changes in a canonical encoding: identities, order and values, byte for byte."""
    frame = engine.changes(name).where("_stability = 'stable'").drop("_stime", "_position")
    rows = frame.orderBy("_bucket", "_ordinal").collect()
    return "\n".join(json.dumps([_exact(v) for v in row], default=str) for row in rows).encode()
