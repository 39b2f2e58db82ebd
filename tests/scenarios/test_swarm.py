"""Drawn worlds: every promise in each; what a failing one prints; the same trace every time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from anabranch.lab.checkers import check
from anabranch.lab.draw import drawn
from anabranch.lab.simulation import SECOND
from anabranch.lab.swarm import Swarm, prefix_of, run, shrunk, swarm
from anabranch.lab.world import World
from anabranch.protocol.dpc.line import Rules

FEW, MANY, AT_ONCE = 30, 200, 50


def ran(first: int, runs: int) -> Swarm:
    total = Swarm()
    for sofar in swarm(first, runs):
        total = sofar
    assert not total.failures, "\n".join(map(str, total.failures))
    assert total.worlds == runs
    return total


def test_thirty_worlds() -> None:
    total = ran(0, FEW)
    assert total.hours * 3600 >= 60 * FEW


@pytest.mark.proof
@pytest.mark.parametrize("first", range(FEW, FEW + MANY, AT_ONCE))
def test_two_hundred_worlds(first: int) -> None:
    ran(first, AT_ONCE)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_thousand_worlds() -> None:
    total = ran(0, 1000)
    assert min(total.counts.values()) >= 50, total.counts


@pytest.mark.parametrize("seed", range(0, 300, 7))
def test_what_a_world_is_made_of(seed: int) -> None:
    spec = drawn(seed)
    assert spec.duration >= 60 * SECOND
    assert len(spec.faults) >= 2
    assert all(spec.duration // source.every >= 200 for source in spec.sources)


def test_worlds_differ() -> None:
    specs = [drawn(seed) for seed in range(200)]
    assert {fragment.replicas for spec in specs for fragment in spec.fragments} == {2, 3}
    assert {spec.depth for spec in specs} >= {1, 2, 3, 4, 5, 6}
    assert any(len(f.inputs) == 2 and not {"s1", "s2"} & set(f.inputs) for spec in specs for f in spec.fragments)
    assert len({fault.kind for spec in specs for fault in spec.faults}) == 8
    nested = [(a, b) for spec in specs for a in spec.faults for b in spec.faults if a.at < b.at and b.until < a.until]
    assert nested


def test_a_seed_is_a_world() -> None:
    first, again = run(5, trace=True), run(5, trace=True)
    assert first.trace.lines == again.trace.lines
    assert len(first.trace.lines) > 1000
    assert first.trace.digest != run(6, trace=True).trace.digest


@pytest.mark.parametrize("seed", [11])
def test_the_same_trace_whatever_the_hash_seed(seed: int) -> None:
    """Sets and dicts of strings do not decide anything."""
    code = f"from anabranch.lab.swarm import run; print(run({seed}, trace=True).trace.digest)"
    said = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": hash_seed},
            text=True, capture_output=True, check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]  # fmt: skip
    assert said[0] == said[1]
    assert len(said[0].strip()) == 64


def test_a_failure_says_how_to_replay_it_and_how_little_it_takes() -> None:
    rules = Rules(tie_break=False)
    seed = 0
    violations = check(run(seed, rules=rules))
    assert violations
    failure = shrunk(seed, violations, rules)
    assert failure.command in str(failure)
    assert failure.command == f"anabranch lab replay {seed} --faults {len(failure.prefix)}"
    assert 0 < len(failure.prefix) <= len(drawn(seed).faults)
    assert failure.violations, "the prefix alone breaks a promise"


def test_a_prefix_of_a_schedule() -> None:
    spec = drawn(3)
    assert prefix_of(spec, 2).faults == spec.faults[:2]
    assert not check(World(prefix_of(spec, 0)).run())
