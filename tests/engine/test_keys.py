"""Streams with keys: replacements and deletions reach every query (the paper's own cases are in golden)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import anabranch as ab

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def order(number: int, item: str, n: int, minute: float) -> dict[str, Any]:
    return {"id": number, "item": item, "n": n, "ts": ZERO + timedelta(minutes=minute)}


@pytest.fixture
def orders(engine: ab.Engine) -> ab.Stream:
    engine.sql("CREATE STREAM orders (id INT, item STRING, n INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    return engine.stream("orders")


def table(engine: ab.Engine, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in engine.table(name).collect())


def said(engine: ab.Engine, name: str, since: int = 0) -> list[tuple[Any, ...]]:
    rows = engine.changes(name).where(f"_bucket > {since}").collect()
    return [(row._change_type, *tuple(row)[: len(row) - 6]) for row in rows]


def test_what_a_map_does_not_show_is_not_said(engine: ab.Engine, orders: ab.Stream) -> None:
    engine.sql("CREATE STREAM items AS SELECT id, item FROM orders")
    orders.append([order(1, "a", 1, 1), order(2, "b", 1, 2)])
    engine.advance()
    orders.replace([order(1, "a", 9, 1), order(2, "c", 1, 2)])
    engine.advance()
    assert said(engine, "items", since=1) == [("update_preimage", 2, "b"), ("update_postimage", 2, "c")]


def test_rows_move_in_time_and_between_groups_and_go(engine: ab.Engine, orders: ab.Stream) -> None:
    engine.sql("""CREATE STREAM per AS SELECT item, sum(n) AS s, date_format(cq_close(*), 'mm') AS t
        FROM orders <SLICES '10 minutes'> GROUP BY item""")
    orders.append([order(1, "a", 1, 1), order(2, "a", 2, 2), order(3, "b", 4, 3), order(9, "z", 0, 45)])
    engine.advance()
    orders.replace([order(1, "a", 1, 21), order(2, "b", 2, 2)])
    orders.delete([3, 77])  # nobody knows 77: it is parked
    orders.append([order(9, "y", 0, 45)])  # a key that is there is replaced
    engine.advance()
    assert table(engine, "per") == [("a", 1, "30"), ("b", 2, "10")]
    assert [row[:3] for row in table(engine, "orders")] == [(1, "a", 1), (2, "b", 2), (9, "y", 0)]
    orders.append([order(77, "b", 8, 4)])  # later than its deletion: it lives
    engine.advance()
    assert table(engine, "per") == [("a", 1, "30"), ("b", 10, "10")]


def test_queries_over_the_same_key_share_their_live_rows_and_leave_nothing_behind(
    engine: ab.Engine, orders: ab.Stream
) -> None:
    engine.sql("CREATE STREAM a AS SELECT id FROM orders WHERE n > 0")
    engine.sql("CREATE STREAM b AS SELECT item, count(*) AS c FROM orders GROUP BY item")
    assert [s.name for s in engine.streams()] == ["a", "b", "orders"], "stages are nobody's to read"
    assert len(engine._log.register.queries()) == 3
    orders.append([order(1, "a", 1, 1)])
    engine.advance()
    engine.sql("CREATE STREAM late AS SELECT max(n) AS m, count(*) AS c FROM orders GROUP BY item HAVING count(*) > 0")
    engine.advance()
    assert [row[1:] for row in table(engine, "late")] == [(1,)]
    for name in ("a", "b", "late"):
        engine.sql(f"DROP STREAM {name}")
    assert (engine._log.register.queries(), engine._log.register.stores()) == ([], [])
    engine.sql("DROP STREAM orders")


def test_without_a_key_a_deletion_waits_for_a_row_that_equals_it(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (k INT, m MAP<STRING, INT>, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM l AS SELECT k, m FROM s")
    engine.sql("CREATE STREAM c AS SELECT count(*) AS c, max(k) AS m, sum(k) AS s FROM s")
    stream = engine.stream("s")

    def row(k: int, kind: str = "insert") -> dict[str, Any]:
        return {"k": k, "m": {"a": k, "b": 1}, "ts": ZERO, "_change_type": kind}

    told = []
    for rows in ([row(7, "delete"), row(5)], [row(7)], [row(7)], [row(7), row(7, "delete")], [row(7, "delete")]):
        stream.append(rows)
        engine.advance()
        told.append((sorted(r.k for r in engine.table("l").collect()), table(engine, "c")))
    assert told == [
        ([5], [(1, 5, 5)]),  # nobody is there to be deleted
        ([5], [(1, 5, 5)]),  # the row that was deleted before it came
        ([5, 7], [(2, 7, 12)]),
        ([5, 7], [(2, 7, 12)]),
        ([5], [(1, 5, 5)]),
    ]
    assert [row[:2] for row in said(engine, "l")] == [("insert", 5), ("insert", 7), ("delete", 7)]
