"""Aggregates on Spark beyond the random cases: sketches within their bounds, deletions, exact sums of doubles."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import anabranch as ab
from anabranch.engine.live import Live
from anabranch.log.reduction import plan_reduction

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def s(engine: ab.Engine) -> ab.Stream:
    engine.sql("CREATE STREAM s (k STRING, n INT, d DOUBLE, ts TIMESTAMP) EVENT TIME ts")
    return engine.stream("s")


def rows(values: list[tuple[int, float]], **extra: Any) -> list[dict[str, Any]]:
    return [{"k": "a", "n": n, "d": d, "ts": ZERO + timedelta(seconds=at % 50), **extra}
            for at, (n, d) in enumerate(values)]  # fmt: skip


def closed(engine: ab.Engine, s: ab.Stream) -> Any:
    s.punctuate(ZERO + timedelta(hours=1))
    engine.advance()
    (row,) = engine.table("q").collect()
    return row


@pytest.mark.proof
def test_sketches_are_within_their_bounds_however_rows_are_cut(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("""CREATE STREAM q AS SELECT approx_count_distinct(n) AS u, approx_percentile(d, 0.9) AS p,
        approx_percentile(n, 0.5) AS m, approx_percentile(d, 0.01) AS low, cq_close(*) AS t
        FROM s <SLICES '1 minute'>""")
    chance = np.random.default_rng(7)
    values = [
        (int(n), float(d))
        for n, d in zip(chance.integers(0, 20_000, 30_000), chance.normal(5, 100, 30_000), strict=True)
    ]
    for part in (values[:10], values[10:20_000], values[20_000:]):
        s.append(rows(part))
        engine.advance()
    row = closed(engine, s)
    distinct = len({n for n, _ in values})
    assert math.isclose(row.u, distinct, rel_tol=0.03)
    ordered, whole = sorted(d for _, d in values), sorted(n for n, _ in values)
    assert math.isclose(row.p, ordered[math.ceil(0.9 * len(ordered)) - 1], rel_tol=1 / 256)
    assert math.isclose(row.low, ordered[math.ceil(0.01 * len(ordered)) - 1], rel_tol=1 / 256)
    middle = whole[math.ceil(0.5 * len(whole)) - 1]
    assert abs(row.m - middle) <= middle / 256 + 0.5, "a whole number is rounded besides"
    assert len(engine.changes("q").collect()) == 1


def test_doubles_add_up_exactly(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("CREATE STREAM q AS SELECT sum(d) AS s, avg(d) AS a, cq_close(*) AS t FROM s <SLICES '1 minute'>")
    chance = np.random.default_rng(8)
    numbers = (chance.normal(0, 1, 4000) * 10.0 ** chance.integers(-300, 300, 4000)).tolist()
    numbers += [5e-324, -5e-324, 1.7e308, 1.7e308, -1.7e308, 2.0**-1022, 0.1, 0.2, 0.3]
    for part in (numbers[::2], numbers[1::2]):
        s.append(rows([(1, d) for d in part]))
        engine.advance()
    row = closed(engine, s)
    total = float(sum(map(Fraction, numbers)))  # what fsum gives, where it does not overflow on the way
    assert row.s == total
    assert row.a == total / len(numbers)


def test_deletions_subtract_where_partials_can(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("""CREATE STREAM q AS SELECT count(*) AS c, sum(n) AS s, avg(d) AS a, variance(n) AS v, median(n) AS m,
        count(DISTINCT n) AS u, cq_close(*) AS t FROM s <SLICES '1 minute'>""")
    s.append(rows([(1, 0.1), (2, 0.2), (3, 0.3), (9, 1e300)]))
    engine.advance()
    s.append(rows([(0, 0.0)] * 3 + [(9, 1e300)], _change_type="delete")[3:])
    row = closed(engine, s)
    assert (row.c, row.s, row.a, row.v, row.m, row.u) == (3, 6, 0.6 / 3, 1.0, 2.0, 3)


def test_a_deletion_makes_again_what_does_not_subtract(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("""CREATE STREAM q AS SELECT max(n) AS m, min(n) AS l, first(n) AS f, last(d) AS e, count(*) AS c,
        median(n) AS u, approx_count_distinct(n) AS a, cq_close(*) AS t FROM s <SLICES '1 minute'>""")
    engine.sql("CREATE STREAM r AS SELECT n % 2 AS odd, max(n) AS m FROM s GROUP BY n % 2")
    s.append(rows([(5, 0.1), (9, 0.2), (2, 0.3)]))
    engine.advance()
    s.append(rows([(9, 0.2)] * 2, _change_type="delete")[1:])
    engine.advance()
    assert sorted(tuple(row) for row in engine.table("r").collect()) == [(0, 2), (1, 5)]
    s.append(rows([(7, 0.7)]))
    engine.advance()
    for value, d in ((5, 0.1), (2, 0.3)):
        at = 0 if value == 5 else 2
        s.append(rows([(value, d)] * 3, _change_type="delete")[at : at + 1])
    engine.advance()
    assert [tuple(row) for row in engine.table("r").collect()] == [(1, 7)], "a group of which no row is left is gone"
    row = closed(engine, s)
    assert (row.m, row.l, row.f, row.e, row.c, row.u, row.a) == (7, 7, 7, 0.7, 1, 7.0, 1)


def test_resets_outlast_reductions(engine: ab.Engine, s: ab.Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_reduction, "__defaults__", (2,))
    engine.sql("CREATE STREAM q AS SELECT max(n) AS m, count(DISTINCT n) AS c FROM s")
    for step in range(3):
        s.append(rows([(step, 0.5)]))
        engine.advance()
        s.append(rows([(step, 0.5)], _change_type="delete") if step != 1 else rows([(1, 0.25)]))
        engine.advance()
    store = Live(engine._log).stores[1]
    assert len(engine._log.headers(engine._log.stream_by_id(store.stored.stream_id))) < 4
    assert [tuple(row) for row in engine.table("q").collect()] == [(1, 1)]
