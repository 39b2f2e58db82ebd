"""Law: what is read again from a state and the tail of its log is what the whole log amounts to.

Two warehouses get the same random history, with deletions whose rows come later among it. One has states that are
brought forward after every step, in runs as small as they can be; the other has none. Whatever they emit is the same,
to the item; so are their tables; and each state with its tail nets to what the log nets to, after every step. One query
is halted for a while, so that states have come further than it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.engine import feeds, materialise, spreading
from anabranch.engine import states as reading
from anabranch.engine.spreading import Parts
from anabranch.log import states
from anabranch.log.reading import ReadRange
from anabranch.model.errors import AnabranchError
from anabranch.model.run import Segment

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
NEVER = 1 << 40
TEXT = """
    CREATE STREAM s (k INT, v DOUBLE, ts TIMESTAMP) EVENT TIME ts;
    CREATE STREAM r (k BIGINT, w INT, ts TIMESTAMP) EVENT TIME ts;
    CREATE STREAM p (k INT, price INT, since TIMESTAMP) EVENT TIME since KEY (k);
    CREATE STREAM pairs AS SELECT s.k, v, w FROM s JOIN r ON s.k = r.k AND w > 0;
    CREATE STREAM beside AS SELECT s.k, v, w FROM s LEFT JOIN r ON s.k = r.k;
    CREATE STREAM fixed AS SELECT s.k, v, price FROM s LEFT LOOKUP p ON s.k = p.k WITHOUT REVISION;
    CREATE STREAM live AS SELECT s.k, v, price FROM s LOOKUP p ON s.k = p.k;
    CREATE STREAM totals AS SELECT a.k, a.n, b.m FROM (SELECT k, count(*) AS n FROM s GROUP BY k) AS a
        JOIN (SELECT k, max(w) AS m FROM r GROUP BY k) AS b ON a.k = b.k;
    CREATE STREAM most AS SELECT k, max(price) AS top FROM live GROUP BY k
"""
QUERIES = ("pairs", "beside", "fixed", "live", "totals", "most")


@pytest.fixture
def left_out(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many segments of states readers of some keys have left out, each time."""
    counts: list[int] = []
    holding = reading.holding

    def counted(segments: Sequence[Segment], wanted: Parts | None) -> list[Segment]:
        found = holding(segments, wanted)
        counts.append(len(segments) - len(found))
        return found

    monkeypatch.setattr(reading, "holding", counted)
    return counts


@pytest.fixture
def twins(warm_spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ab.Engine, ab.Engine]]:
    """One engine that has states, in many runs and parts, and one that has none."""
    for where, name, value in (
        (states, "_SMALL_ROWS", 2), (states, "_RATIO", 1), (spreading, "LEAST_ROWS", 2), (spreading, "PART_ROWS", 1),
        (feeds, "WORTH_SPREADING", 1), (materialise, "WORTH_SPREADING", 1),
    ):  # fmt: skip
        monkeypatch.setattr(where, name, value)
    with ExitStack() as opened:
        both = [opened.enter_context(ab.connect(tmp_path / name)) for name in ("with", "without")]
        for engine, least in zip(both, (1, NEVER), strict=True):
            engine._queries.advancer.materialiser.least_runs = least
            engine._queries.advancer.materialiser.shrinking = 0
            engine.sql(TEXT)
        yield both[0], both[1]


@pytest.mark.parametrize(
    ("seed", "steps"),
    [(1, 4), pytest.param(2, 9, marks=pytest.mark.proof), pytest.param(3, 9, marks=pytest.mark.proof)],
)
def test_what_is_read_again_is_what_the_log_amounts_to(
    twins: tuple[ab.Engine, ab.Engine], left_out: list[int], seed: int, steps: int
) -> None:
    chance = np.random.default_rng(seed)
    rows: dict[str, list[tuple[Any, ...]]] = {"s": [], "r": []}
    made = 0
    for step in range(steps):
        said = _drawn(chance, rows)
        for engine in twins:
            for name, messages in said["rows"].items():
                engine.stream(name).append(messages)
            if said["replaced"]:
                engine.stream("p").replace(said["replaced"])
            if said["deleted"] and step > 1:
                engine.stream("p").delete(said["deleted"])
            engine.advance()
            if step == 0:
                _halt(engine, "beside")
            elif step == steps - 2:
                engine.resume("beside")
        made = max(made, _check_states(twins[0]))
    assert made >= 5, "the streams that are read again have states"
    assert sum(left_out) > 0, "of some of which only a part was read"
    assert not twins[1]._log.states.all(), "and without there are none"
    for name in QUERIES:
        mine, other = (_emitted(engine, name) for engine in twins)
        assert mine == other, name
        assert mine, "something was emitted"
        tables = [Counter(map(str, engine.table(name).collect())) for engine in twins]
        assert tables[0] == tables[1], name


def _drawn(chance: np.random.Generator, rows: dict[str, list[tuple[Any, ...]]]) -> dict[str, Any]:
    """What comes in a step: new rows, deletions of old ones, and of some that come later or never."""
    found: dict[str, Any] = {"rows": {}}
    for name, held in rows.items():
        messages = []
        for _ in range(int(chance.integers(1, 5))):
            v = float(chance.choice([0.0, -0.0, 1.5, 2.5])) if name == "s" else int(chance.integers(-1, 3))
            row = (int(chance.integers(1, 4)), v, ZERO + timedelta(seconds=int(chance.integers(0, 3))))
            if held and chance.random() < 0.5:
                row = held[int(chance.integers(len(held)))]
            kind = "delete" if chance.random() < 0.4 else "insert"
            held.append(row)
            names = ("k", "v" if name == "s" else "w", "ts")
            messages.append({**dict(zip(names, row, strict=True)), "_change_type": kind})
        found["rows"][name] = messages
    keys = [int(k) for k in chance.choice(4, int(chance.integers(0, 3)), replace=False)]
    found["replaced"] = [(k, int(chance.integers(1, 9)), ZERO) for k in keys]
    found["deleted"] = [k for k in range(4) if k not in keys and chance.random() < 0.3]
    return found


def _halt(engine: ab.Engine, name: str) -> None:
    """Stop a query for a while: when it goes on, states have come further than it has."""
    query = engine._queries.query(name)
    error = AnabranchError("BAD_EXPRESSION", place="here", need="nothing", got="a test", next_step="Resume it.")
    with engine._queries.advancer._leased() as lease:
        engine._log.register.halt(lease, [query.stored.id], error)


def _emitted(engine: ab.Engine, name: str) -> list[str]:
    return [str(row) for row in engine.changes(name).drop("_stime").collect()]


def _check_states(engine: ab.Engine) -> int:
    """Compare every state and its tail with its log; how many states there are."""
    log = engine._log
    there = log.states.all()
    for number, stream_id, hashed in there:
        stream = log.stream_by_id(stream_id)
        found = log.states.read(stream_id, None, hashed)
        assert found is not None
        state, tail = found
        assert state.id == number
        assert tail.segments == (), "the log was netted to its end"
        names = [name for name in stream.spec.schema.names if name != "_bucket"]
        held = _rows(engine, [logged.segment for logged in state.segments], [*names, "_weight"])
        assert all(row["_weight"] for row in held), "what amounts to nothing is gone"
        net, whole = Counter[str](), Counter[str]()
        for row in held:
            net[str([row[name] for name in names])] += row["_weight"]
        logged = log.plan(stream.name, ReadRange()).segments
        for row in _rows(engine, [one.segment for one in logged], [*names, "_change_type"]):
            gone = row["_change_type"] in ("delete", "update_preimage")
            whole[str([row[name] for name in names])] += -1 if gone else 1
        assert _left(net) == _left(whole), stream.name
    return len(there)


def _left(counts: Counter[str]) -> dict[str, int]:
    return {row: n for row, n in counts.items() if n}


def _rows(engine: ab.Engine, segments: Sequence[Segment], names: Sequence[str]) -> list[dict[str, Any]]:
    tables = [pq.read_table(engine._log.root / segment.path, partitioning=None) for segment in segments]
    read = (table.select([name for name in names if name in table.column_names]).to_pylist() for table in tables)
    return [{"_change_type": "insert", **row} for rows in read for row in rows]
