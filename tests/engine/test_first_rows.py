"""The first rows of groups on Spark: top-n and de-duplication, corrected as rows come and go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anabranch as ab

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def order(number: int, item: str, n: int | None, minute: float) -> dict[str, Any]:
    return {"id": number, "item": item, "n": n, "ts": ZERO + timedelta(minutes=minute)}


def table(engine: ab.Engine, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in engine.table(name).collect()), key=repr)


def test_top_n_is_corrected_by_late_rows_replacements_and_deletions(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM orders (id INT, item STRING, n INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    engine.sql("""CREATE STREAM top AS SELECT item, id, n FROM orders
        QUALIFY row_number() OVER (PARTITION BY item ORDER BY n DESC) <= 2""")
    orders = engine.stream("orders")
    orders.append([order(1, "a", 5, 1), order(2, "a", 7, 2), order(3, "a", 6, 3), order(4, "b", None, 4)])
    engine.advance()
    assert table(engine, "top") == [("a", 2, 7), ("a", 3, 6), ("b", 4, None)]
    orders.replace([order(1, "a", 9, 1)])
    engine.advance()
    assert table(engine, "top") == [("a", 1, 9), ("a", 2, 7), ("b", 4, None)]
    said = [(r._change_type, r.id) for r in engine.changes("top").where("_bucket = 2").collect()]
    assert said == [("update_preimage", 3), ("update_postimage", 1)], "the one that stayed is not said again"
    orders.delete([1, 2, 4])
    engine.advance()
    assert table(engine, "top") == [("a", 3, 6)]


def test_ranks_are_corrected_too(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM orders (id INT, item STRING, n INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    engine.sql("""CREATE STREAM top AS SELECT item, id, rn FROM (
        SELECT *, row_number() OVER (PARTITION BY item ORDER BY n DESC) AS rn FROM orders) WHERE rn <= 2""")
    orders = engine.stream("orders")
    orders.append([order(1, "a", 5, 1), order(2, "a", 7, 2), order(3, "a", 6, 3)])
    engine.advance()
    assert table(engine, "top") == [("a", 2, 1), ("a", 3, 2)]
    orders.replace([order(3, "a", 9, 3)])
    engine.advance()
    assert table(engine, "top") == [("a", 2, 2), ("a", 3, 1)]


def test_the_busiest_of_each_window(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (k STRING, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("""CREATE STREAM busiest AS
        SELECT k, count(*) AS c, date_format(cq_close(*), 'mm') AS t FROM s <SLICES '1 minute'> GROUP BY k
        QUALIFY row_number() OVER (PARTITION BY t ORDER BY c DESC, k) = 1""")
    stream = engine.stream("s")
    for minutes in ([("a", 0.1), ("b", 0.2), ("b", 0.3), ("a", 1.1), ("z", 2.5)], [("a", 0.4), ("a", 0.5)]):
        stream.append([{"k": k, "ts": ZERO + timedelta(minutes=m)} for k, m in minutes])
        engine.advance()
    assert table(engine, "busiest") == [("a", 1, "02"), ("a", 3, "01")]
    kinds = [r._change_type for r in engine.changes("busiest").where("_bucket = 2").collect()]
    assert kinds == ["update_preimage", "update_postimage"]


def test_of_equal_keys_the_first_is_kept(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (k INT, v STRING, m MAP<STRING, INT>, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("""CREATE STREAM once AS SELECT k, v, m['x'] AS x FROM s
        QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts) = 1""")
    stream = engine.stream("s")
    for rows in ([(1, "b", 2.0), (1, "c", 3.0), (2, "z", 9.0)], [(1, "a", 1.0), (2, "y", 9.0)]):
        stream.append([{"k": k, "v": v, "m": {"x": k}, "ts": ZERO + timedelta(minutes=m)} for k, v, m in rows])
        engine.advance()
    assert table(engine, "once") == [(1, "a", 1), (2, "y", 2)]
