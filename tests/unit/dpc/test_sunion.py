"""SUnion: when buckets are stable, how long incomplete ones wait, and what of them is taken."""

from __future__ import annotations

import pytest

from anabranch.protocol.dpc.delays import Delays, Policy
from anabranch.protocol.dpc.items import Chunk, Item, Tentative
from anabranch.protocol.dpc.sunion import SUnion

B = 100
FIRST, EACH, SETTLE = 1000, 400, 30


def items(bucket: int, *offsets: int) -> Chunk:
    return Chunk(bucket, 0, tuple(Item(bucket * B + offset, offset) for offset in offsets))


def two(**options: bool) -> SUnion:
    sunion = SUnion(("l", "r"), B, **options)
    for name in sunion.ports:
        sunion.boundary(name, 2 * B, now=200)
    for bucket in (1, 2):
        sunion.processed(bucket * B, tentative=False)
    return sunion


def waits(failure: Policy = Policy.PROCESS, stabilization: Policy = Policy.PROCESS, **options: int) -> Delays:
    return Delays(FIRST, EACH, failure, stabilization, settle=SETTLE, **options)


def test_the_first_wait_is_as_long_as_it_may_be() -> None:
    sunion = two()
    sunion.insert("l", items(2, 5), now=210)
    sunion.boundary("l", 3 * B, now=310)
    sunion.ports["r"].lost = True
    assert not sunion.stable_ready
    assert sunion.tentative_due(waits(), covering=False) == 200 + FIRST, "from when boundaries stopped for all"


def test_a_failure_upstream_was_waited_for_already() -> None:
    """Boundaries stop for all nodes of a chain at once, so the second one does not wait again."""
    sunion = SUnion(("l",), B)
    sunion.boundary("l", 2 * B, now=200)
    sunion.frontier = 2 * B
    late = 200 + FIRST + 7
    sunion.tentative("l", Tentative(items(2, 5)), now=late)
    sunion.tentative_boundary("l", 3 * B, now=late)
    due = sunion.tentative_due(waits(), covering=False)
    assert due is not None
    assert due <= late


def test_items_that_came_early_bound_the_wait() -> None:
    """A boundary that moves once in a while does not start the wait of older items anew."""
    sunion = two()
    sunion.insert("l", items(3, 5), now=210)
    sunion.boundary("l", 4 * B, now=310)
    sunion.boundary("r", 3 * B, now=900)
    sunion.processed(3 * B, tentative=False)
    assert sunion.tentative_due(waits(), covering=False) <= 210 + FIRST + SETTLE


def overlaid(**options: bool) -> SUnion:
    """One whose overlay has begun, with a bucket that has come from the left at 1300."""
    sunion = two(**options)
    sunion.processed(3 * B, tentative=True)
    sunion.insert("l", items(3, 5), now=1300)
    sunion.boundary("l", 4 * B, now=1310)
    return sunion


@pytest.mark.parametrize(
    ("policy", "lost", "due"),
    [
        (Policy.PROCESS, True, 1300),
        (Policy.PROCESS, False, 1300 + SETTLE),
        (Policy.DELAY, True, 1300 + EACH),
        (Policy.SUSPEND, True, None),
    ],
)
def test_policies_after_the_first_wait(policy: Policy, lost: bool, due: int | None) -> None:
    sunion = overlaid()
    sunion.ports["r"].lost = lost
    assert sunion.tentative_due(waits(failure=policy), covering=False) == due
    assert sunion.tentative_due(waits(Policy.PROCESS, policy), covering=True) == due


def test_tentative_boundaries_say_that_a_bucket_is_complete() -> None:
    sunion = overlaid()
    sunion.tentative("r", Tentative(items(3, 7)), now=1305)
    sunion.tentative_boundary("r", 4 * B, now=1305)
    assert sunion.tentative_due(waits(), covering=False) == 1300
    without = Delays(FIRST, EACH, settle=SETTLE, tentative_boundaries=False)
    assert sunion.tentative_due(without, covering=False) == 1300 + SETTLE, "what every node of the paper's chain waits"


@pytest.mark.parametrize(("delayed", "wait"), [(0, EACH), (FIRST - 100, 100), (2 * FIRST, 0)])
def test_items_carry_their_delay(delayed: int, wait: int) -> None:
    sunion = overlaid()
    sunion.tentative("r", Tentative(items(3, 7), delayed), now=1305)
    assert sunion.tentative_due(waits(failure=Policy.DELAY, budget=FIRST), covering=False) == 1300 + wait


def test_stable_items_take_the_place_of_tentative_ones() -> None:
    sunion = overlaid()
    sunion.tentative("r", Tentative(items(3, 7, 8)), now=1305)
    taken, missing, _ = sunion.take(3 * B, 4 * B, tentative=True)
    assert [i.body for i in taken["r"]] == [7, 8]
    assert missing == {"r"}
    sunion.insert("r", items(3, 9), now=1400)
    sunion.boundary("r", 4 * B, now=1400)
    taken, missing, _ = sunion.take(3 * B, 4 * B, tentative=True)
    assert [i.body for i in taken["r"]] == [9]
    assert missing == frozenset()


def test_what_is_too_late_for_the_overlay_is_left_to_the_corrections() -> None:
    sunion = overlaid()
    before = sunion.held
    sunion.tentative("r", Tentative(items(2, 7)), now=1305)
    assert sunion.held == before


def test_ordered_inputs_are_released_early() -> None:
    sunion = SUnion(("l", "r"), B, ordered=True)
    sunion.insert("l", items(0, 10, 40), now=1)
    sunion.insert("r", items(0, 20), now=2)
    assert sunion.stable_span() == (0, 20)
    taken, *_ = sunion.take(0, 20, tentative=False)
    assert [i.stime for i in taken["l"]] == [10]
    assert taken["r"] == []


def test_nothing_is_held_once_it_is_forgotten() -> None:
    sunion = overlaid()
    sunion.tentative("r", Tentative(items(3, 7, 8)), now=1305)
    assert sunion.held == 3
    sunion.undo("r")
    assert sunion.held == 1
    sunion.rewind(2 * B)
    assert sunion.overlay is None
    sunion.forget(5 * B)
    assert sunion.held == 0
    assert not sunion.arrived
