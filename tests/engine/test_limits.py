"""What a query promises and what limits it: its kind of recovery, revisions that are not said, bounds on history."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.log.reduction import plan_reduction
from anabranch.log.register import Register
from anabranch.model.errors import AnabranchError
from tests.laws.play import record

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def at(minute: float) -> datetime:
    return ZERO + timedelta(minutes=minute)


def rows(*minutes: float, k: str = "a", v: int = 1) -> list[dict[str, Any]]:
    return [{"k": k, "v": v, "ts": at(minute)} for minute in minutes]


def facts(engine: ab.Engine, name: str) -> dict[str, str]:
    """What DESCRIBE says beside the columns."""
    described = engine.sql(f"DESCRIBE {name}")
    assert described is not None
    return {row.column[2:]: row.type for row in described.collect() if row.column.startswith("# ")}


def lines(engine: ab.Engine, statement: str) -> list[str]:
    drawn = engine.sql(statement)
    assert drawn is not None
    return [row.plan for row in drawn.collect()]


@pytest.fixture
def s(engine: ab.Engine) -> ab.Stream:
    engine.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP) EVENT TIME ts")
    return engine.stream("s")


def test_a_query_says_how_it_recovers(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql("CREATE STREAM drawn AS SELECT k, rand() AS r, ts FROM s WHERE v > 0")
    engine.sql("CREATE STREAM one AS SELECT k, r FROM drawn QUALIFY row_number() OVER (PARTITION BY k ORDER BY r) = 1")
    assert facts(engine, "drawn")["recovery"] == "arbitrary, because of rand() in Map k, rand() AS r, ts"
    assert facts(engine, "one")["recovery"].startswith("arbitrary, because of rand() in Map"), "as what it reads"
    counts = "CREATE STREAM c AS SELECT k, count(*) AS c FROM s <SLICES '1 minute'> GROUP BY k"
    assert lines(engine, f"EXPLAIN {counts}")[-1].startswith("Recovery: convergent-capable, because of Consolidate")
    assert lines(engine, "EXPLAIN CREATE STREAM f AS SELECT k FROM s")[-1] == "Recovery: repeatable"


COUNTS = "CREATE STREAM counts AS SELECT k, count(*) AS c, cq_close(*) AS t FROM s <SLICES '1 minute'> GROUP BY k"


def said(engine: ab.Engine, name: str = "counts") -> list[tuple[Any, ...]]:
    return [(row._bucket, row._change_type, row.k, row.c) for row in engine.changes(name).collect()]


def replay_is_the_table(engine: ab.Engine, name: str) -> None:
    """Law 3: every change, replayed in order, gives the table."""
    left: Counter[tuple[Any, ...]] = Counter()
    columns = engine.table(name).columns
    for row in engine.changes(name).collect():
        key = tuple(row[c] for c in columns)
        left[key] += -1 if row._change_type in ("delete", "update_preimage") else 1
        assert left[key] >= 0, "nothing is taken back that was not said"
    assert +left == Counter(tuple(row) for row in engine.table(name).collect())


def test_an_output_that_ignores_revisions_says_each_window_once(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(f"{COUNTS} ON REVISION IGNORE")
    engine.sql("CREATE STREAM total AS SELECT sum(c) AS c FROM counts")
    s.append(rows(0.5, 1.5))
    engine.advance()
    s.append([*rows(0.1, 0.2), *rows(0.3, k="b"), *rows(1.7)])  # late, and a group that is new in a closed window
    engine.advance()
    s.append(rows(2.5))
    engine.advance()
    assert said(engine) == [(1, "insert", "a", 1), (3, "insert", "a", 2)]
    replay_is_the_table(engine, "counts")
    assert engine.advance().buckets == 0, "what is ignored does not wait"
    shown = engine.table("counts", include_open=True).collect()
    assert sorted((row.c, row._open) for row in shown) == [(1, False), (1, True), (2, False)]
    assert [row.c for row in engine.table("total").collect()] == [3], "a reader hears what was said"
    assert facts(engine, "counts")["revisions"].startswith("not said; the table is what was said")


ONCE = [
    ("SELECT id, v FROM o", [(1, 5), (2, 6), (3, 1)]),
    ("SELECT id, v FROM o QUALIFY row_number() OVER (ORDER BY v) = 1", [(1, 5)]),
    pytest.param(
        "SELECT a.id, b.v FROM o AS a JOIN o AS b ON a.id = b.id",
        [(1, 5), (2, 6), (3, 1)],
        marks=pytest.mark.proof,
    ),
]


@pytest.mark.parametrize(("select", "expected"), ONCE, ids=["rows", "first", "pairs"])
def test_without_windows_what_is_new_is_said(engine: ab.Engine, select: str, expected: list[tuple[int, int]]) -> None:
    engine.sql("CREATE STREAM o (id INT, v INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    engine.sql(f"CREATE STREAM q AS {select} ON REVISION IGNORE")
    o = engine.stream("o")
    o.append([{"id": 1, "v": 5, "ts": at(0)}, {"id": 2, "v": 6, "ts": at(0)}])
    engine.advance()
    o.replace([{"id": 1, "v": 4, "ts": at(0)}])
    o.delete([{"id": 2}])
    o.append([{"id": 3, "v": 1, "ts": at(1)}])
    engine.advance()
    assert {row._change_type for row in engine.changes("q").collect()} == {"insert"}
    assert sorted(tuple(row) for row in engine.table("q").collect()) == expected
    replay_is_the_table(engine, "q")


IMPORTANT = f"{COUNTS} REVISE WHEN abs(new.c - old.c) > 2"


def drifting(engine: ab.Engine, advance: Any) -> None:
    """A window that grows by one row at a time after it was said, and a group that comes and goes."""
    engine.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql(IMPORTANT)
    s = engine.stream("s")
    s.append(rows(0.5, 1.5))
    advance(engine)
    for second in range(4):
        s.append([*rows(0.1 + second / 100), *(rows(0.3, k="b") if second == 1 else [])])
        advance(engine)
    s.append([{**row, "_change_type": "delete"} for row in rows(0.3, k="b")])
    advance(engine)


def test_revisions_that_matter_little_are_dropped_and_do_not_add_up_unnoticed(
    engine: ab.Engine, tmp_path: Path
) -> None:
    drifting(engine, ab.Engine.advance)
    assert said(engine) == [
        (1, "insert", "a", 1),
        (3, "insert", "b", 1),
        (4, "update_preimage", "a", 1),
        (4, "update_postimage", "a", 4),
        (6, "delete", "b", 1),
    ], "what is compared is what was said"
    assert engine.stream("counts").dropped_revisions == 3
    assert facts(engine, "counts")["dropped revisions"] == "3"
    assert facts(engine, "counts")["revisions"].startswith("said when abs(new.c - old.c) > 2;")
    replay_is_the_table(engine, "counts")
    with ab.connect(tmp_path / "other") as other:
        drifting(other, record)
        other.advance()
        assert said(other) == said(engine), "however buckets are grouped"
        assert other.stream("counts").dropped_revisions == 3


def test_conditions_on_revisions_are_checked_when_they_are_made(engine: ab.Engine, s: ab.Stream) -> None:
    for condition, needle in (
        ("new.x > old.c", "`x`"),
        ("new.c - old.c", "BIGINT"),
        ("rand() > new.c", "each time"),
        ("new.c > old.c AND c > 3", "`c`"),
    ):
        with pytest.raises(AnabranchError) as caught:
            engine.sql(f"{COUNTS} REVISE WHEN {condition}")
        assert caught.value.id == "BAD_EXPRESSION"
        assert needle.lower() in caught.value.got.lower()
        assert condition in caught.value.place
    with pytest.raises(AnabranchError, match="NOT_SUPPORTED"):
        engine.sql("CREATE STREAM q AS SELECT k FROM s REVISE WHEN new.k > old.k")


def test_revisions_wait_until_nothing_else_does_and_the_decision_is_replayed(
    engine: ab.Engine, s: ab.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.sql(f"{COUNTS} REVISE WHEN IDLE")
    s.append(rows(0.5, 1.5))
    engine.advance(release=False)
    s.append(rows(0.1, 2.5))
    engine.advance(release=False)
    assert said(engine)[1:] == [(2, "insert", "a", 1)], "the revision waits, the window that closes does not"

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    s.append(rows(0.2))
    with monkeypatch.context() as patched:
        patched.setattr(Register, "commit_step", dies)
        with pytest.raises(KeyboardInterrupt):
            engine.advance(release=False)
    engine.advance(release=False)
    assert len(said(engine)) == 2, "the bucket was recorded as one that does not release"
    with monkeypatch.context() as patched:
        patched.setattr(Register, "commit_step", dies)
        with pytest.raises(KeyboardInterrupt):
            engine.advance()
    engine.advance(release=False)
    assert said(engine)[2:] == [(4, "update_preimage", "a", 1), (4, "update_postimage", "a", 3)]
    assert facts(engine, "counts")["revise every"] == "time that nothing else waits"
    replay_is_the_table(engine, "counts")


def test_revisions_are_left_out_until_a_table_is_to_be_kept_right(
    engine: ab.Engine, s: ab.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_reduction, "__defaults__", (2,))
    engine.sql(f"{COUNTS} REVISE WHEN KEPT")
    s.append(rows(0.5, 1.5) + rows(0.5, k="b"))
    engine.advance()
    s.append(rows(0.1, 2.5))
    engine.advance()
    (gone,) = rows(0.5, k="b")
    s.append(rows(0.2))
    s.append([{**gone, "_change_type": "delete"}])
    assert engine.advance().buckets == 1, "what is left out is nothing to do"
    assert said(engine)[2:] == [(2, "insert", "a", 1)]
    assert facts(engine, "counts")["revise every"] == "time that a table is to be kept right"
    engine.sql("CREATE STREAM most AS SELECT k, c FROM counts WHERE c > 1 ARCHIVE INTO kept ON ERROR NULL")
    engine.advance()
    updated = [(4, "update_preimage", "a", 1), (4, "update_postimage", "a", 3)]
    assert sorted(said(engine)[3:]) == sorted([*updated, (4, "delete", "b", 1)])
    s.append(rows(0.3))
    engine.advance()
    assert said(engine)[6:] == [(5, "update_preimage", "a", 3), (5, "update_postimage", "a", 4)]
    assert [tuple(row) for row in engine.table("kept").collect()] == [("a", 4)]
    replay_is_the_table(engine, "counts")
    engine.sql("DROP STREAM most")
    s.append(rows(0.4))
    engine.advance()
    assert len(said(engine)) == 8, "and again, once there is none"


def test_a_sink_is_a_table_to_be_kept_right(engine: ab.Engine, s: ab.Stream, tmp_path: Path) -> None:
    engine.sql(f"{COUNTS} REVISE WHEN KEPT")
    for at in (0.5, 1.5, 0.1):
        s.append(rows(at))
        engine.advance()
    assert len(said(engine)) == 1
    engine.sql(f"CREATE SINK kept FROM counts TO '{tmp_path / 'kept'}'")
    engine.advance()
    assert said(engine)[1:] == [(4, "update_preimage", "a", 1), (4, "update_postimage", "a", 2)]


def test_windows_of_many_rows_are_said_when_they_close_though_revisions_wait(engine: ab.Engine, s: ab.Stream) -> None:
    engine.sql(
        "CREATE STREAM moves AS SELECT v FROM s <SLICES '1 minute'> GROUP BY k "
        "APPLY 'tests.unit.boxes.test_apply:moves' RETURNS (v INT, move DOUBLE) REVISE EVERY 3 BUCKETS"
    )
    found = []
    for new in (rows(0.5), rows(1.5), rows(0.1, v=7), rows(0.2, 2.5)):
        s.append(new)
        engine.advance(release=False)
        found.append([(row._change_type, row.v, row.move) for row in engine.changes("moves").collect()])
    assert found[:3] == [[], [("insert", 1, 0.0)], [("insert", 1, 0.0)]], "when it closed; its revision waits"
    assert len(found[3]) > 3
    replay_is_the_table(engine, "moves")


def test_groups_with_nulls_in_different_places_are_different(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (a INT, b INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM q AS SELECT a, b, count(*) AS c FROM s GROUP BY a, b REVISE WHEN new.c > old.c")
    for new in ([(None, 5)], [(5, None)] * 3, [(None, 5)]):
        engine.stream("s").append([(a, b, ZERO) for a, b in new])
        engine.advance()
    assert {tuple(row) for row in engine.table("q").collect()} == {(None, 5, 2), (5, None, 3)}


APPLIED = "v FROM s <SLICES '1 minute'> APPLY 'tests.unit.boxes.test_apply:moves' RETURNS (v INT, move DOUBLE)"


@pytest.mark.parametrize("select", ["k, count(*) AS c FROM s GROUP BY k", "k, v FROM s", APPLIED])
def test_only_windows_can_leave_their_revisions_out_for_a_while(engine: ab.Engine, s: ab.Stream, select: str) -> None:
    with pytest.raises(AnabranchError, match="NOT_SUPPORTED"):
        engine.sql(f"CREATE STREAM q AS SELECT {select} REVISE WHEN KEPT")
