"""Upkeep by whoever advances: catalog and disk stay small, answers stay the same, failures stop nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

import anabranch as ab
from anabranch.api.engine import Engine
from anabranch.cli.main import anabranch
from anabranch.connectors.source import register
from anabranch.engine.driver import SessionOptions
from anabranch.engine.session import Session
from anabranch.engine.upkeep.keeper import Progress
from anabranch.log import tables
from anabranch.log.log import Log
from anabranch.log.reading import ReadRange
from anabranch.model.errors import AnabranchError
from anabranch.model.time import to_datetime
from tests.conftest import START_US, FakeClock

TWO_MINUTES = 120
_STATEMENTS = """
CREATE STREAM clicks (k INT, n INT, ts TIMESTAMP) EVENT TIME ts;
CREATE STREAM users (k INT, name STRING, ts TIMESTAMP) EVENT TIME ts KEY k;
CREATE STREAM counts AS SELECT k, count(*) AS c, sum(n) AS s, cq_close(*) AS t
    FROM clicks <SLICES '10 minutes'> GROUP BY k;
CREATE STREAM totals AS SELECT k, count(*) AS c FROM clicks GROUP BY k;
CREATE STREAM few AS SELECT k, n, ts FROM clicks WHERE n % 2 = 0;
CREATE STREAM over AS SELECT k, sum(c) AS c, cq_close(*) AS t FROM counts <SLICES '1 hour'> GROUP BY k
"""


class Steps:
    """An engine whose clock tests move, and what goes into it."""

    def __init__(self, place: Path, spark: Any, clock: FakeClock, kernel: str = "auto") -> None:
        self.clock = clock
        log = Log(place, clock=clock)
        self.engine = Engine(log, Session(SessionOptions(spark=spark, kernel=kernel), log.root, prepare=register))
        self.log = log
        self.number = 0

    def take(self, many: int, seconds: float = TWO_MINUTES) -> None:
        for _ in range(many):
            self.clock.pass_seconds(seconds)
            at = self.clock.now
            rows = [{"k": n % 3, "n": self.number + n, "ts": to_datetime(at + n)} for n in range(4)]
            self.engine.stream("clicks").append(rows)
            name = f"u{self.number}"
            self.engine.stream("users").replace([{"k": self.number % 5, "name": name, "ts": to_datetime(at)}])
            self.engine.advance()
            self.number += 1

    def tables(self) -> dict[str, list[tuple[Any, ...]]]:
        names = ["clicks", "users", "counts", "totals", "few", "over"]
        return {name: _rows(self.engine.table(name)) for name in names}

    def changes(self) -> dict[str, list[tuple[Any, ...]]]:
        return {name: _rows(self.engine.changes(name)) for name in ["counts", "totals", "few", "over"]}

    def rows_of_catalog(self) -> dict[str, int]:
        with self.log.catalog.read() as connection:
            return {
                table.name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
                for table in tables.metadata.sorted_tables
            }

    def files(self) -> int:
        return sum(1 for _ in (self.log.root / "data").rglob("*.parquet"))


def _rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.fixture
def kernel() -> str:
    return "auto"


@pytest.fixture
def steps(warm_spark: Any, tmp_path: Path, kernel: str) -> Iterator[Steps]:
    made = Steps(tmp_path / "w", warm_spark, FakeClock(START_US), kernel)
    made.engine.sql(_STATEMENTS)
    yield made
    made.engine.close()


@pytest.mark.parametrize("kernel", ["auto", pytest.param("spark", marks=pytest.mark.proof)])
def test_maintenance_changes_no_answer(steps: Steps, kernel: str) -> None:
    """Neglected for a day and more, then kept up: the same tables and changes, few rows, few files."""
    keeper = steps.engine._queries.advancer.keeper
    chores, keeper.chores = keeper.chores, ()
    steps.take(10)
    steps.take(3, seconds=10 * 3600)
    keeper.chores = chores
    seen = steps.changes()
    before, files = steps.rows_of_catalog(), steps.files()
    told: list[Progress] = []
    answers = steps.tables()
    done = steps.engine.maintain(told.append)
    steps.clock.pass_seconds(700)
    steps.engine.maintain()
    assert done["segments compacted"] > 30
    assert {progress.chore for progress in told} >= {"reduction", "compaction", "folding", "collection"}
    assert steps.tables() == answers
    assert steps.changes() == seen
    after = steps.rows_of_catalog()
    assert after["intents"] <= 2
    assert after["garbage"] == 0
    assert after["buckets"] < before["buckets"]
    assert after["runs"] < before["runs"] / 1.5
    assert steps.files() < files / 2
    steps.take(3)
    assert len(steps.tables()["totals"]) == 3
    assert sum(row[1] for row in steps.tables()["totals"]) == 4 * steps.number


@pytest.mark.proof
def test_steps_keep_house_themselves(steps: Steps) -> None:
    """Forty steps would leave 280 segments, runs and intents: nobody calls anything, and most are gone."""
    steps.take(40)
    found = steps.rows_of_catalog()
    assert found["intents"] < 40
    assert found["segments"] < 130
    assert steps.files() < 200
    assert sum(row[1] for row in steps.tables()["totals"]) == 4 * steps.number


def test_a_chore_that_fails_stops_nothing(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("the disk is gone")

    advancer = steps.engine._queries.advancer
    with monkeypatch.context() as broken:
        broken.setattr(advancer.compacting, "do", fail)
        steps.take(3)
        (told,) = steps.engine.retrying().values()
        assert (told["failures"], "the disk is gone" in told["error"]) == ("3", True)
        with pytest.raises(OSError, match="the disk is gone"):
            steps.engine.maintain()
    steps.take(1, seconds=3600)
    assert steps.engine.retrying() == {}
    assert steps.engine.table("totals").count() == 3


def test_an_engine_that_has_no_lease_keeps_no_house(steps: Steps) -> None:
    steps.take(1)
    other = Log(steps.log.root, clock=steps.clock)
    lease = other.leases.acquire("another")
    steps.clock.pass_seconds(3600)
    lease = other.leases.renew(lease)
    assert steps.engine.advance().buckets == 0, "nothing waits, and the house is the other's to keep"
    with pytest.raises(AnabranchError) as caught:
        steps.engine.maintain()
    assert caught.value.id == "LEASE_HELD"
    other.leases.release(lease)
    other.close()
    assert steps.engine.maintain()["portions folded"] >= 0


def test_a_stream_that_nobody_queries_is_kept_up_too(warm_spark: Any, tmp_path: Path) -> None:
    with ab.connect(tmp_path / "w") as engine:
        stream = engine.create_stream("s", "n INT, ts TIMESTAMP", event_time="ts")
        for n in range(9):
            stream.append([{"n": n, "ts": to_datetime(START_US + n)}])
        assert engine.advance().buckets == 0
        assert engine._log.plan("s", ReadRange()).segments[0].segment.rows == 9
        assert sorted(row.n for row in stream.read().collect()) == list(range(9))


def test_on_the_command_line(warm_spark: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "w")
    with ab.connect(place) as engine:
        stream = engine.create_stream("s", "n INT, ts TIMESTAMP", event_time="ts")
        for n in range(8):
            stream.append([{"n": n, "ts": to_datetime(START_US + n)}])
    result = CliRunner().invoke(anabranch, ["maintain", "-w", place, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["segments compacted"] == 8
    result = CliRunner().invoke(anabranch, ["maintain", "-w", place])
    assert "segments compacted" in result.output
    missing = CliRunner().invoke(anabranch, ["maintain", "-w", str(tmp_path / "nowhere")])
    assert isinstance(missing.exception, AnabranchError)
    assert missing.exception.id == "WAREHOUSE_MISSING"
