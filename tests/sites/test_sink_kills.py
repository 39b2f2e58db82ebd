"""Kills of the process that feeds a table of PostgreSQL: afterwards the table is what one batch would say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import anabranch as ab

ROOT = Path(__file__).parents[2]
PHASES = ("before_copy", "before_transaction", "inside_transaction", "before_commit", "after_transaction")
ZERO = datetime(2026, 1, 1, tzinfo=UTC)
Row = tuple[str, float]


def start(place: Path, phase: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.sites.sink_scripts", str(place), phase]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.Popen(
        words, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def bring(turn: int) -> tuple[list[Row], list[Row]]:
    """What comes in a turn: new rows, a late one, and deletions by which a group of two turns ago ends."""
    new = [("a", turn + 0.1), ("b", turn + 0.2), ("b", turn + 0.3)]
    late = [("a", turn - 0.5)] if turn else []
    gone = [("b", turn - 1.8), ("b", turn - 1.7)] if turn > 1 else []
    return new + late, gone


def batch_answer(turns: int) -> list[tuple[Any, ...]]:
    """The counts of the windows that are closed, from all rows at once."""
    counts: Counter[tuple[str, int]] = Counter()
    for turn in range(turns):
        new, gone = bring(turn)
        counts.update((k, int(minute)) for k, minute in new)
        counts.subtract((k, int(minute)) for k, minute in gone)
    closed = {(k, m): c for (k, m), c in counts.items() if c and m < turns - 1}
    return sorted((k, c, ZERO + timedelta(minutes=m + 1)) for (k, m), c in closed.items())


def kill_sinks(place: Path, uri: str, kills: int) -> Counter[str]:
    died: Counter[str] = Counter()
    with ab.connect(place, master="local[2]") as engine:
        engine.sql("CREATE STREAM s (k STRING, ts TIMESTAMP) EVENT TIME ts")
        engine.sql("CREATE STREAM counts AS SELECT k, count(*) AS c, cq_close(*) AS t "
                   "FROM s <SLICES '1 minute'> GROUP BY k")  # fmt: skip
        engine.create_sink("out", "counts", uri)
        bring_and_step(engine, 0)
        child = start(place, PHASES[0])
        for kill in range(kills):
            phase = PHASES[kill % len(PHASES)]
            bring_and_step(engine, kill + 1)
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            child.stdin.write("go\n")
            child.stdin.flush()
            assert child.stdout.readline() == f"reached {phase}\n"
            child.send_signal(signal.SIGKILL)
            child.wait()
            died[phase] += 1
            if kill + 1 < kills:  # starts while this process looks at what is left
                child = start(place, PHASES[(kill + 1) % len(PHASES)])
            engine.advance()
            assert engine.halted() == {}
            with psycopg.connect(uri) as connection:
                found = connection.execute("SELECT k, c, t FROM counts").fetchall()
                left = connection.execute(
                    "SELECT relname FROM pg_class WHERE starts_with(relname, 'anabranch_staging_')"
                    " AND relnamespace = current_schema()::regnamespace"
                ).fetchall()
            assert sorted(found) == batch_answer(kill + 2), phase
            assert left == [], "what dead writers left is removed"
    return died


def bring_and_step(engine: ab.Engine, turn: int) -> None:
    """New rows, and what the query says of them; the sink is left to the process that is to be killed."""
    new, gone = bring(turn)
    rows = [{"k": k, "ts": ZERO + timedelta(minutes=minute), "_change_type": "insert"} for k, minute in new]
    rows += [{"k": k, "ts": ZERO + timedelta(minutes=minute), "_change_type": "delete"} for k, minute in gone]
    engine.stream("s").append(rows)
    advancer = engine._queries.advancer
    outlets, advancer.outlets = advancer.outlets, []
    engine.advance()
    advancer.outlets = outlets


def test_five_kills_of_a_process_that_feeds_a_table(
    tmp_path: Path, warm_spark: Any, postgres: Callable[[], str], said_at_the_end: list[str]
) -> None:
    died = kill_sinks(tmp_path / "w", postgres(), 5)
    said_at_the_end.append(f"sinks: {died.total()} kills by phase: {dict(died)}")
    assert all(died[phase] == 1 for phase in PHASES)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "each", [pytest.param(2, marks=pytest.mark.proof), pytest.param(10, marks=pytest.mark.soak)], ids=["ten", "fifty"]
)
def test_more_kills_of_a_process_that_feeds_a_table(
    tmp_path: Path, warm_spark: Any, postgres: Callable[[], str], said_at_the_end: list[str], each: int
) -> None:
    died = kill_sinks(tmp_path / "w", postgres(), each * len(PHASES))
    said_at_the_end.append(f"sinks: {died.total()} kills by phase: {dict(died)}")
    assert all(died[phase] == each for phase in PHASES)
