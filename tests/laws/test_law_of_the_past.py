"""A branch at a past bucket has the tables that there were: what a batch over the rows of then says.

Histories are drawn: late rows, sources, rows replaced and deleted by key, several buckets, a log that was compacted
over all of them. At every bucket each table on a branch equals plain Python over the rows that were committed by then,
as far as progress of then has closed it, and what main, which still has it, says of its own past.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as ab
from anabranch.log.reading import ReadRange
from anabranch.model.errors import AnabranchError
from anabranch.model.time import EPOCH, to_datetime
from tests.conftest import SECOND, START_US

MINUTE = 60 * SECOND
WINDOW = 2
QUERIES = {
    "passed": "SELECT k, v, ts FROM s WHERE v > 3",
    "sums": f"SELECT k, sum(v) AS total, max(v) AS most, cq_close(*) AS t FROM s <SLICES '{WINDOW} minutes'> "
    "GROUP BY k",
    "busiest": "SELECT t, sum(total) AS total FROM sums GROUP BY t",
    "pairs": "SELECT a.v AS x, b.v AS y FROM s AS a JOIN s AS b ON a.k = b.k AND a.v < b.v WITHIN '1 minute'",
    "by_state": "SELECT state, count(*) AS c FROM people GROUP BY state",
}


@dataclass
class History:
    """What was appended up to the end of each bucket, and the position of every query there."""

    rows: list[list[tuple[int, int, int]]] = field(default_factory=list)  # key, value, minute
    people: list[dict[int, str]] = field(default_factory=list)
    progress: list[int | None] = field(default_factory=list)  # in minutes
    numbers: list[int] = field(default_factory=list)


def play(engine: ab.Engine, chance: np.random.Generator, buckets: int) -> History:
    engine.sql("CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts SLACK '1 minute'")
    engine.sql("CREATE STREAM people (id INT, state STRING, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    for name, text in QUERIES.items():
        engine.sql(f"CREATE STREAM {name} AS {text}")
    history, rows, people, marks = History(), [], {}, {}
    for number in range(buckets):
        for _ in range(int(chance.integers(2, 5))):
            source = ("a", "b")[chance.integers(2)]
            minutes = chance.integers(max(0, 3 * number - 4), 3 * number + 4, 4)
            new = [(int(chance.integers(3)), int(chance.integers(9)), int(m)) for m in minutes]
            made = [{"k": k, "v": v, "ts": to_datetime(START_US + m * MINUTE)} for k, v, m in new]
            engine.stream("s").append(made, source=source)
            rows += new
            marks[source] = max(marks.get(source, 0), max(m for _, _, m in new) - 1)
        revise(engine.stream("people"), people, number, chance)
        engine.advance()
        history.rows.append(list(rows))
        history.people.append(dict(people))
        earlier = [p for p in history.progress if p is not None]
        history.progress.append(max([*earlier, min(marks.values())]))
        history.numbers.append(engine._log.register.buckets_after(0)[-1].number)
    return history


def revise(stream: ab.Stream, people: dict[int, str], number: int, chance: np.random.Generator) -> None:
    at = to_datetime(START_US + number * MINUTE)
    for key in map(int, chance.integers(4, size=4)):
        if key in people and chance.random() < 0.3:
            stream.delete([key])
            del people[key]
        else:
            people[key] = str(chance.choice(["x", "y"]))
            stream.replace([{"id": key, "state": people[key], "ts": at}])


def meant(history: History, number: int) -> dict[str, Counter[Any]]:
    """What each table is after a bucket, by a batch over all rows of then."""
    rows, progress = history.rows[number], history.progress[number] or 0
    groups: dict[tuple[int, int], list[int]] = {}
    for k, v, minute in rows:
        close = (minute // WINDOW + 1) * WINDOW
        if close <= progress:
            groups.setdefault((k, close), []).append(v)
    sums = Counter((k, sum(vs), max(vs), t) for (k, t), vs in groups.items())
    busiest: Counter[int] = Counter()
    for (_, t), vs in groups.items():
        busiest[t] += sum(vs)
    pairs = Counter((a[1], b[1]) for a in rows for b in rows
                    if a[0] == b[0] and a[1] < b[1] and abs(a[2] - b[2]) <= 1)  # fmt: skip
    return {
        "passed": Counter(row for row in rows if row[1] > 3),
        "sums": sums,
        "busiest": Counter(busiest.items()),
        "pairs": pairs,
        "by_state": Counter(Counter(history.people[number].values()).items()),
    }


def found(frame: Any) -> Counter[Any]:
    return Counter(tuple(minutes(value) for value in row) for row in frame.collect())


def minutes(value: Any) -> Any:
    if not hasattr(value, "astimezone"):
        return value
    return round(((value.astimezone() - EPOCH).total_seconds() * SECOND - START_US) / MINUTE)


@pytest.fixture(params=["auto", pytest.param("spark", marks=pytest.mark.proof)])
def engine(request: pytest.FixtureRequest, warm_spark: Any, tmp_path: Path) -> Iterator[ab.Engine]:
    with ab.connect(tmp_path / "warehouse", kernel=request.param) as opened:
        yield opened


@pytest.mark.parametrize("seed", [1])
def test_the_past_is_what_it_was(engine: ab.Engine, seed: int) -> None:
    history = play(engine, np.random.default_rng(seed), buckets=4)
    assert any(meant(history, 1)["sums"]), "some windows have closed"
    was = {}
    for at, number in enumerate(history.numbers):
        for name in QUERIES:
            position = engine._log.moments.before_bucket(engine._log.stream(name).id, number + 1)
            was[at, name] = found(engine.table(name, position_as_of=position))
    for name in ("s", "people"):
        assert engine.stream(name).compact().segments_read > 0
    assert len(engine._log.plan("s", ReadRange()).segments) == 1
    for at, number in enumerate(history.numbers):
        right = meant(history, at)
        with engine.branch(at=number) as past:
            if at < len(history.numbers) - 1:
                assert any(s.cut is not None for s in past._log.plan("s", ReadRange()).segments)
            assert found(past.stream("s").read()) == Counter(history.rows[at])
            assert past._log.stream("s").rows == len(history.rows[at])
            for name in QUERIES:
                got = found(past.table(name))
                assert got == right[name], f"{name} at bucket {number}: {got - right[name]} {right[name] - got}"
                assert got == was[at, name], f"{name} at bucket {number}, as main says it was"
            if at == 1:
                go_on(past, history, at)


def go_on(past: ab.Engine, history: History, at: int) -> None:
    """A what-if: rows that come on the branch meet the rows of then and no others."""
    new = (1, 8, 3 * at + 9)
    for source in ("a", "b"):
        made = {"k": new[0], "v": new[1], "ts": to_datetime(START_US + new[2] * MINUTE)}
        past.stream("s").append([made], source=source)
    past.advance()
    after = History([[*history.rows[at], new, new]], [history.people[at]], [new[2] - 1])
    for name, right in meant(after, 0).items():
        assert found(past.table(name)) == right, name


def test_a_past_answer_that_depends_on_buckets_is_taken_through_them(engine: ab.Engine) -> None:
    """What a lookup found stays found, and a query that says no revisions has not said any, then as ever."""
    engine.sql("""
        CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts;
        CREATE STREAM names (k INT, name STRING, ts TIMESTAMP) EVENT TIME ts KEY (k);
        CREATE STREAM firm AS SELECT k, count(*) AS c, cq_close(*) AS t FROM s <SLICES '1 minute'> GROUP BY k
            ON REVISION IGNORE
    """)
    was = {}
    for number in range(4):
        at = to_datetime(START_US + number * MINUTE)
        late = to_datetime(START_US + (number - 1) * MINUTE) if number else at
        engine.stream("names").replace([{"k": 1, "name": f"n{number}", "ts": at}])
        engine.stream("s").append([{"k": 1, "v": number, "ts": at}, {"k": 1, "v": 9, "ts": late}])
        engine.advance()
        last = engine._log.register.buckets_after(0)[-1].number
        was[last] = found(engine.table("firm"))
    assert len({str(sorted(table.items())) for table in was.values()}) == 4
    for number, table in was.items():
        with engine.branch(at=number) as past:
            assert found(past.table("firm")) == table


def test_the_past_in_sql_and_by_time(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE STREAM passed AS SELECT v FROM s")
    for v in (1, 2, 3):
        engine.stream("s").append([{"k": 1, "v": v, "ts": to_datetime(START_US)}])
        engine.advance()
    first, second, _ = (b for b in engine._log.register.buckets_after(0))
    engine.sql(f"CREATE BRANCH one AT {first.number} EXPIRES '1 day'")
    with engine.branch("one") as past:
        assert found(past.table("passed")) == Counter([(1,)])
    with engine.branch(at=to_datetime(second.stime)) as past:
        assert found(past.table("passed")) == Counter([(1,), (2,)])
        assert [h.rows for h in past.stream("s").runs()] == [1, 1]
    with pytest.raises(AnabranchError) as caught:
        engine.branch("one", at=first.number)
    assert caught.value.id == "BRANCH_EXISTS"
    with pytest.raises(AnabranchError) as caught:
        engine.sql("CREATE BRANCH two AT 'yesterday'")
    assert caught.value.id == "BAD_TIME"
    assert "^" in str(caught.value)
    engine.sql("DROP BRANCH one")
