"""Real SIGKILLs around fork, step, publish and drop: main is unhurt, and nothing is left after a collection."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.clock import system_clock
from anabranch.log.intents import LEASE_US
from anabranch.log.log import Log
from anabranch.log.reading import ReadRange
from anabranch.log.register import NewQuery
from tests.conftest import make_spec
from tests.sites.branchers import POINTS, branching_process, step
from tests.sites.writers import running

KILLS = 30
STREAMS = ("impsns", "derived")
# From here on until it is dropped, a branch with a name is there, whatever became of who made it.
LASTING = POINTS[POINTS.index("publish: done") : POINTS.index("drop: ended")]


def kill_one(place: Path, catalog: str | None, point: str, name: str | None, origin: str | None) -> None:
    """Run a process to a point and kill it there."""
    with running(branching_process, str(place), catalog, point, name, origin) as (process, pipe):
        assert pipe.recv() == "ready"
        pipe.send("go")
        assert pipe.recv() == ("reached", point), "it was not there to be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL


def state_of(log: Log) -> dict[str, list[Any]]:
    """All that a catalog has, but for the register and the count of forks, and the files that are there."""
    with log.catalog.read() as connection:
        known = {
            table.name: sorted(map(repr, connection.execute(sa.select(table)).all()))
            for table in tables.metadata.sorted_tables
            if table not in (tables.branches, tables.warehouse)
        }
    for name in STREAMS:
        paths = [logged.segment.path for logged in log.plan(name, ReadRange()).segments]
        assert all((log.root / path).exists() for path in paths), f"{name} is whole"
        known[name] = sorted(paths)
    return known


def left_over(log: Log) -> tuple[set[str], set[str], set[str]]:
    """The branches of which anything is left: in the register, on disk, and in the database, where others are too."""
    with log.catalog.read() as connection:
        rows = set(connection.execute(sa.select(tables.branches.c.generation)).scalars())
    return rows, {path.name for path in (log.root / "branches").iterdir()}, schemas_of(log)


def schemas_of(log: Log) -> set[str]:
    if log.catalog.is_sqlite:
        return set()
    with log.catalog.read() as connection:
        names = connection.exec_driver_sql("SELECT nspname FROM pg_namespace").scalars()
        return {name for name in names if name.startswith("branch_")}


def kill_often(place: Path, catalog: str | None, points: list[str], chance: np.random.Generator) -> Counter[str]:
    died: Counter[str] = Counter()
    now: Callable[[], int] = system_clock
    with Log(place, catalog, clock=lambda: now()) as main:
        main.create_stream(make_spec())
        main.register.create_queries([NewQuery(make_spec("derived"), {})])
        step(main, None, 1)
        with main.fork("standing") as standing:
            left = ({standing.generation}, {standing.generation}, schemas_of(main))
            step(standing, None, 2)
            for number, point in enumerate(points):
                step(main, None, 10 + number)
                before = [state_of(log) for log in (main, standing)]
                name = f"b{number}" if chance.random() < 0.5 else None
                origin = "standing" if chance.random() < 0.3 else None
                kill_one(place, catalog, point, name, origin)
                died[point] += 1
                assert [state_of(log) for log in (main, standing)] == before, f"killed at {point}"
                now = lambda: system_clock() + 2 * LEASE_US  # noqa: E731
                main.collect_garbage(0)
                lasts = name is not None and point in LASTING
                assert [b.name for b in main.branches.all()] == ["standing", *([name] if lasts else [])]
                if lasts:
                    with main.open_branch(main.branches.find(str(name))) as branch:
                        state_of(branch)
                        step(branch, None, 3)  # the leases of the dead have run out, and it goes on
                    main.branches.drop(main.branches.find(str(name)))
                now = system_clock
                assert left_over(main) == left, f"killed at {point}"
    return died


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_thirty_kills(tmp_path: Path, catalog_url: str | None) -> None:
    chance = np.random.default_rng(20260101)
    points = [str(point) for point in chance.permutation([*POINTS] * (KILLS // len(POINTS)))]
    died = kill_often(tmp_path, catalog_url, points, chance)
    print("\nkills by point:", dict(died))
    assert sum(died.values()) == KILLS
    assert set(died) == set(POINTS)


def test_a_few_kills(tmp_path: Path) -> None:
    points = ["fork: copied", "publish: not committed", "step: not committed", "step: committed", "drop: ended"]
    assert sum(kill_often(tmp_path, None, points, np.random.default_rng(3)).values()) == 5


def test_a_process_that_is_not_killed_fails(tmp_path: Path) -> None:
    """The subject of the tests above can be missed, and they see it."""
    with Log(tmp_path) as main:
        main.create_stream(make_spec())
        main.register.create_queries([NewQuery(make_spec("derived"), {})])
        step(main, None, 1)
    with pytest.raises(AssertionError, match="was not there to be killed"):
        kill_one(tmp_path, None, "nowhere", None, None)
