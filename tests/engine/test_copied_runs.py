"""Copied runs and buckets with ends: engines that take the same runs in other orders emit the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.engine.advance import Recording
from anabranch.log.recording import End
from anabranch.model.run import RunId
from anabranch.model.time import to_datetime
from tests.conftest import SECOND, START_US
from tests.laws.play import said, table

MINUTE = 60 * SECOND
# What each run holds, as (entry point, sequence, stamp, minute, key, value); later buckets revise earlier ones.
RUNS = [
    ("a", 1, 1, 0, 1, 5),
    ("b", 1, 1, 1, 2, 7),
    ("a", 2, 2, 3, 1, 1),
    ("b", 2, 4, 6, 1, 9),
    ("a", 3, 4, 5, 3, 2),
    ("c", 1, 5, 2, 2, 4),
    ("c", 2, 9, 8, 1, 3),
    ("a", 4, 12, 1, 2, 8),
]
ENDS = (3, 5, 10, 15)


def open_engine(root: Path, **options: Any) -> ab.Engine:
    engine = ab.connect(root, **options)
    engine.sql("""
        CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts SLACK '1 minute';
        CREATE STREAM k (k INT, v INT, ts TIMESTAMP) EVENT TIME ts KEY (k);
        CREATE STREAM passed AS SELECT k, v FROM s WHERE v > 1;
        CREATE STREAM sums AS SELECT k, sum(v) AS total, cq_close(*) AS t FROM s <SLICES '2 minutes'> GROUP BY k;
        CREATE STREAM live AS SELECT k, v FROM k
    """)
    return engine


def take(engine: ab.Engine, run: tuple[str, int, int, int, int, int]) -> None:
    entry_point, sequence, stime, minute, key, value = run
    log = engine._log
    for name in ("s", "k"):
        run_id = RunId(entry_point, sequence)
        work = log.unit_of_work(log.stream(name), run_id=run_id, stime=START_US + stime, source=entry_point)
        with work:
            work.append([{"k": key, "v": value, "ts": to_datetime(START_US + minute * MINUTE)}])
            work.commit()


def play(engine: ab.Engine, order: Sequence[int], at_once: bool) -> None:
    """Runs arrive in an order, each before its bucket ends; steps come after each bucket, or at the end."""
    register, leases = engine._log.register, engine._log.leases
    taken: set[int] = set()
    for end in ENDS:
        for number in order:
            if number not in taken and (RUNS[number][2] < end or number % 2):
                take(engine, RUNS[number])
                taken.add(number)
        lease = leases.acquire()
        assert register.record_bucket(lease, end=End(stime=START_US + end), release=False) is not None
        leases.release(lease)
        if not at_once:
            engine._queries.advance(release=False, recording=Recording.NOTHING)
    assert taken == set(range(len(RUNS)))
    engine.advance()


def test_the_order_of_arrival_leaves_no_trace(warm_spark: Any, tmp_path: Path) -> None:
    with open_engine(tmp_path / "one") as one, open_engine(tmp_path / "other", kernel="spark") as other:
        play(one, range(len(RUNS)), at_once=False)
        play(other, [6, 4, 1, 7, 0, 5, 3, 2], at_once=True)
        for name in ("passed", "sums", "live"):
            assert said(one, name) == said(other, name) != b""
            assert sorted(table(one, name)) == sorted(table(other, name)) != []
        # Of two messages of one stamp the one of the later entry point counts.
        assert sorted(tuple(row) for row in one.table("live").collect()) == [(1, 3), (2, 8), (3, 2)]


def test_buckets_of_a_size(warm_spark: Any, tmp_path: Path) -> None:
    with open_engine(tmp_path / "sized", bucket=timedelta(milliseconds=500)) as engine:
        rows = [{"k": 1, "v": 5, "ts": to_datetime(START_US + minute * MINUTE)} for minute in range(5)]
        before = engine._log.clock()
        engine.stream("s").append(rows)
        done = engine.advance()
        after = engine._log.clock()
        assert done.buckets == 1
        numbers = [bucket.number for bucket in engine._log.register.buckets_after(0)]
        assert before // 500_000 <= numbers[0] <= after // 500_000
        assert len(table(engine, "passed")) == 5, "what is appended is answered by the next advance()"
        engine.stream("s").append(rows)
        assert engine._queries.advance(recording=Recording.OVER).buckets == 0, "the interval is not over"
        engine.stream("s").append(rows)
        assert engine.advance().buckets == 1
        (one, two) = (bucket.number for bucket in engine._log.register.buckets_after(0))
        assert one < two
        assert len(table(engine, "passed")) == 15
