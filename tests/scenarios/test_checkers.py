"""A checker that cannot fail proves nothing: each is shown a world that was tampered with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from anabranch.lab.checkers import CHECKERS, check
from anabranch.lab.experiments.setups import single
from anabranch.lab.simulation import SECOND
from anabranch.lab.world import World
from anabranch.protocol.dpc.items import Chunk, Item, ItemId
from anabranch.protocol.dpc.line import Limits
from anabranch.protocol.dpc.states import State


def healed() -> World:
    """A failure of four seconds, in a small world."""
    return World(single(4 * SECOND, 2 * SECOND, 30)).run()


def late(world: World) -> None:
    """Nothing comes for ten seconds."""
    record = world.client_record("client")
    record.reached = [(now, stime) for now, stime in record.reached if not 12 * SECOND < now < 22 * SECOND]


def tentative_from_the_wrong_one(world: World) -> None:
    world.client_record("client").tentative_from.append((20 * SECOND, "nb"))


def too_early(world: World) -> None:
    world.first_tentative.append((12 * SECOND, "na", 10, 1_800_000))


def twice(world: World) -> None:
    record = world.nodes["na"].records[0]
    record.repeated.append(ItemId(3, 0))


def full(world: World) -> None:
    buffer = world.nodes["na"].node.lines["n"].out.buffer
    buffer.chunks = [Chunk(bucket, 0, (Item(bucket),)) for bucket in range(100)]


def stuck(world: World) -> None:
    world.nodes["nb"].node.lines["n"].state = State.UP_FAILURE


def standing(world: World) -> None:
    world.client_record("client").standing.append(Chunk(3, 0, (Item(3),)))


def different(world: World) -> None:
    chunks = world.nodes["na"].records[0].stable
    first = chunks[0]
    chunks[0] = first._replace(items=(first.items[0]._replace(body="another"), *first.items[1:]))


def lost(world: World) -> None:
    del world.client_record("client").stable[5]


TAMPERED: dict[str, Callable[[World], None]] = {
    "delay_bound_kept": late,
    "stable_is_preferred": tentative_from_the_wrong_one,
    "tentative_only_when_due": too_early,
    "no_stable_item_twice": twice,
    "buffers_bounded": full,
    "no_deadlock": stuck,
    "eventually_consistent": standing,
    "replicas_agree_after_heal": different,
    "output_equals_failure_free": lost,
}


def test_every_checker_is_tried() -> None:
    assert set(TAMPERED) == set(CHECKERS)
    assert check(healed()) == []


@pytest.mark.parametrize("name", list(TAMPERED))
def test_a_broken_promise_is_seen(name: str) -> None:
    world = healed()
    TAMPERED[name](world)
    assert {violation.checker for violation in check(world)} == {name}


def test_an_input_that_holds_more_than_its_sources_have_is_seen() -> None:
    world = healed()
    world.spec = replace(world.spec, limits=Limits(most=1000))
    assert check(world) == []
    world.nodes["na"].most_held = 100_000
    assert {violation.checker for violation in check(world)} == {"buffers_bounded"}
