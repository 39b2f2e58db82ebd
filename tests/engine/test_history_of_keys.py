"""A history bound on a stream with a key: what lies beyond it is final, and revisions of it are ignored and counted."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest

import anabranch as ab
from tests.engine.test_retention import NOON, at, table

Message = tuple[int, int | None, datetime | None]  # key, value and event time; of a deletion only the key


def ignored(engine: ab.Engine, name: str) -> Counter[Any]:
    chosen = "get_json_object(row, '$.k') AS k", "get_json_object(row, '$.v') AS v", "_change_type", "_bucket"
    return Counter(
        (int(row.k), None if row.v is None else int(row.v), row._change_type)
        for row in engine.ignored(name).selectExpr(*chosen).collect()
    )


def create(engine: ab.Engine, history: str) -> ab.Stream:
    engine.sql(f"CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts KEY (k) HISTORY {history}")
    engine.sql("CREATE STREAM most AS SELECT max(v) AS m, count(*) AS c FROM s <SLICES '10 minutes'>")
    engine.sql("CREATE STREAM each AS SELECT k, v FROM s")
    return engine.stream("s")


@pytest.mark.parametrize("retain", [True, False])
def test_what_is_older_than_the_bound_is_not_revised(engine: ab.Engine, retain: bool) -> None:
    s = create(engine, "'1 hour'")
    s.append([(1, 5, at(12)), (2, 6, at(12, 1)), (3, 7, at(13, 30))])
    engine.advance()
    s.replace([(1, 8, at(12, 5))])
    engine.advance()
    if retain:
        s.append([(4, 1, at(14))])
        engine.advance()
        assert s.retain().rows > 0
    s.replace([(2, 9, at(13, 31)), (3, 4, at(12, 2)), (3, 5, at(13, 32)), (5, 2, at(12, 3))])
    s.delete([1, 3])
    engine.advance()
    both = Counter([(2, 9, "update_postimage"), (3, 4, "update_postimage"), (1, None, "delete")])
    assert ignored(engine, "each") == ignored(engine, "most") == both + Counter([(1, 8, "update_postimage")])
    rows = Counter([(1, 5), (2, 6), (5, 2)]) + Counter([(4, 1)] if retain else [])
    assert table(engine, "each") == rows, "a new key is no revision, however late; one within the bound counts"
    why = engine.ignored("each").first()
    assert why is not None
    assert why._reason == "rows more than 1 hour behind progress are final"


def test_of_rows_too(engine: ab.Engine) -> None:
    s = create(engine, "2 ROWS")
    s.append([(1, 5, at(12)), (2, 6, at(12, 1)), (3, 7, at(12, 30))])
    engine.advance()
    s.replace([(1, 8, at(12, 40)), (2, 9, at(12, 41))])
    engine.advance()
    assert ignored(engine, "each") == Counter([(1, 8, "update_postimage")])
    assert table(engine, "each") == Counter([(1, 5), (2, 9), (3, 7)])


class Oracle:
    """Message by message: which are ignored, and which rows are alive."""

    def __init__(self, bound: timedelta) -> None:
        self.bound = bound
        self.rows: dict[int, tuple[int, datetime]] = {}
        self.progress: datetime | None = None
        self.ignored: Counter[Any] = Counter()

    def bucket(self, messages: list[Message]) -> None:
        before = dict(self.rows)
        limit = None if self.progress is None else self.progress - self.bound
        for k, v, ts in messages:
            old = before.get(k)
            if limit is not None and old is not None and (old[1] < limit or (ts is not None and ts < limit)):
                self.ignored[k, v, "delete" if v is None else "update_postimage"] += 1
            elif v is None or ts is None:
                self.rows.pop(k, None)
            else:
                self.rows[k] = v, ts
        known = [ts for _, _, ts in messages if ts is not None]
        self.progress = max([*([self.progress] if self.progress else []), *known], default=None)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(3))
def test_as_an_oracle_says(engine: ab.Engine, seed: int) -> None:
    """Any messages, in buckets that are processed one by one or several in a step, with retention at any time."""
    chance = np.random.default_rng(seed)
    s, oracle, now = create(engine, "'1 hour'"), Oracle(timedelta(hours=1)), 0.0
    advancer = engine._queries.advancer
    for turn in range(10):
        now += float(chance.choice([5, 20, 50]))
        messages: list[Message] = []
        for _ in range(int(chance.integers(1, 6))):
            minute = now if chance.random() < 0.5 else now * float(chance.random())
            key = int(chance.integers(1, 9))
            gone = chance.random() < 0.2
            message = (key, None, None) if gone else (key, int(chance.integers(100)), NOON + timedelta(minutes=minute))
            messages.append(message)
            s.delete([key]) if gone else s.replace([message])
        if turn and chance.random() < 0.4:
            with advancer._leased() as lease:
                advancer.log.register.record_bucket(lease)
        else:
            engine.advance()
            s.retain()
        oracle.bucket(messages)
    engine.advance()
    assert ignored(engine, "each") == oracle.ignored
    assert sum(oracle.ignored.values()) > 3
    assert table(engine, "each") == Counter((k, v) for k, (v, _) in oracle.rows.items())
