"""Windows of rows on Spark: numbered from where something changed, in any order and any cut."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import anabranch as ab
from anabranch.engine.counting import Counting

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: float) -> datetime:
    return ZERO + timedelta(seconds=second)


def table(engine: ab.Engine, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in engine.table(name).collect()), key=repr)


def test_late_rows_and_deletions_move_the_windows_behind_them(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM c AS SELECT k, sum(v) AS v FROM s <VISIBLE 3 ROWS ADVANCE 2 ROWS> GROUP BY k")
    stream = engine.stream("s")
    stream.append([(1, v, at(v)) for v in range(5)] + [(2, 10 + v, at(v)) for v in range(2)])
    engine.advance()
    assert table(engine, "c") == [(1, 3), (1, 9)]
    stream.append([(1, 100, at(1.5))])
    engine.advance()
    assert table(engine, "c") == [(1, 101), (1, 105)]
    stream.append([{"k": 1, "v": 3, "ts": at(3), "_change_type": "delete"}])
    engine.advance()
    assert table(engine, "c") == [(1, 101), (1, 106)]
    stream.append([(2, 50, at(9))])
    engine.advance()
    assert table(engine, "c") == [(1, 101), (1, 106), (2, 71)]
    kinds = [(c._bucket, c._change_type) for c in engine.changes("c").where("_bucket > 2").collect()]
    assert kinds == [(3, "update_preimage"), (3, "update_postimage"), (4, "insert")], "what stayed is not said again"


def test_windows_of_rows_over_keys_and_below_other_boxes(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM o (id INT, k INT, v INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    engine.sql("""CREATE STREAM pairs AS SELECT k, max(m) AS most FROM (
        SELECT k, sum(v) AS m FROM o <SLICES 2 ROWS> GROUP BY k) <SLICES '10 seconds'> GROUP BY k""")
    orders = engine.stream("o")
    orders.append([(n, 1, n, at(n)) for n in range(6)] + [(9, 2, 0, at(11))])
    engine.advance()
    assert table(engine, "pairs") == [(1, 9)]
    orders.replace([(5, 1, 50, at(5))])
    orders.delete([0])
    engine.advance()
    assert table(engine, "pairs") == [(1, 7)], "the last one has no pair any more"


def test_what_lies_before_the_change_is_not_read_again(engine: ab.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []
    anchored = Counting._anchored

    def spy(self: Counting, *arguments: Any) -> Any:
        found = anchored(self, *arguments)
        starts.append(found[1])
        return found

    monkeypatch.setattr(Counting, "_anchored", spy)
    engine.sql("CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM c AS SELECT k, count(*) AS n, max(v) AS v FROM s <SLICES 5 ROWS> GROUP BY k")
    stream = engine.stream("s")
    for hour in range(4):
        stream.append([(k, hour, at(3600 * hour + second)) for second in range(10) for k in (1, 2)])
        engine.advance()
    assert [(start - starts[0]) > 0 for start in starts] == [False, True, True, True]
    assert starts[-1] >= int(at(2 * 3600).timestamp()) * 1_000_000, "only the last windows before the new rows"
    assert len(table(engine, "c")) == 16
