"""What a step reads and writes: only segments that can hold what changed, few partials, and in Spark's own tasks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import anabranch as ab
from anabranch.engine.live import Live
from anabranch.engine.step import Step
from anabranch.log.reduction import plan_reduction

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3_600_000_000


def rows(*minutes: float, k: str = "a") -> list[dict[str, Any]]:
    return [{"k": k, "ts": ZERO + timedelta(minutes=minute)} for minute in minutes]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The event-time ranges of the segments of partial results that steps have opened."""
    found: list[tuple[int, int]] = []
    original = Step.note_opened

    def note(self: Step, query: Any, choices: Any) -> None:
        found.extend((s.event_min or 0, s.event_max or 0) for choice in choices.values() for s in choice.segments)
        original(self, query, choices)

    monkeypatch.setattr(Step, "note_opened", note)
    return found


def counting(engine: ab.Engine, window: str = "<SLICES '1 minute'>") -> ab.Stream:
    engine.sql("CREATE STREAM s (k STRING, ts TIMESTAMP) EVENT TIME ts")
    engine.sql(f"CREATE STREAM q AS SELECT k, count(*) AS c, cq_close(*) AS t FROM s {window} GROUP BY k")
    return engine.stream("s")


def test_a_late_row_opens_only_segments_that_can_hold_its_window(
    engine: ab.Engine, opened: list[tuple[int, int]]
) -> None:
    stream = counting(engine)
    for hour in range(6):
        stream.append(rows(*(hour * 60 + m for m in range(0, 60, 7))))
        engine.advance()
    opened.clear()
    stream.append(rows(2 * 60 + 14.5))
    engine.advance()
    window = int(ZERO.timestamp() * 1e6) + (2 * 60 + 14) * 60_000_000
    assert opened, "it had to read what was said before"
    assert all(low <= window <= high for low, high in opened), "every segment can hold the window"
    assert len(opened) == 2, "the old one, and the late row's own"
    (late,) = [row for row in engine.changes("q").collect() if row._change_type == "update_postimage"]
    assert late.c == 2


def test_a_replacement_opens_only_segments_that_can_hold_its_key(
    engine: ab.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges: list[tuple[str | None, str | None]] = []
    original = Step.note_opened

    def note(self: Step, query: Any, choices: Any) -> None:
        ranges.extend((s.key_min, s.key_max) for choice in choices.values() for s in choice.segments if query.hidden)
        original(self, query, choices)

    monkeypatch.setattr(Step, "note_opened", note)
    engine.sql("CREATE STREAM o (id INT, n INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    engine.sql("CREATE STREAM q AS SELECT id, n FROM o WHERE n > 0")
    orders = engine.stream("o")
    for first in (0, 100, 200, 300):
        orders.append([(first + n, 1, ZERO) for n in range(10)])
        engine.advance()
    ranges.clear()
    orders.replace([(203, 7, ZERO), (205, 0, ZERO)])
    engine.advance()
    assert sorted(ranges) == [("200", "209"), ("203", "205")], "the one that has them, and the new one"
    said = [(c._change_type, c.id, c.n) for c in engine.changes("q").where("_bucket = 5").collect()]
    assert sorted(said) == [("delete", 205, 1), ("update_postimage", 203, 7), ("update_preimage", 203, 1)]


def test_a_step_that_closes_and_revises_nothing_opens_nothing(engine: ab.Engine, opened: list[tuple[int, int]]) -> None:
    stream = counting(engine)
    stream.append(rows(0.5))
    engine.advance()
    opened.clear()
    stream.append(rows(0.6))
    engine.advance()
    assert opened == []


def test_the_reducer_keeps_partials_few_and_answers_the_same(
    engine: ab.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_reduction, "__defaults__", (3,))  # so few runs become one
    stream = counting(engine, "<VISIBLE '10 minutes' ADVANCE '5 minutes'>")
    many = 2 * 3 + 2
    for number in range(many):
        stream.append(rows(1, 6, 11 + number / 10, k="ab"[number % 2]))
        engine.advance()
    live = Live(engine._log)
    (store,) = live.stores.values()
    state = engine._log.stream_by_id(store.stored.stream_id)
    assert len(engine._log.headers(state)) == 2 + 2, "two runs that were reduced, two that are new"
    segments = engine._log.plan_panes(state, ((-(1 << 62), 1 << 62),))
    assert len(segments) <= 2 + 2
    stream.punctuate(ZERO + timedelta(hours=1))
    engine.advance()
    counts = {(row.k, row.t.minute): row.c for row in engine.table("q").collect()}
    evens = len(range(0, many, 2))
    assert counts[("a", 5)] == evens
    assert counts[("b", 10)] == 2 * (many - evens)
    said = engine.changes("q").collect()
    net = sum(row.c if row._change_type in ("insert", "update_postimage") else -row.c for row in said)
    assert net == sum(counts.values())


def test_rows_that_revise_nothing_visible_say_nothing(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (k STRING, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM top AS SELECT max(k) AS m, cq_close(*) AS t FROM s <SLICES '1 minute'>")
    stream = engine.stream("s")
    stream.append(rows(0.5, k="z") + rows(2))
    engine.advance()
    stream.append(rows(0.1, k="a"))
    assert engine.advance().changes == 0
    assert len(engine.changes("top").collect()) == 1
