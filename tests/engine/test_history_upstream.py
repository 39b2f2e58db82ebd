"""History that is shared upstream: the same answers, computed again instead of kept (BOREALIS 3.3)."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from pyspark.errors import PySparkException

import anabranch as ab
from anabranch.engine.live import Live
from anabranch.engine.pairs import Pairing
from anabranch.engine.saying import Saying
from anabranch.log.reduction import plan_reduction

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
COUNTS = "CREATE STREAM counts AS SELECT k, count(*) AS c, max(v) AS m FROM s <SLICES '1 minute'> GROUP BY k"
QUERIES = {
    "join": "SELECT s.k, s.v, n.c FROM s JOIN counts AS n ON s.k = n.k WITHIN '2 minutes'",
    "outer": "SELECT s.k, s.v, n.m FROM s LEFT JOIN counts AS n ON s.k = n.k AND n.c > 1 WITHIN '2 minutes'",
    "rows": "SELECT k, sum(c) AS c, min(m) AS m FROM counts <VISIBLE 3 ROWS ADVANCE 1 ROWS> GROUP BY k",
    "looked_up": "SELECT s.v, p.v AS price FROM s LEFT LOOKUP p ON s.k = p.k WITHOUT REVISION",
}


@pytest.fixture
def fed(engine: ab.Engine) -> ab.Engine:
    engine.sql("CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM p (k INT, v INT, ts TIMESTAMP) EVENT TIME ts KEY (k)")
    engine.sql(COUNTS)
    return engine


def step(engine: ab.Engine, number: int, chance: np.random.Generator) -> None:
    """Rows of a minute, some of them late, deletions and a price."""
    minutes = [number + chance.random() for _ in range(6)] + [number * chance.random() for _ in range(3)]
    rows: list[dict[str, Any]] = [
        {"k": int(chance.integers(3)), "v": int(chance.integers(5)), "ts": ZERO + timedelta(minutes=minute)}
        for minute in minutes
    ]
    gone = [{**row, "_change_type": "delete"} for row in rows if chance.random() < 0.2]
    engine.stream("s").append(rows)
    engine.stream("p").replace([(int(chance.integers(3)), int(chance.integers(9)), ZERO)])
    engine.advance()
    if gone:
        engine.stream("s").append(gone)
        engine.advance()


def said(engine: ab.Engine, name: str) -> Counter[tuple[Any, ...]]:
    changes = engine.changes(name).drop("_position", "_stime", "_ordinal")
    return Counter(tuple(row) for row in changes.collect())


def held(engine: ab.Engine, *, upstream: bool) -> dict[str, int]:
    """The rows in the logs behind queries."""
    log = engine._log
    hidden = [query for query in Live(log).queries.values() if query.hidden and query.terms.upstream == upstream]
    states = [log.stream_by_id(query.stored.stream_id) for query in hidden]
    return {state.name: state.rows - state.trimmed for state in states}


def both_say_the_same(fed: ab.Engine, name: str, steps: int, later: int) -> None:
    chance = np.random.default_rng(list(name.encode()))
    fed.sql(f"CREATE STREAM kept AS {QUERIES[name]}; CREATE STREAM again HISTORY UPSTREAM AS {QUERIES[name]}")
    for number in range(steps):
        step(fed, number, chance)
    fed.sql(f"CREATE STREAM kept_later AS {QUERIES[name]}; CREATE STREAM later HISTORY UPSTREAM AS {QUERIES[name]}")
    for number in range(steps, steps + later):
        step(fed, number, chance)
    assert said(fed, "again") == said(fed, "kept")
    assert said(fed, "later") == said(fed, "kept_later")
    assert len(said(fed, "again")) > 10
    assert sum(held(fed, upstream=True).values()) < sum(held(fed, upstream=False).values()) / 2
    assert "upstream" in {row.type for row in fed.sql("DESCRIBE again").collect()}  # type: ignore[union-attr]
    drawn = fed.sql("EXPLAIN again")
    assert drawn is not None
    assert "log: rows are computed again" in "\n".join(row.plan for row in drawn.collect())


def test_what_is_computed_again_says_the_same_as_what_is_kept(fed: ab.Engine) -> None:
    both_say_the_same(fed, "join", 2, 1)


@pytest.mark.proof
@pytest.mark.parametrize("name", ["outer", "rows", "looked_up"])  # others are in the law of revisions
def test_so_do_other_boxes(fed: ab.Engine, name: str) -> None:
    both_say_the_same(fed, name, 3, 2)


def test_running_results_are_computed_again_too(fed: ab.Engine) -> None:
    counts = "(SELECT k, count(*) AS c FROM s GROUP BY k)"
    fed.sql(f"CREATE STREAM again HISTORY UPSTREAM AS SELECT p.v, n.c FROM p JOIN {counts} AS n ON p.k = n.k")
    for price in (5, 6, 7):
        fed.stream("s").append([(1, 1, ZERO)])
        fed.stream("p").replace([(1, price, ZERO)])
        fed.advance()
    assert [tuple(row) for row in fed.table("again").collect()] == [(7, 3)]


@pytest.mark.parametrize("name", ["join", pytest.param("rows", marks=pytest.mark.proof)])
def test_a_bound_goes_with_it(fed: ab.Engine, name: str) -> None:
    """Rows whose deletion was ignored are not among what is computed again; they count all the same."""
    chance = np.random.default_rng(5)
    fed.sql(f"CREATE STREAM kept HISTORY '3 minutes' AS {QUERIES[name]}")
    fed.sql(f"CREATE STREAM again HISTORY '3 minutes' UPSTREAM AS {QUERIES[name]}")
    for number in (2, 4, 5, 6, 7):
        step(fed, number, chance)
    ignored = [Counter((r.row, r._change_type, r._bucket) for r in fed.ignored(n).collect()) for n in ("kept", "again")]
    assert ignored[0] == ignored[1]
    assert {change for _, change, _ in ignored[0]} == {"insert", "delete"}
    assert said(fed, "again") == said(fed, "kept")
    assert len(said(fed, "again")) > 10
    facts = {row.column: row.type for row in fed.sql("DESCRIBE again").collect()}  # type: ignore[union-attr]
    assert facts["# history"] == "3 minutes upstream"


@pytest.mark.proof
@pytest.mark.parametrize("good", [0, 3])
def test_a_reader_that_waits_finds_the_answers_of_its_own_bucket(
    fed: ab.Engine, good: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has halted, also in its first step, while another goes on; it catches up bucket by bucket."""
    monkeypatch.setattr(plan_reduction, "__defaults__", (2,))
    chance = np.random.default_rng(1)
    names = ("kept", "again", "other")
    text = [f"CREATE STREAM {n} {'' if n == 'kept' else 'HISTORY UPSTREAM'} AS {QUERIES['join']}" for n in names]
    say = Pairing.say

    def fails(self: Pairing) -> Saying:
        if self.query.name == "again":
            raise PySparkException("this passes")
        return say(self)

    fed.sql(";".join(text))
    for number in range(good):
        step(fed, number, chance)
    with monkeypatch.context() as patched:
        patched.setattr(Pairing, "say", fails)
        for number in range(good, good + 3):
            step(fed, number, chance)
        assert fed.halted()
    fed.resume("again")
    fed._queries.advance(at_once=1)
    assert said(fed, "again") == said(fed, "other") == said(fed, "kept")
