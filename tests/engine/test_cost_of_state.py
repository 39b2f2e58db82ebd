"""What a step reads of what was there before: as much as is there now and matters, however it came about."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.engine.kernel import Feed, SparkKernel
from anabranch.engine.spreading import MOST_BITS
from anabranch.engine.step import Step
from anabranch.log import states

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
AT_MOST = 1.3
SMALL_PART = 0.2


@dataclass
class Opened:
    """The segments that steps have opened, and the rows in them."""

    segments: list[int] = field(default_factory=list)

    def rows(self) -> int:
        return sum(self.segments)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """What steps open: of partial results, and of streams by Spark."""
    found = Opened()
    run, note, scan = Step.run, Step.note_opened, SparkKernel.scan
    inside: list[Step] = []  # upkeep reads between steps, and now and then

    def ran(self: Step) -> Any:
        inside.append(self)
        try:
            return run(self)
        finally:
            inside.clear()

    def noted(self: Step, query: Any, choices: Mapping[Any, Any]) -> None:
        found.segments.extend(s.rows for choice in choices.values() for s in choice.segments)
        note(self, query, choices)

    def scanned(self: SparkKernel, leaves: Any, leaf: Any, feed: Feed, **options: Any) -> Any:
        if inside:
            found.segments.extend([s.segment.rows for s in feed.plan.segments] + [s.rows for s in feed.state])
        return scan(self, leaves, leaf, feed, **options)

    monkeypatch.setattr(Step, "run", ran)
    monkeypatch.setattr(Step, "note_opened", noted)
    monkeypatch.setattr(SparkKernel, "scan", scanned)
    return found


@pytest.mark.proof
def test_a_table_that_was_updated_often_costs_what_one_does_that_was_not(engine: ab.Engine, opened: Opened) -> None:
    engine.sql("CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM p (k INT, price INT, since TIMESTAMP) EVENT TIME since KEY (k)")
    engine.sql("CREATE STREAM fixed AS SELECT s.k, v, price FROM s LOOKUP p ON s.k = p.k WITHOUT REVISION")
    chance = np.random.default_rng(1)
    engine.stream("p").append([(k, 0, ZERO) for k in range(100)])
    prices = dict.fromkeys(range(100), 0)
    costs: list[tuple[int, int]] = []
    for step in range(50):
        new = {int(k): 1 + step for k in chance.choice(100, 10, replace=False)}
        prices |= new
        engine.stream("p").replace([(k, price, ZERO) for k, price in new.items()])
        engine.stream("s").append([(int(k), step, datetime.fromtimestamp(step * 7200, UTC)) for k in range(2)])
        opened.segments.clear()
        engine.advance()
        costs.append((len(opened.segments), opened.rows()))
    # By the time of 100 updates, and of 500; over as many steps as lie between two turns of upkeep.
    early, late = (np.mean(costs[n - 8 : n], axis=0) for n in (10, 50))
    assert late[0] <= AT_MOST * early[0], "segments"
    assert late[1] <= AT_MOST * early[1], "rows"
    last = {row.k: row.price for row in engine.table("fixed").where("v = 49").collect()}
    assert last == {k: prices[k] for k in range(2)}
    table = {row.k: row.price for row in engine.table("p").collect()}
    assert table == prices


@pytest.mark.proof
def test_of_random_keys_a_step_opens_those_that_it_touches(engine: ab.Engine, opened: Opened) -> None:
    engine.sql("CREATE STREAM o (id STRING, n INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    engine.sql("CREATE STREAM q AS SELECT id, n FROM o WHERE n > 0")
    engine.sql("CREATE STREAM sums AS SELECT id, sum(n) AS total FROM o GROUP BY id")
    keys = _uuids(100_000)
    _append(engine, "o", keys, 1)
    engine.advance()
    expected = dict.fromkeys(keys, 1)
    for step in range(9):  # so that the reducer rewrites them
        some = keys[step * 10 : step * 10 + 10]
        opened.segments.clear()
        engine.stream("o").replace([(key, step + 2, ZERO) for key in some])
        engine.advance()
        expected |= dict.fromkeys(some, step + 2)
        assert 0 < opened.rows() <= SMALL_PART * 2 * len(keys), "of the live rows and of the sums"
    for name, column in (("q", "n"), ("sums", "total")):
        assert {row.id: row[column] for row in engine.table(name).collect()} == expected


@pytest.mark.proof
def test_a_join_without_a_band_opens_what_has_the_keys_of_new_rows(engine: ab.Engine, opened: Opened) -> None:
    engine.sql("CREATE STREAM l (id STRING, a INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM r (id STRING, b INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM pairs AS SELECT l.id, a, b FROM l JOIN r ON l.id = r.id")
    engine.sql("CREATE STREAM beside AS SELECT l.id, a, b FROM l LEFT JOIN r ON l.id = r.id AND b > 0")
    keys = _uuids(100_000)
    several = np.array_split(np.array(keys), states.LEAST_RUNS)
    for n, some in enumerate(several):
        _append(engine, "l", some.tolist(), 1, n * len(several[0]))
    engine.advance()
    engine.stream("r").append([(key, 1, ZERO) for key in keys[:10]])
    opened.segments.clear()
    engine.advance()
    assert 0 < opened.rows() <= SMALL_PART * 2 * len(keys), "by either query"
    assert len(opened.segments) <= SMALL_PART * 2 * (1 << MOST_BITS)
    engine.stream("l").append([{"id": keys[0], "a": 1, "ts": ZERO, "_change_type": "delete"}])
    engine.stream("r").append([(None, 5, ZERO), (keys[11], 2, ZERO), (keys[11], -2, ZERO)])
    opened.segments.clear()
    engine.advance()
    # With a deletion, all rows at its event time are looked at as well: equal ones count together.
    assert 0 < opened.rows() <= 2 * SMALL_PART * 2 * len(keys)
    found = {row.id: row.b for row in engine.table("pairs").where("b > 0").collect()}
    assert found == {**dict.fromkeys(keys[1:10], 1), keys[11]: 2}
    alone = engine.table("beside").where("b IS NULL").count()
    assert alone == len(keys) - 11
    assert engine.table("beside").count() == len(keys) - 1


def _uuids(many: int) -> list[str]:
    chance = np.random.default_rng(7)
    return [str(uuid.UUID(bytes=chance.bytes(16))) for _ in range(many)]


def _append(engine: ab.Engine, name: str, keys: Sequence[str], value: int, first: int = 0) -> None:
    """Rows a second apart."""
    stream = engine.stream(name)
    times = pa.array([ZERO + timedelta(seconds=first + n) for n in range(len(keys))], pa.timestamp("us", tz="UTC"))
    rows = [pa.array(keys), pa.array([value] * len(keys), pa.int32()), times]
    stream.append(pa.table(rows, names=list(stream.schema.names)))
