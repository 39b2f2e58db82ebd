"""Random queries over random data, cut into runs and buckets at random: the cases of the order-independence laws.

A case is drawn from a seed and from nothing else. It knows its queries as our SQL, and the same queries as plain
Spark SQL over a view of all committed rows: the oracle.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from anabranch.log.reduction import FAN
from tests.laws.killed import STEP

START = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = "k STRING, n INT, b BIGINT, d DOUBLE, x DECIMAL(12, 2), ts TIMESTAMP"
END = START + timedelta(days=40)
_COLUMNS = ("k", "n", "b", "d", "x", "ts")

# What a call is in our SQL, and in Spark's own; most are the same. Doubles are compared to 1e-9, but sums of them, and
# averages, to the bit with `math.fsum`: the oracle brings the values, and says what is to be made of them.
_CALLS = (
    ("count(*)", None),
    ("count(n)", None),
    ("count(DISTINCT k)", None),
    ("sum(n)", None),
    ("sum(b)", None),
    ("sum(x)", None),
    ("sum(d)", "collect_list(d)"),
    ("avg(n)", None),
    ("avg(x)", None),
    ("avg(d)", "collect_list(d)"),
    ("min(n)", None),
    ("max(d)", None),
    ("min(k)", None),
    ("max(x)", None),
    ("stddev(n)", None),
    ("variance(x)", None),
    ("median(n)", None),
    ("percentile(d, 0.25)", None),
    ("count_if(n > 0)", None),
    ("bool_or(n > 5)", None),
    ("first(n)", "min_by(struct(n), struct(ts, k, n, b, d, x)).n"),
    ("last(k)", "max_by(struct(k), struct(ts, k, n, b, d, x)).k"),
    ("sum(n) FILTER (WHERE k = 'a')", None),
    ("count(*) FILTER (WHERE d > 0)", None),
    ("sum(n * 2L + length(coalesce(k, '')))", None),
)
# What can be summed again without an overflow in these cases; sums of doubles are compared to the bit.
_SUMMED = {"count(*)": False, "count(n)": False, "count(DISTINCT k)": False, "sum(n)": False, "avg(n)": True,
           "min(n)": False, "sum(x)": False, "count_if(n > 0)": False}  # fmt: skip
_WINDOWS = (("1 minute", None), ("5 minutes", None), ("15 minutes", "5 minutes"), ("6 minutes", "4 minutes"),
            ("1 hour", "10 minutes"))  # fmt: skip
_KEYS = ((), ("k",), ("k", "n % 3"), ("upper(k)",))
_FILTERS = (None, "n > 0", "k IS NOT NULL AND k <> 'b'", "d < 100 OR d IS NULL")


@dataclass(frozen=True)
class CaseQuery:
    """A query in our SQL, and its oracle in Spark's, over a view called `rows`."""

    name: str
    ours: str
    oracle: str
    exact: tuple[tuple[int, str], ...]  # columns of the oracle that are lists, and what is to be made of them
    kind: frozenset[str]


@dataclass(frozen=True)
class Action:
    """Something that happens: rows come, a bucket is recorded, a step is taken."""

    do: str  # append, speculate, abort, bucket, advance, kill
    rows: tuple[tuple[Any, ...], ...] = ()
    source: str | None = None
    commit: bool = True
    point: str = ""  # where a process is killed


@dataclass
class Case:
    seed: int
    slack: int
    drift: int | None
    queries: list[CaseQuery]
    actions: list[Action]
    traits: set[str] = field(default_factory=set)

    @property
    def committed(self) -> list[tuple[Any, ...]]:
        return [row for action in self.actions if action.commit for row in action.rows]


def draw_case(seed: int, *, kills: bool = True) -> Case:
    """A case; those with a kill go through the phases of a step in turn."""
    chance = np.random.default_rng(seed)
    queries = [_query(chance, number) for number in range(int(chance.integers(1, 3)))]
    rows = _rows(chance, int(chance.integers(20, 120)))
    slack, drift = int(chance.choice([0, 30, 600])), _pick(chance, [None, None, 60, 1800])
    kill = tuple(STEP)[(seed // 6 + seed // 30) % len(STEP)] if kills and seed % 6 == 4 else None
    actions = _many_runs(chance, rows) if seed % 5 == 1 else _actions(chance, rows, kill)
    case = Case(seed, slack, drift, queries, actions)
    case.traits = {trait for query in queries for trait in query.kind} | _traits(case)
    return case


def _traits(case: Case) -> set[str]:
    traits = {action.do for action in case.actions if action.do in ("abort", "kill", "speculate")}
    traits |= {f"kill: {action.point}" for action in case.actions if action.do == "kill"}
    if case.drift is not None:
        traits.add("drift")
    if sum(action.do == "advance" for action in case.actions) > FAN:
        traits.add("reduced")
    keys = [row[0] for row in case.committed]
    if None in keys and any("null keys" in query.kind for query in case.queries):
        traits.add("null keys")
    newest = START
    for action in case.actions:
        times = [row[5] for row in action.rows if action.commit]
        if times and min(times) < newest - timedelta(seconds=case.slack):
            traits.add("late rows")
        newest = max([newest, *times])
    return traits


def _rows(chance: np.random.Generator, many: int) -> list[tuple[Any, ...]]:
    rows = []
    for number in range(many):
        late = chance.random() < 0.2
        second = number * 120.0 / many * 60 - (chance.random() * 3000 if late else 0)
        rows.append(
            (
                _pick(chance, ["a", "b", "c", "a", None, "", "ß"]),
                _pick(chance, [*range(-3, 9), None, 2**31 - 1, -(2**31)]),
                _pick(chance, [*range(5), None, 2**55, -(2**55), 2**53 + 1]),
                _pick(chance, [0.1, 0.2, 0.3, -0.0, 1e300, -1e300, 1e-300, 1.5, None, 3.25, -7.125]),
                _pick(chance, [Decimal("0.01"), Decimal("-3.50"), Decimal("9999999999.99"), None, Decimal("1.00")]),
                START + timedelta(seconds=round(second, 3)),
            )
        )
        if chance.random() < 0.1:
            rows.append(rows[-1])
    if chance.random() < 0.3:
        odd = float(_pick(chance, [float("nan"), float("inf"), -float("inf")]))
        rows.append(("a", 1, 1, odd, None, START + timedelta(minutes=int(chance.integers(0, 120)))))
    if chance.random() < 0.2:
        rows.append(("a", 1, 1, 1.0, None, datetime(1965, 5, 5, tzinfo=UTC)))
    return rows


def _pick(chance: np.random.Generator, choices: list[Any]) -> Any:
    return choices[int(chance.integers(0, len(choices)))]


def _actions(chance: np.random.Generator, rows: list[tuple[Any, ...]], kill: str | None) -> list[Action]:
    """Runs in an order near that of the rows, now and then far from it."""
    cuts = sorted(set(chance.integers(0, len(rows), size=int(chance.integers(2, 6))).tolist()) | {0, len(rows)})
    runs = [tuple(rows[a:b]) for a, b in itertools.pairwise(cuts)]
    if chance.random() < 0.7:
        moved = runs.pop(int(chance.integers(0, len(runs))))
        runs.insert(int(chance.integers(0, len(runs) + 1)), moved)
    actions: list[Action] = []
    for run in runs:
        source = _pick(chance, [None, "one", "two"])
        fate = chance.random()
        if fate < 0.15:
            actions.append(Action("abort", run, source, commit=False))
        elif fate < 0.35:
            actions.append(Action("speculate", run, source))
            continue
        actions.append(Action("append", run, source))
        if chance.random() < 0.6:
            actions.append(Action("bucket"))
        if chance.random() < 0.2:
            actions.append(Action("advance"))
    if kill is not None:
        something_waits = [place for place, action in enumerate(actions, 1) if action.do in ("append", "speculate")]
        actions.insert(_pick(chance, something_waits), Action("kill", point=kill))
    return actions


def _many_runs(chance: np.random.Generator, rows: list[tuple[Any, ...]]) -> list[Action]:
    """More runs than the reducer takes at a time, each in a step of its own, most of them out of order."""
    parts = [tuple(rows[n :: FAN + 3]) for n in chance.permutation(FAN + 3).tolist()]
    actions = []
    for part in parts:
        actions += [Action("append", part, _pick(chance, [None, "one", "two"])), Action("advance")]
    return actions


def _query(chance: np.random.Generator, number: int) -> CaseQuery:
    shape = _pick(chance, ["plain", "plain", "stacked", "stacked", "running", "linear"])
    name = f"q{number}"
    options = _pick(chance, ["", "", " REVISE EVERY 2 BUCKETS", " ARCHIVE INTO q_archive"])
    options = options.replace("q_archive", f"q{number}_archive")
    if shape == "linear":
        where = _pick(chance, list(_FILTERS))
        clause = f" WHERE {where}" if where else ""
        ours = f"CREATE STREAM {name} AS SELECT k, n + 1L AS m, ts FROM s{clause}"
        return CaseQuery(name, ours, f"SELECT k, n + 1L AS m, ts FROM rows{clause}", (), frozenset({"linear"}))
    running = shape == "running"
    window = None if running else _pick(chance, list(_WINDOWS))
    inner, oracle, exact, kind = _aggregate(chance, window, plain=shape == "stacked")
    if running:
        kind |= {"running"}
    if shape == "stacked":
        inner, oracle, exact = _stacked(chance, inner, oracle)
        kind |= {"stacked"} | ({"sum over"} if "sum(c0)" in inner else set())
    return CaseQuery(name, f"CREATE STREAM {name} AS {inner}{options}", oracle, exact, frozenset(kind))


def _aggregate(
    chance: np.random.Generator, window: tuple[str, str | None] | None, plain: bool
) -> tuple[str, str, tuple[tuple[int, str], ...], set[str]]:
    keys = _pick(chance, list(_KEYS))
    known = [call for call in _CALLS if not (plain and (call[1] or "").startswith("collect"))]
    picked = sorted(set(chance.integers(0, len(known), size=int(chance.integers(1, 5))).tolist()))
    if plain:  # what comes first may be summed by the query above
        first = _pick(chance, [n for n, (call, _) in enumerate(known) if call in _SUMMED])
        picked = [first, *(n for n in picked if n > first)]
    where = _pick(chance, list(_FILTERS))
    condition = None if plain else _pick(chance, [None, None, "count(*) > 1", "sum(n) > 0"])
    exact = []
    kind = {"null keys"} if "k" in keys or "upper(k)" in keys else set()
    ours = [f"{key} AS g{at}" for at, key in enumerate(keys)]
    theirs = list(ours)
    for at, number in enumerate(picked):
        call, spark = known[number]
        if (spark or "").startswith("collect"):
            exact.append((len(keys) + at, call[:3]))
        ours.append(f"{call} AS c{at}")
        theirs.append(f"{spark or call} AS c{at}")
    groups = list(keys)
    clause = f" WHERE {where}" if where else ""
    tail = f" HAVING {condition}" if condition else ""
    over = ""
    batch_groups = list(keys)
    if window is not None:
        size, advance = window
        over = f" <SLICES '{size}'>" if advance is None else f" <VISIBLE '{size}' ADVANCE '{advance}'>"
        ours.append("cq_close(*) AS t")
        theirs.append("window.end AS t")
        slide = f", '{advance}'" if advance else ""
        batch_groups.append(f"window(ts, '{size}'{slide})")
        if advance:
            kind.add("sliding")
    grouped = f" GROUP BY {', '.join(groups)}" if groups else ""
    batch = f" GROUP BY {', '.join(batch_groups)}" if batch_groups else ""
    text = f"SELECT {', '.join(ours)} FROM s{over}{clause}{grouped}{tail}"
    oracle = f"SELECT {', '.join(theirs)} FROM rows{clause}{batch}{tail}"
    return text, oracle, tuple(exact), kind


def _stacked(chance: np.random.Generator, inner: str, oracle: str) -> tuple[str, str, tuple[tuple[int, str], ...]]:
    """An aggregate over an aggregate: legal over partials, or a gather point."""
    size, advance = _pick(chance, [("5 minutes", None), ("30 minutes", None), ("30 minutes", "15 minutes")])
    first = inner[: inner.index(" AS c0")].removeprefix("SELECT ").split(", ")[-1]
    legal = ["count(*)", "max(c0)", "min(t)", "count(DISTINCT c0)"]
    call = "sum(c0)" if chance.random() < 0.6 else _pick(chance, legal)
    over = f"<SLICES '{size}'>" if advance is None else f"<VISIBLE '{size}' ADVANCE '{advance}'>"
    slide = f", '{advance}'" if advance else ""
    ours = f"SELECT {call} AS a, cq_close(*) AS t FROM ({inner}) {over} AS i"
    when = "t - INTERVAL '0.000001' SECOND"
    doubles = call == "sum(c0)" and _SUMMED[first]
    theirs = "collect_list(c0)" if doubles else call
    batch = f"SELECT {theirs} AS a, window.end AS t FROM ({oracle}) AS i GROUP BY window({when}, '{size}'{slide})"
    return ours, batch, ((0, "sum"),) if doubles else ()
