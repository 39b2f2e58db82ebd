"""BOREALIS, section 3.3: bounds on history, normalised along a chain of aggregates."""

from __future__ import annotations

import pytest

from anabranch.diagram.bounds import EVER, age_of, normalised, stretch
from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Join, Side
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.diagram.expression import Expression, Named
from anabranch.model.window import Window

HOUR = 3_600_000_000
A = Expression("a")
S = Source("s", ("a",))
MOST = (Call("_a0", "max", (A,)),)
COUNT = (Call("_a0", "count"),)
SIDES = (Side("l", ("a",)), Side("r", ("a",)))


def hours(many: float) -> Window:
    return Window(int(many * HOUR), int(many * HOUR))


def chain(first: tuple[Call, ...] = MOST) -> tuple[Box, Box]:
    """A window of 2 hours, and over it one of 1 hour."""
    below = Aggregate(S, hours(2), (), first)
    return below, Aggregate(View(Map(below, (Named("a", A),)), "q"), hours(1), (), MOST)


def test_the_second_aggregate_needs_four_hours_only() -> None:
    first, second = chain()
    assert normalised(second, 10 * HOUR, {"q": 5 * HOUR}) == {first: 5 * HOUR, second: 4 * HOUR}
    assert age_of(first, 5 * HOUR) == 3 * HOUR, "revisions for messages up to 3 hours old"


def test_the_same_where_the_second_reads_what_the_first_has_said() -> None:
    q = Source("q", ("a",))
    second = Aggregate(q, hours(1), (), MOST)
    ages: dict[Box, int] = {q: age_of(chain()[0], 5 * HOUR)}
    assert normalised(second, 10 * HOUR, ages=ages) == {second: 4 * HOUR}


def test_a_bound_that_is_shorter_than_what_is_needed_stays() -> None:
    first, second = chain()
    assert normalised(second, 2 * HOUR, {"q": 5 * HOUR}) == {first: 5 * HOUR, second: 2 * HOUR}


def test_what_adds_and_subtracts_reads_nothing_again() -> None:
    first, second = chain(COUNT)
    assert stretch(first) is None
    assert normalised(second, 10 * HOUR, {"q": 5 * HOUR}) == {second: 10 * HOUR}, "and lets through what is old"


def test_without_a_bound_there_is_none() -> None:
    first, second = chain()
    assert normalised(second, None, {"q": 5 * HOUR}) == {first: 5 * HOUR}
    assert normalised(second, None, {"q": None}) == {}


@pytest.mark.parametrize(
    ("box", "around"),
    [
        (S, None),
        (Filter(S, A), None),
        (Union((S, S)), None),
        (Partials(S, 60, (), MOST), 60),
        (Partials(S, None, (), MOST), EVER),
        (Partials(S, 60, (), COUNT), None),
        (Partials(S, None, (), (Call("_a0", "latest", (A,)),)), None),
        (Partials(S, 60, (), (*COUNT, Call("_a1", "approx_count_distinct", (A,)))), 60),
        (Partials(S, 60, (), (Call("_a0", "median", (A,)),)), None),
        (Aggregate(S, None, (), MOST), EVER),
        (Join((S, S), SIDES, A, 5), 5),
        (Join((S, S), SIDES, A, 5, None, True), 10),
        (Join((S, S), SIDES, A), None),
    ],
)
def test_how_far_back_each_box_reads(box: Box, around: int | None) -> None:
    assert stretch(box) == around


def test_a_union_brings_what_its_oldest_part_brings() -> None:
    old, new = Source("old", ("a",)), Source("new", ("a",))
    both = Aggregate(Union((old, new)), hours(1), (), MOST)
    assert normalised(both, 10 * HOUR, ages={old: 5 * HOUR, new: HOUR}) == {both: 6 * HOUR}
    assert normalised(both, 10 * HOUR, ages={new: HOUR}) == {both: 10 * HOUR}
