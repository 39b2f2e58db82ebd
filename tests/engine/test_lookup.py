"""Lookup on Spark, against the reference: rows and tables that change in any order."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import anabranch as ab
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.engine.live import Live
from anabranch.model.errors import AnabranchError
from anabranch.reference.looking import Bucket, looked_up
from anabranch.reference.rows import WeightedRow

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_table_that_changes_revises_what_was_said_or_does_not(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM p (k INT, price INT, since TIMESTAMP) EVENT TIME since KEY (k)")
    engine.sql("CREATE STREAM fixed AS SELECT s.k, v, price FROM s LEFT LOOKUP p ON s.k = p.k WITHOUT REVISION")
    engine.sql("CREATE STREAM live AS SELECT s.k, v, price FROM s LOOKUP p ON s.k = p.k")
    chance = np.random.default_rng(5)
    rows: list[tuple[int, int]] = []
    prices: dict[int, int] = {}
    story: list[Bucket] = []
    advancer = engine._queries.advancer
    for _ in range(6):
        came, changed = [], []
        for k in {int(k) for k in chance.integers(1, 4, 2)}:
            price = int(chance.integers(1, 100))
            changed += [_table(k, prices[k], -1)] if k in prices else []
            prices[k] = price
            changed.append(_table(k, price))
            engine.stream("p").replace([(k, price, ZERO)])
        for _ in range(2):
            new = (int(chance.integers(1, 5)), int(chance.integers(1, 3)))
            gone = rows.pop(0) if len(rows) > 3 else None
            rows.append(new)
            engine.stream("s").append([_row(*new), *([{**_row(*gone), "_change_type": "delete"}] if gone else [])])
            came += [_stream(*new), *([_stream(*gone, -1)] if gone else [])]
        story.append((came, changed))
        with advancer._leased() as lease:
            advancer.log.register.record_bucket(lease)
        if chance.random() < 0.5:
            engine.advance()
    engine.advance()
    box = next(b for b in Live(engine._log).queries["fixed"].asked.walk() if isinstance(b, Lookup))
    expected = Counter((r.values["s.k"], r.values["v"], r.values["price"]) for r in looked_up(box, story))
    assert Counter(tuple(row) for row in engine.table("fixed").collect()) == expected
    assert any(price is None for _, _, price in expected) or len(expected) > 2
    live = Counter((k, v, prices[k]) for k, v in rows if k in prices)
    assert Counter(tuple(row) for row in engine.table("live").collect()) == live


def _row(k: int, v: int) -> dict[str, object]:
    return {"k": k, "v": v, "ts": ZERO + timedelta(seconds=v), "_change_type": "insert"}


def _stream(k: int, v: int, weight: int = 1) -> WeightedRow:
    return WeightedRow({"k": k, "v": v, "ts": v}, v, weight)


def _table(k: int, price: int, weight: int = 1) -> WeightedRow:
    return WeightedRow({"k": k, "price": price, "since": 0}, 0, weight)


def test_of_equal_rows_the_oldest_goes_first_with_what_it_found(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM p (k INT, price INT, since TIMESTAMP) EVENT TIME since KEY (k)")
    engine.sql("CREATE STREAM fixed AS SELECT price FROM s LEFT LOOKUP p ON s.k = p.k WITHOUT REVISION")
    for price in (None, 10):
        if price is not None:
            engine.stream("p").replace([(1, price, ZERO)])
        engine.stream("s").append([_row(1, 1)])
        engine.advance()
    left = [[None, 10], [10], []]
    for expected in left:
        assert sorted((row.price for row in engine.table("fixed").collect()), key=str) == sorted(expected, key=str)
        engine.stream("s").append([{**_row(1, 1), "_change_type": "delete"}])
        engine.advance()


def test_a_table_without_a_key_is_refused(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (k INT, ts TIMESTAMP) EVENT TIME ts; CREATE STREAM t AS SELECT k FROM s")
    with pytest.raises(AnabranchError) as caught:
        engine.sql("CREATE STREAM q AS SELECT s.k FROM s LOOKUP t ON s.k = t.k WITHOUT REVISION")
    assert caught.value.id == "NOT_SUPPORTED"


def test_rows_a_microsecond_apart_are_two_and_columns_are_called_anything(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (k INT, `it's` INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM p (k INT, `back\\slash` INT, since TIMESTAMP) EVENT TIME since KEY (k)")
    engine.sql("CREATE STREAM q AS SELECT s.*, `back\\slash` FROM s LEFT LOOKUP p ON s.k = p.k WITHOUT REVISION")
    first, second = ((1, 1, ZERO + timedelta(microseconds=n)) for n in (1, 2))
    engine.stream("s").append([first, second])
    engine.advance()
    gone = dict(zip(("k", "it's", "ts"), first, strict=True))
    engine.stream("s").append([{**gone, "_change_type": "delete"}])
    engine.advance()
    assert engine.table("q").count() == 1
