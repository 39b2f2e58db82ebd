"""The law of order independence: whatever the order in which data came, the answer is that of one batch.

For random queries, data, runs and buckets, with speculation, aborts and real kills:
the table equals the same SQL as one Spark batch over all committed rows; replaying the changes gives the table;
and the same buckets, taken together or on other partitions, emit the same items, byte for byte.

A case is drawn from its seed alone: one that fails is replayed, and any number of others run, with

    pytest -m soak tests/laws/test_law_of_order_independence.py --cases FIRST:MANY
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.engine import kept, kernel, saying
from tests.laws.cases import draw_case
from tests.laws.killed import STEP
from tests.laws.play import assert_reduced, assert_replays, assert_same, meant, oracle, play, said, table

FIRST, IN_TEST, IN_PROOF = 1000, 20, 60
WANTED = ("late rows", "abort", "kill", "null keys", "sliding", "stacked", "running", "sum over", "drift", "reduced")


def check_case(seed: int, place: Path) -> set[str]:
    case = draw_case(seed)
    with ab.connect(place / f"{seed}") as engine:
        play(engine, case)
        for query in case.queries:
            ours, what = table(engine, query.name), f"case {seed} (--cases {seed}:1), {query.ours}"
            assert_same(ours, oracle(engine, case, query), what, [at for at, _ in query.exact])
            assert_same(ours, meant(engine, case, query), f"{what}, by the reference")
            assert_replays(engine, query.name)
            if "reduced" in case.traits and "REVISE EVERY" not in query.ours:
                assert_reduced(engine, query)
    return case.traits


@pytest.mark.parametrize("seed", range(FIRST, FIRST + IN_TEST))
def test_the_table_is_the_batch_answer_and_the_changes_replay(warm_spark: Any, tmp_path: Path, seed: int) -> None:
    check_case(seed, tmp_path)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(FIRST + IN_TEST, FIRST + IN_TEST + IN_PROOF))
def test_more_cases(warm_spark: Any, tmp_path: Path, seed: int) -> None:
    check_case(seed, tmp_path)


@pytest.mark.soak
def test_as_many_cases_as_asked_for(warm_spark: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    first, many = map(int, request.config.getoption("--cases").split(":"))
    for seed in range(first, first + many):
        print(seed, *sorted(check_case(seed, tmp_path)), flush=True)


@pytest.mark.parametrize(
    ("first", "many"), [(FIRST, IN_TEST), pytest.param(FIRST + IN_TEST, IN_PROOF, marks=pytest.mark.proof)]
)
def test_the_cases_cover_what_they_are_about(first: int, many: int, said_at_the_end: list[str]) -> None:
    counts = Counter(trait for seed in range(first, first + many) for trait in draw_case(seed).traits)
    shown = ", ".join(f"{trait} {counts[trait]}" for trait in WANTED)
    said_at_the_end.append(f"order independence, of {many} cases: {shown}")
    phases = {phase: counts[f"kill: {phase}"] for phase in STEP}
    said_at_the_end.append(f"kills: {', '.join(f'{phase} {count}' for phase, count in phases.items())}")
    assert all(counts[trait] >= many / 10 for trait in WANTED), counts
    assert all(phases.values()) or many < IN_PROOF, phases


@pytest.mark.parametrize(
    "seed", [2000, 2001, *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(2002, 2012))]
)
def test_the_same_buckets_emit_the_same_bytes(
    warm_spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    case = draw_case(seed, kills=False)
    with ab.connect(tmp_path / "one") as engine:
        play(engine, case, at_once=1, catch_up=True)
        expected = {query.name: said(engine, query.name) for query in case.queries}
    with ab.connect(tmp_path / "all") as engine:
        play(engine, case, catch_up=True)
        assert {query.name: said(engine, query.name) for query in case.queries} == expected
    for module in (kernel, kept, saying):
        monkeypatch.setattr(module, "SMALL", 0)  # as if there were much data: several partitions everywhere
    with ab.connect(tmp_path / "many") as engine:
        play(engine, case, at_once=2, catch_up=True)
        assert {query.name: said(engine, query.name) for query in case.queries} == expected
