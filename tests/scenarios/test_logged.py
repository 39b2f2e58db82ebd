"""Drawn schedules drive the production log: stable items in its runs, tentative ones in its overlay."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.lab.checkers import check
from anabranch.lab.draw import drawn
from anabranch.lab.logged import LoggedStore, faults_of
from anabranch.lab.world import World

PROVED, SOAKED, AT_ONCE = 20, 50, 10


def drive(seed: int, place: Path, everywhere: bool = False) -> LoggedStore:
    """With the log under all nodes, or under those that the client reads."""
    spec = drawn(seed)
    store = LoggedStore(place / f"w{seed}", None if everywhere else spec.fragments[-1].nodes)
    try:
        world = World(spec, store=store).run()
        assert check(world) == []
        assert faults_of(world, store) == [], f"seed {seed}"
    finally:
        store.close()
    return store


@pytest.mark.parametrize("seed", [3])
def test_a_schedule_drives_the_log(seed: int, tmp_path: Path) -> None:
    store = drive(seed, tmp_path, everywhere=True)
    assert store.undone > 0, "something was tentative, and undone"


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=pytest.mark.proof if first < PROVED else pytest.mark.soak)
        for first in range(0, SOAKED, AT_ONCE)
    ],
)
def test_schedules_drive_the_log(first: int, tmp_path: Path) -> None:
    undone = sum(drive(seed, tmp_path).undone for seed in range(first, first + AT_ONCE))
    assert undone >= AT_ONCE
