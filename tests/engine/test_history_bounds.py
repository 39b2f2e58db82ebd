"""History bounds on queries: what would need rows beyond them is ignored, shown, and left out of the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import anabranch as ab
from anabranch.diagram.boxes.partials import Partials
from anabranch.engine.bounds import bound_of
from anabranch.engine.live import Live
from tests.engine.test_limits import at, facts, replay_is_the_table, rows

MOST = "SELECT k, max(v) AS m, count(*) AS c, cq_close(*) AS t FROM s <SLICES '1 minute'> GROUP BY k"


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def ignored(engine: ab.Engine, name: str) -> list[tuple[str, dict[str, Any]]]:
    found = engine.ignored(name).orderBy("_bucket", "_event_time").collect()
    return [(row._change_type, json.loads(row.row)) for row in found]


def delete(*gone: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**row, "_change_type": "delete"} for row in gone]


def insert(*new: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**row, "_change_type": "insert"} for row in new]


def play(engine: ab.Engine, create: str, *, retain: bool = False) -> None:
    """Deletions of a window's greatest value, in time and too late, and insertions that are late."""
    history = "" if "HISTORY" in create else "HISTORY '2 minutes'"
    engine.sql(f"CREATE STREAM s (k STRING, v INT, ts TIMESTAMP) EVENT TIME ts {history}")
    engine.sql(create)
    if not retain:
        engine.sql(create.replace("STREAM q", "STREAM sums").replace("max(v)", "sum(v)"))
    s = engine.stream("s")
    s.append([*rows(0.5, v=9), *rows(0.6, v=5), *rows(1.5)])
    engine.advance()
    s.append(delete(*rows(0.5, v=9)))
    engine.advance()
    s.append(rows(5.5))
    engine.advance()
    if retain:
        assert s.retain().rows > 0, "the rows of the first minutes are gone"
    s.append([*insert(*rows(0.7, v=7)), *delete(*rows(0.6, v=5)), *insert(*rows(5.6, v=3))])
    engine.advance()
    s.append([*delete(*rows(0.7, v=7)), *delete(*rows(5.6, v=3)), *insert(*rows(6.5))])
    engine.advance()


CASES = [
    pytest.param(f"CREATE STREAM q HISTORY '2 minutes' AS {MOST}", False, marks=pytest.mark.proof),
    (f"CREATE STREAM q AS {MOST}", True),
]


@pytest.mark.parametrize(("create", "retain"), CASES, ids=["of the query", "of the stream, and its files are gone"])
def test_deletions_out_of_reach_are_ignored_and_the_rest_is_right(engine: ab.Engine, create: str, retain: bool) -> None:
    play(engine, create, retain=retain)
    found = [(change, row["v"]) for change, row in ignored(engine, "q")]
    assert found == [("delete", 5), ("delete", 7)], "the first deletion was within the bound"
    shown = sorted((row.t.minute, row.m, row.c) for row in engine.table("q").collect())
    # A batch over all rows and deletions but those two; the late insertion counts.
    assert shown == [(1, 7, 2), (2, 1, 1), (6, 1, 1)]
    replay_is_the_table(engine, "q")
    assert facts(engine, "q")["ignored"] == str(len(found))
    if not retain:  # what adds and subtracts needs no row again
        assert ignored(engine, "sums") == []
        assert sorted((row.t.minute, row.m) for row in engine.table("sums").collect()) == [(2, 1), (6, 1)]
        assert facts(engine, "sums")["history"] == "2 minutes"
        assert "ignored" not in facts(engine, "sums")
    why = engine.ignored("q").first()
    assert why is not None
    assert "2 minutes behind progress" in why._reason


@pytest.mark.usefixtures("no_upkeep")
@pytest.mark.parametrize("retain", [pytest.param(False, marks=pytest.mark.proof), True], ids=["held", "gone"])
def test_a_deletion_of_a_row_that_a_stream_need_not_hold_is_ignored_by_all(engine: ab.Engine, retain: bool) -> None:
    engine.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP) EVENT TIME ts HISTORY '2 minutes'")
    engine.sql("CREATE STREAM q AS SELECT count(*) AS c FROM s")
    engine.sql("CREATE STREAM each AS SELECT v FROM s")
    s = engine.stream("s")
    s.append(rows(0.5, v=9))
    s.append(rows(5.5))
    engine.advance()
    if retain:
        assert s.retain().rows == 1
    s.append([*delete(*rows(0.5, v=9)), *insert(*rows(0.6, v=8)), *delete(*rows(5.5))])
    engine.advance()
    assert ignored(engine, "q") == ignored(engine, "each")
    assert [(change, row["v"]) for change, row in ignored(engine, "each")] == [("delete", 9)]
    assert [row.c for row in engine.table("q").collect()] == [2], (
        "the row that is not known to be gone, and the late one"
    )
    assert sorted(row.v for row in engine.table("each").collect()) == [8, 9]


def test_a_bound_upstream_limits_what_is_needed_downstream(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (v INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM one HISTORY '5 hours' AS SELECT max(v) AS v FROM s <SLICES '2 hours'>")
    engine.sql("CREATE STREAM two HISTORY '10 hours' AS SELECT max(v) AS v FROM one <SLICES '1 hour'>")
    live = Live(engine._log)
    for name, hours in (("one", 5), ("two", 4)):
        (box,) = (b for b in live.queries[name].plan.walk() if isinstance(b, Partials))
        assert bound_of(live, box, live.queries[name].terms) == hours * 3_600_000_000


Row = tuple[int, float]


def said_by(left: list[Row], right: list[Row], *, outer: bool, progress: float) -> Iterator[tuple[Row, Row | None]]:
    """What a join within one minute says, over rows that are known."""
    for l in left:  # noqa: E741
        partners = [r for r in right if r[0] == l[0] and abs(r[1] - l[1]) <= 1]
        yield from ((l, r) for r in partners)
        if outer and not partners and l[1] + 1 < progress:
            yield l, None


def minutes(row: Any, name: str) -> Row | None:
    time = row[name]
    if time is None:
        return None
    moment = time.replace(tzinfo=UTC) if isinstance(time, datetime) else instant(time)
    return row["id"], round((moment - at(0)) / timedelta(minutes=1), 3)


@pytest.mark.parametrize("outer", [False, pytest.param(True, marks=pytest.mark.proof)], ids=["inner", "left"])
def test_rows_of_a_join_out_of_reach_are_ignored_then_and_later(engine: ab.Engine, outer: bool) -> None:
    for name in "ab":
        engine.sql(f"CREATE STREAM {name} (id INT, t{name} TIMESTAMP) EVENT TIME t{name}")
    kind = "LEFT JOIN" if outer else "JOIN"
    pairs = f"SELECT a.id, ta, tb FROM a {kind} b ON a.id = b.id WITHIN '1 minute'"
    engine.sql(f"CREATE STREAM q HISTORY '3 minutes' AS {pairs}")
    if not outer:
        engine.sql(f"CREATE STREAM n HISTORY '3 minutes' AS SELECT count(*) AS c FROM ({pairs}) <SLICES '1 minute'>")
    given: dict[str, list[Row]] = {"a": [], "b": []}

    def append(name: str, *moments: float) -> None:
        given[name] += [(1, moment) for moment in moments]
        engine.stream(name).append([{"id": 1, f"t{name}": at(moment)} for moment in moments])

    append("a", 10)
    append("b", 10)
    engine.advance()
    append("a", 7.5, 9.2)  # the first is out of reach: what it pairs with may be more than 3 minutes old
    append("b", 8.2)
    engine.advance()
    append("b", 8.3, 9.3)  # and it is no partner later
    append("a", 8.5)
    engine.advance()
    append("a", 12)
    append("b", 12)
    engine.advance()
    for change, row in ignored(engine, "q"):
        assert change == "insert"
        side = "a" if "ta" in row else "b"
        gone = minutes(row, f"t{side}")
        assert gone is not None
        given[side].remove(gone)
    assert (1, 7.5) not in given["a"]
    assert (1, 9.2) in given["a"]
    expected = sorted(said_by(given["a"], given["b"], outer=outer, progress=12), key=str)
    shown = [(minutes(row, "ta"), minutes(row, "tb")) for row in engine.table("q").collect()]
    assert sorted(shown, key=str) == expected
    assert outer or ignored(engine, "n") == ignored(engine, "q"), "also by a stage behind a query"
    replay_is_the_table(engine, "q")
