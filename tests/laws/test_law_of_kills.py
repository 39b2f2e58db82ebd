"""The law of kills: whenever an engine is killed, the next one goes on as if nothing had happened.

A diagram with joins, keys, windows of rows, first rows and running aggregates is advanced by processes that die
in every phase of a step. In the end its tables are what the reference executor makes of all rows, and its changes,
replayed, give the tables. A kill that does not happen is a failure, whatever the tables say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.laws.killed import POINTS, STEP, arm
from tests.laws.play import KILLS, killed_advance
from tests.laws.test_law_of_revisions import Chance, Story, at, check

QUERIES = {
    "most": "SELECT g AS k, max(n) AS v FROM o <SLICES '10 minutes'> GROUP BY g",
    "joined": "SELECT a.id AS k, b.m AS v FROM o AS a JOIN e AS b ON a.id = b.id WITHIN '5 minutes'",
    "beside": "SELECT a.id AS k, b.m AS v FROM o AS a LEFT JOIN e AS b ON a.id = b.id WITHIN '5 minutes'",
    "everywhere": "SELECT a.g AS k, b.m AS v FROM o AS a JOIN e AS b ON a.id = b.id",
    "windows": "SELECT id AS k, sum(m) AS v FROM e <SLICES 2 ROWS> GROUP BY id",
    "best": "SELECT g AS k, n AS v FROM o QUALIFY row_number() OVER (PARTITION BY g ORDER BY n DESC) <= 1",
    "running": "SELECT g AS k, sum(n) AS v FROM o GROUP BY g",
}


def act(engine: ab.Engine, story: Story, turn: int) -> None:
    """Rows, replacements, a deletion, and rows that are late, of every turn."""
    orders, events = engine.stream("o"), engine.stream("e")
    minute = turn * 11
    story.order(orders, [(turn, turn % 3, 5 + turn, at(minute)), (turn + 20, 1, 9 - turn, at(minute + 1))])
    story.event(events, [(turn, 7, at(minute + 2)), (turn, turn, at(minute + 3)), (1, -turn, at(0.5 + turn / 10))])
    story.order(orders, [(max(1, turn - 1), turn % 2, 30 - turn, at(minute / 2))], replace=True)
    story.delete(orders, [turn + 19])


@pytest.mark.proof
def test_a_diagram_of_all_boxes_outlives_kills_in_every_phase(
    warm_spark: Any, tmp_path: Path, said_at_the_end: list[str]
) -> None:
    before = KILLS.copy()
    with ab.connect(tmp_path) as engine:
        engine.sql("CREATE STREAM o (id INT, g INT, n INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
        engine.sql("CREATE STREAM e (id INT, m INT, ts TIMESTAMP) EVENT TIME ts")
        for name, text in QUERIES.items():
            engine.sql(f"CREATE STREAM {name} AS {text}")
        story = Story(Chance(1))
        for turn, point in enumerate(POINTS, 1):
            act(engine, story, turn)
            killed_advance(engine.warehouse, point)
            if turn % 2:  # otherwise the next process finds two buckets
                engine.advance()
        act(engine, story, len(POINTS) + 1)
        engine.advance()
        for name in QUERIES:
            check(engine, story, name, name)
    happened = KILLS - before
    said_at_the_end.append("kills, all boxes: " + ", ".join(f"{point} {happened[point]}" for point in POINTS))
    assert all(happened[point] for point in POINTS)


@pytest.mark.parametrize("point", POINTS)
def test_points_are_functions_of_the_engine(point: str) -> None:
    found = POINTS[point]
    assert callable(getattr(found.owner, found.name))


def test_a_point_that_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    point = STEP["commit"]
    monkeypatch.delattr(point.owner, point.name)
    with pytest.raises(AttributeError, match=point.name):
        arm("commit")


def test_a_process_that_is_not_killed_is_a_failure(warm_spark: Any, tmp_path: Path) -> None:
    with ab.connect(tmp_path) as engine:
        engine.sql("CREATE STREAM s (k INT, ts TIMESTAMP) EVENT TIME ts")
        engine.sql("CREATE STREAM q AS SELECT k, ts FROM s")
        engine.advance()  # nothing is left to do
        with pytest.raises(AssertionError, match="was not killed"):
            killed_advance(engine.warehouse, "committed")
