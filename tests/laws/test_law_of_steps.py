"""Law: a step costs what is new in it, not how many steps there were."""

from __future__ import annotations

import statistics
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as ab
from tests.laws.cases import START

_QUERY = """CREATE STREAM counts AS SELECT k, count(*) AS c, sum(n) AS s, cq_close(*) AS t
    FROM s <SLICES '1 minute'> GROUP BY k"""
_SECONDS = 20  # of event time in a step


def _rows(chance: np.random.Generator, step: int) -> list[dict[str, Any]]:
    """New rows, and one that is late by up to an hour."""
    seconds = [step * _SECONDS + n / 5 for n in range(5 * _SECONDS)] + [step * _SECONDS - chance.integers(0, 3600)]
    return [{"k": int(chance.integers(0, 20)), "n": 1, "ts": START + timedelta(seconds=float(s))} for s in seconds]


def take_steps(place: Path, count: int) -> list[float]:
    """What steps take, one after the other; in the end every row is counted."""
    chance = np.random.default_rng(7)
    took = []
    with ab.connect(place) as engine:
        engine.sql("CREATE STREAM s (k INT, n INT, ts TIMESTAMP) EVENT TIME ts")
        engine.sql(_QUERY)
        stream = engine.stream("s")
        rows = 0
        for step in range(count):
            new = _rows(chance, step)
            rows += len(new)
            begin = time.perf_counter()
            stream.append(new)
            engine.advance()
            took.append(time.perf_counter() - begin)
        stream.punctuate(START + timedelta(seconds=(count + 10) * _SECONDS))
        engine.advance()
        total = engine.table("counts").agg({"c": "sum"}).first()
        assert total is not None
        assert total[0] == rows
    return took


@pytest.mark.proof
def test_sixty_steps(tmp_path: Path, warm_spark: Any) -> None:
    assert len(take_steps(tmp_path, 60)) == 60


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_ten_thousand_steps(tmp_path: Path, warm_spark: Any) -> None:
    took = take_steps(tmp_path, 10_000)
    early, late = statistics.median(took[500:1500]), statistics.median(took[-1000:])
    tail = float(np.percentile(took[500:], 95))
    print(f"\n10,000 steps: early {early * 1000:.0f} ms, late {late * 1000:.0f} ms, 95 % {tail * 1000:.0f} ms")
    assert late < 1.3 * early
