"""Work beside the steps that fails: it is tried again, and stops no step, no sink, no loop and no other store."""

from __future__ import annotations

import logging
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import anabranch as ab
from anabranch.engine import reduce
from anabranch.engine.live import Live
from anabranch.log import tables
from anabranch.log.intents import OPEN
from anabranch.log.reduction import plan_reduction
from anabranch.model.errors import AnabranchError
from tests.conftest import FakeClock
from tests.engine.test_reach_of_steps import counting, rows

FULL = AnabranchError("DISK_FULL", place="a segment", need="space", got="no space left", next_step="Free some.")


class Broken:
    """Reductions of some stores fail as long as this is on; how often each was tried."""

    def __init__(self, patch: pytest.MonkeyPatch, error: Exception) -> None:
        self.on, self.tries, self.only = True, 0, ""
        original = reduce._Rewrite.__init__

        def begin(rewrite: Any, reducer: Any, live: Any, store: Any, *others: Any) -> None:
            if self.only in [query.name for query in live.users_of(store)] or not self.only:
                self.tries += 1
                if self.on:
                    raise error
            original(rewrite, reducer, live, store, *others)

        patch.setattr(reduce._Rewrite, "__init__", begin)


@pytest.fixture
def clock(engine: ab.Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Retries by a clock that tests move; two runs of partial results are reduced already."""
    engine._queries.advancer.retries._clock = clock
    monkeypatch.setattr(plan_reduction, "__defaults__", (2,))
    return clock


def finish(engine: ab.Engine) -> None:
    """Wait for reductions in the background."""
    wait(engine._queries.advancer.reducer._working.values(), timeout=60)


def step(engine: ab.Engine, minute: float) -> None:
    """A new row and a late one: partial results of panes that are there already."""
    engine.stream("s").append(rows(minute, 0.1))
    assert engine.advance().buckets == 1
    finish(engine)


def open_intents(engine: ab.Engine) -> int:
    with engine._log.catalog.read() as connection:
        query = sa.select(sa.func.count()).where(tables.intents.c.state == OPEN, tables.intents.c.stream_id != 1)
        return int(connection.execute(query).scalar_one())


def runs_of(engine: ab.Engine, name: str) -> int:
    live = Live(engine._log)
    (store,) = live.stores_of(live.queries[name])
    return len(engine._log.headers(engine._log.stream_by_id(store.stored.stream_id)))


@pytest.mark.parametrize(("background", "error"), [(False, FULL), (True, OSError("an executor was lost"))])
def test_a_reduction_that_fails_is_tried_again_and_stops_nothing(
    engine: ab.Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    caplog: pytest.LogCaptureFixture, background: bool, error: Exception,
) -> None:  # fmt: skip
    if background:
        monkeypatch.setattr(reduce, "SMALL", 0)
    broken = Broken(monkeypatch, error)
    counting(engine)
    engine.sql(f"CREATE SINK out FROM q TO '{tmp_path / 'out'}'")
    with caplog.at_level(logging.WARNING, "anabranch"):
        for minute in range(4):
            step(engine, minute)
    assert broken.tries == 1, "it waits for the time of its next try"
    assert runs_of(engine, "q") == 4
    assert engine.sinks()[0].position == engine.stream("q").state().last_position, "the sink has all of it"
    ((what, retry),) = engine.retrying().items()
    assert "'q'" in what
    assert retry["failures"] == "1"
    assert any("tried again after 1 second" in message for message in caplog.messages)
    assert open_intents(engine) == 0, "what the reduction was to write was given back"
    for pause in (1, 2, 4):
        clock.pass_seconds(pause)
        step(engine, 4)
    assert broken.tries == 4
    assert engine.retrying()[what]["failures"] == "4"
    broken.on = False
    clock.pass_seconds(7)
    step(engine, 5)
    assert broken.tries == 4, "eight seconds after the fourth failure"
    clock.pass_seconds(1)
    step(engine, 6)
    assert engine.retrying() == {}
    assert runs_of(engine, "q") < 9
    assert open_intents(engine) == 0
    engine.stream("s").punctuate(rows(60)[0]["ts"])
    engine.advance()
    finish(engine)
    assert engine.sinks()[0].waiting == 0
    assert {row.t.minute: row.c for row in engine.table("q").collect()} == {1: 10, 2: 1, 3: 1, 4: 1, 5: 3, 6: 1, 7: 1}


def test_a_store_that_cannot_be_reduced_holds_up_no_other(
    engine: ab.Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Broken(monkeypatch, OSError("a bad file"))
    broken.only = "q"
    counting(engine)
    engine.sql("CREATE STREAM other AS SELECT max(k) AS m, cq_close(*) AS t FROM s <SLICES '1 minute'>")
    step(engine, 0)
    step(engine, 1)
    assert {retry["failures"] for retry in engine.retrying().values()} == {"1"}
    assert len(engine.retrying()) == 2, "they were to be reduced together"
    clock.pass_seconds(1)
    step(engine, 2)
    ((what, retry),) = engine.retrying().items()
    assert "'q'" in what
    assert retry["failures"] == "2"
    assert runs_of(engine, "other") == 1
    assert runs_of(engine, "q") == 3
    engine.drop_stream("q")
    step(engine, 3)
    assert engine.retrying() == {}, "what was dropped is not tried any more"


def test_a_background_reduction_goes_on_beside_steps(
    engine: ab.Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread for large amounts does what is done at once for small ones."""
    monkeypatch.setattr(reduce, "SMALL", 0)
    counting(engine, "<VISIBLE '10 minutes' ADVANCE '5 minutes'>")
    for minute in range(6):
        step(engine, minute)
    step(engine, 30)
    assert engine.retrying() == {}
    assert runs_of(engine, "q") < 4
    assert {row.t.minute: row.c for row in engine.table("q").collect()} == {5: 12, 10: 13, 15: 1}
