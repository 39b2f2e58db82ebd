"""The keeper: what is most overdue first, so much a turn, and no failure of a chore goes further."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.engine.retries import Retries
from anabranch.engine.upkeep.chore import Pace
from anabranch.engine.upkeep.keeper import Keeper, Progress
from anabranch.log.leases import Lease
from anabranch.model.errors import AnabranchError
from tests.conftest import FakeClock

LEASE = Lease(1, "here", 0)
HOUR_US = 3_600_000_000


class Chore:
    """So many portions, of which some fail."""

    def __init__(self, name: str, clock: FakeClock, portions: int = 1, steps: int = 4) -> None:
        self.name = name
        self.pace = Pace(clock, steps, HOUR_US)
        self.portions = portions
        self.looks = self.did = 0
        self.error: Exception | None = None

    def do(self, lease: Lease) -> bool:
        assert lease is LEASE
        self.looks += 1
        if self.error is not None:
            raise self.error
        if self.portions:
            self.portions -= 1
            self.did += 1
        return self.portions > 0

    def done(self) -> dict[str, int]:
        return {self.name: self.did}


def keeper(clock: FakeClock, *chores: Chore) -> Keeper:
    return Keeper(chores, Retries(clock))


def test_a_new_engine_looks_at_everything_and_then_waits(clock: FakeClock) -> None:
    a, b = Chore("a", clock, 0), Chore("b", clock, 0)
    kept = keeper(clock, a, b)
    assert kept.due()
    kept.turn(LEASE)
    assert (a.looks, b.looks, kept.due()) == (1, 1, False)
    for _ in range(3):
        kept.step()
        kept.turn(LEASE)
    assert a.looks == 1
    kept.step()
    kept.turn(LEASE)
    assert (a.looks, b.looks) == (2, 2)
    clock.pass_seconds(3600)
    assert kept.due(), "time passes too"


def test_a_turn_has_a_budget(clock: FakeClock) -> None:
    a = Chore("a", clock, 10)
    kept = keeper(clock, a)
    kept.turn(LEASE, budget=3)
    assert a.did == 3
    assert kept.due(), "what is left is due at once"
    for _ in range(4):
        kept.turn(LEASE, budget=3)
    assert (a.did, kept.due()) == (10, False)


def test_the_most_overdue_comes_first(clock: FakeClock) -> None:
    often, seldom = Chore("often", clock, 0, steps=2), Chore("seldom", clock, 0, steps=8)
    kept = keeper(clock, often, seldom)
    kept.turn(LEASE)
    for _ in range(9):
        kept.step()
    kept.turn(LEASE, budget=1)
    assert (often.looks, seldom.looks) == (2, 1)


def test_a_failure_stops_nothing_and_is_tried_again_later(clock: FakeClock) -> None:
    bad, good = Chore("bad", clock, 5), Chore("good", clock, 5)
    bad.error = OSError("no space")
    kept = keeper(clock, bad, good)
    for _ in range(4):
        kept.turn(LEASE)
    assert (bad.looks, good.did) == (1, 5), "it waits for its pause, the other does not"
    (told,) = kept.retries.shown().values()
    assert (told["failures"], told["error"]) == ("1", "OSError: no space")
    assert not kept.due()
    clock.pass_seconds(2)
    kept.turn(LEASE)
    assert bad.looks == 2
    bad.error = None
    clock.pass_seconds(10)
    kept.turn(LEASE)
    assert (bad.did, kept.retries.shown()) == (3, {})


@pytest.mark.parametrize("error_id", ["FENCED", "ENGINE_CLOSED"])
def test_a_lost_lease_ends_the_turn(clock: FakeClock, error_id: str) -> None:
    parts: Any = dict.fromkeys(("place", "need", "got", "next_step"), "x")
    a, b = Chore("a", clock, 5), Chore("b", clock, 5)
    a.error = b.error = AnabranchError(error_id, **parts)
    kept = keeper(clock, a, b)
    kept.turn(LEASE)
    assert (a.looks + b.looks, kept.retries.shown()) == (1, {}), "nobody's fault, and not ours to go on"


def test_those_that_have_much_to_do_take_turns(clock: FakeClock) -> None:
    a, b = Chore("a", clock, 50), Chore("b", clock, 50)
    kept = keeper(clock, a, b)
    for _ in range(5):
        kept.turn(LEASE, budget=2)
    assert (a.did, b.did) == (5, 5)


def test_all_of_it_for_whoever_waits(clock: FakeClock) -> None:
    a, b = Chore("a", clock, 7), Chore("b", clock, 2)
    told: list[Progress] = []
    assert keeper(clock, a, b).all(LEASE, told.append) == {"a": 7, "b": 2}
    assert [progress.chore for progress in told] == ["a"] * 7 + ["b"] * 2
    c = Chore("c", clock)
    c.error = OSError("no space")
    with pytest.raises(OSError, match="no space"):
        keeper(clock, c).all(LEASE)
