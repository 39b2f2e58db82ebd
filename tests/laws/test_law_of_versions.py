"""The law of versions: what changes amount to depends on their versions, never on their arrival.

Runs of several entry points, with the stamps that they have there, arrive in any order, some twice, cut into buckets
anywhere, with compaction in between. In the end tables, queries, Spark's format and sinks have what the reference makes
of all changes. Beside it everybody who turns changes to rows is compared with the reference on hundreds of drawn feeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.engine.netting import held_of, rows_in_arrow, rows_of
from anabranch.engine.relation import Leaves, Relation
from anabranch.engine.settle import settled
from anabranch.model.run import ChangeType
from anabranch.reference.netting import LoggedChange, Row, amount, content
from tests.laws.copied import CopiedRun, draw_moves, draw_runs, logged, take

END = "2026-02-01T00:00:00Z"
DRAWN = ("feed", "k", "x", "m")
FEEDS = 300
SEEDS = [7]


# Everybody who turns changes to rows.


def draw_feed(chance: np.random.Generator, feed: int) -> list[LoggedChange]:
    """Changes in the order in which they arrive: the numbers of their versions are in another."""
    kinds = [*ChangeType, ChangeType.INSERT, ChangeType.DELETE]
    many = int(chance.integers(1, 9))
    numbers = chance.permutation(60)[:many]
    found = []
    for number in map(int, numbers):
        version = (number // 12, "ab"[number // 6 % 2], 1 + number // 2 % 3, number % 2)
        x = [0.0, -0.0, float("nan"), None, 1.5][chance.integers(5)]
        m = [{"a": 1, "b": 2}, {"b": 2, "a": 1}, None][chance.integers(3)]
        row = {"feed": feed, "k": int(chance.integers(2)), "x": x, "m": m}
        found.append(LoggedChange(kinds[chance.integers(len(kinds))], row, version))
    return found


def as_arrow(changes: Sequence[LoggedChange]) -> pa.Table:
    kinds = {"feed": pa.int32(), "k": pa.int32(), "x": pa.float64(), "m": pa.map_(pa.string(), pa.int32())}
    columns = {name: pa.array([_cell(c.values[name]) for c in changes], kind) for name, kind in kinds.items()}
    stimes = pa.array([c.version[0] for c in changes], pa.int64()).cast(pa.timestamp("us", "UTC"))
    versions = {"_stime": stimes, "_entry_point": pa.array([c.version[1] for c in changes])}
    versions |= {name: pa.array([c.version[n] for c in changes], pa.int64())
                 for n, name in ((2, "_sequence"), (3, "_ordinal"))}  # fmt: skip
    return pa.table({**columns, **versions, "_change_type": pa.array([str(c.change_type) for c in changes])})


def _cell(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def contents(rows: Sequence[Row]) -> Counter[Any]:
    return Counter(map(content, rows))


def of_frame(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


@pytest.fixture(scope="module")
def feeds() -> list[LoggedChange]:
    chance = np.random.default_rng(15)
    return [change for feed in range(FEEDS) for change in draw_feed(chance, feed)]


@pytest.fixture
def arrived(warm_spark: Any, feeds: list[LoggedChange]) -> Any:
    return warm_spark.createDataFrame(as_arrow(feeds))


@pytest.mark.parametrize("key", [(), ("feed", "k"), ("feed", "x")])
def test_everybody_says_what_the_reference_says(feeds: list[LoggedChange], arrived: Any, key: tuple[str, ...]) -> None:
    meant = amount(feeds, key)
    wanted = contents(meant.rows)
    assert contents(of_frame(rows_of(arrived, key, DRAWN))) == wanted
    in_arrow = rows_in_arrow(as_arrow(feeds), key, DRAWN).select(DRAWN).to_pylist(maps_as_pydicts="strict")
    assert contents(in_arrow) == wanted
    held = {content({n: row[n] for n in DRAWN}): row["_held"] for row in of_frame(held_of(arrived, key, DRAWN))}
    assert held == {content(row): lack for row, lack in meant.held}
    assert len(held) > 50, "some deletions come without their rows"


def test_a_step_says_no_more_than_the_reference(feeds: list[LoggedChange], arrived: Any) -> None:
    meant = amount(feeds)
    with Leaves(arrived.sparkSession) as leaves:
        weights = "CASE WHEN _change_type IN ('delete', 'update_preimage') THEN -1 ELSE 1 END AS _weight"
        carried = "CAST(NULL AS BIGINT) AS _of, 1L AS _bucket, CAST(NULL AS TIMESTAMP) AS _event_time"
        rows = Relation(f"SELECT {', '.join(DRAWN)}, {carried}, {weights} FROM {leaves.add(arrived)}")
        kinds = leaves.frame(f"SELECT * FROM {rows.source}").schema
        said = of_frame(leaves.frame(settled(rows, DRAWN, kinds).sql))
    given = [{n: row[n] for n in DRAWN} for row in said if row["_change_type"] == "insert"]
    gone = [{n: row[n] for n in DRAWN} for row in said if row["_change_type"] == "delete"]
    assert contents(given) == contents(meant.rows)
    assert contents(gone) == Counter({content(row): lack for row, lack in meant.held})


# Any order of arrival.


def arrival(seed: int) -> list[int]:
    """The order in which runs arrive, three of them twice."""
    chance, many = np.random.default_rng(seed + 1), len(draw_runs(seed))
    return [*chance.permutation(many).tolist(), *chance.integers(0, many, 3).tolist()]


def play(engine: ab.Engine, seed: int, *, staged: bool) -> dict[str, list[Any]]:
    """Take drawn runs in a drawn order; what everybody has in the end, by name."""
    runs, streams = draw_runs(seed), {}
    for name, key in (("keyed", "KEY (id)"), ("plain", "")):
        engine.sql(f"CREATE STREAM {name} (id INT, v INT, ts TIMESTAMP) EVENT TIME ts {key}")
        engine.sql(f"CREATE STREAM {name}_rows AS SELECT id, v, ts FROM {name}")
        if key:
            engine.sql(f"CREATE STREAM sums AS SELECT v, count(*) AS c FROM {name} <SLICES '1 hour'> GROUP BY v")
        streams[name] = engine.stream(name)
    for number, at in enumerate(arrival(seed)):
        for stream in streams.values():
            take(engine, stream, runs[at], staged=staged)
        if number in (4, 11):
            engine.advance()
        if number == 11:
            assert all(stream.compact().rows for stream in streams.values())
    for stream in streams.values():
        stream.punctuate(END)
    engine.advance()
    assert engine.halted() == {}
    return {name: check(engine, name, runs) for name in streams}


def check(engine: ab.Engine, name: str, runs: Sequence[CopiedRun]) -> list[Any]:
    meant = amount(logged(runs), ("id",) if name == "keyed" else ())
    wanted = Counter((row["id"], row["v"]) for row in meant.rows)

    def rows(frame: Any) -> Counter[Any]:
        return Counter((row["id"], row["v"]) for row in frame.collect())

    source = engine.spark.read.format("anabranch").option("warehouse", str(engine.warehouse))
    assert rows(engine.table(name)) == wanted
    assert rows(source.load(name)) == wanted
    assert rows(engine.table(f"{name}_rows")) == wanted
    if name == "keyed":
        sums = Counter(row["v"] for row in meant.rows)
        assert {row.v: row.c for row in engine.table("sums").collect()} == dict(sums)
    held = {(row.id, row.v): row._held for row in engine.stream(name).held().collect()}
    assert held == {(row["id"], row["v"]): lack for row, lack in meant.held}
    return sorted(wanted.elements())


@pytest.mark.parametrize("kernel", ["auto", "spark"])
@pytest.mark.parametrize("seed", SEEDS)
def test_any_order_of_arrival_gives_the_same(warm_spark: Any, tmp_path: Path, kernel: str, seed: int) -> None:
    """With each kernel; staged as copies are, and in the order in which they come, so that positions tell nothing."""
    with ab.connect(tmp_path / "warehouse", kernel=kernel) as engine:
        found = play(engine, seed, staged=kernel == "auto")
    assert all(found.values()), "something is there to be compared"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sink_has_at_any_time_what_has_arrived(engine: ab.Engine, postgres: Callable[[], str], seed: int) -> None:
    """By key, and by rows of which some are deleted before they come."""
    uri = postgres()
    drawn = {"keyed": draw_runs(seed), "plain": draw_moves(seed)}
    for name, key in (("keyed", "KEY (id)"), ("plain", "")):
        engine.sql(f"CREATE STREAM {name} (id INT, v INT, ts TIMESTAMP) EVENT TIME ts {key}")
        engine.create_sink(f"{name}_sink", name, uri, key="id" if key else ("id", "v"))
    arrived: dict[str, list[CopiedRun]] = {name: [] for name in drawn}
    for number, at in enumerate(arrival(seed)):
        for name, runs in drawn.items():
            if at < len(runs):
                take(engine, engine.stream(name), runs[at])
                arrived[name].append(runs[at])
        if number % 4 == 3 or number + 1 == len(arrival(seed)):
            engine.advance()
            assert engine.halted() == {}
            for name, runs in arrived.items():
                once = {run.run_id: run for run in runs}.values()
                meant = amount([c for run in once for c in run.logged], ("id",) if name == "keyed" else ())
                with psycopg.connect(uri) as connection:
                    found = connection.execute(f"SELECT id, v FROM {name}").fetchall()
                assert sorted(found) == sorted((row["id"], row["v"]) for row in meant.rows), (name, number)
                assert meant.rows
        if number == 11:
            assert engine.stream("keyed").compact().rows
    engine.drop_sink("keyed_sink")
    with psycopg.connect(uri) as connection:
        left = connection.execute(
            "SELECT relname FROM pg_class WHERE relname ~ '^anabranch_(held|versions)'"
        ).fetchall()
    assert [name[:14] for (name,) in left] == ["anabranch_held"], "what a sink remembers goes with it"


@pytest.mark.parametrize("seed", SEEDS)
def test_the_runs_that_are_drawn_tell_rules_apart(seed: int) -> None:
    """By arrival, and by stamp and then arrival, other rows would be there."""
    runs, order = draw_runs(seed), arrival(seed)
    assert {change.change_type for change in logged(runs)} == set(ChangeType)
    meant = contents(amount(logged(runs), ("id",)).rows)
    for rule in ((lambda stime, at: (at, "", 0)), (lambda stime, at: (stime, "", at))):
        other = [replace(c, version=(*rule(run.stime, order.index(n)), c.version[3])) for n, run in enumerate(runs)
                 for c in run.logged]  # fmt: skip
        assert contents(amount(other, ("id",)).rows) != meant
    assert arrival(seed) != sorted(arrival(seed))
