"""The law of aggregates: however rows are split, and in whatever order and tree their partials are reduced,
the result is that of the whole, which is what a formula says that knows nothing of partials.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.diagram.aggregates import LAWS
from anabranch.reference.aggregates import MEANINGS, Observation, State, final, partial, reduce, subtract
from anabranch.reference.values import Failed, Refused, sort_key

Arguments = tuple[Any, ...]

WHOLE = st.integers(-(2**40), 2**40) | st.integers(-3, 3)
DECIMALS = st.decimals(-1000, 1000, places=2)
# Widely different magnitudes, where any order of adding but the exact one would show.
DOUBLES = st.floats(-1e150, 1e150) | st.sampled_from([1e100, 1.0, -1e100, 0.1, -0.0, 5e-324])
SPECIAL = DOUBLES | st.sampled_from([math.nan, math.inf, -math.inf])
FRACTION = st.sampled_from([0, 1, Decimal("0.5"), Decimal("0.25"), Decimal("0.07"), 0.9, 0.1])


def nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return values | values | values | st.none()


def lists_of(*kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Arguments]]:
    """Rows of one argument, all of one type, as a column has."""
    return st.one_of(st.lists(st.tuples(nullable(kind)), max_size=10) for kind in kinds)


def with_fraction(rows: st.SearchStrategy[list[Arguments]]) -> st.SearchStrategy[list[Arguments]]:
    return st.builds(lambda found, fraction: [(*row, fraction) for row in found], rows, FRACTION)


NUMBERS = lists_of(WHOLE, DECIMALS, DOUBLES, SPECIAL)
ANYTHING = lists_of(WHOLE, DECIMALS, SPECIAL, st.text(max_size=2), st.booleans())
PAIRS = st.lists(st.tuples(nullable(st.integers(0, 2)), nullable(st.sampled_from("ab"))), max_size=10)
TRUTHS = lists_of(st.booleans())

INPUTS: dict[str, st.SearchStrategy[list[Arguments]]] = {
    "count": st.lists(st.just(()), max_size=10) | PAIRS,
    "count_if": TRUTHS,
    "min": ANYTHING,
    "max": ANYTHING,
    "bool_and": TRUTHS,
    "bool_or": TRUTHS,
    "first": ANYTHING,
    "last": ANYTHING,
    "approx_count_distinct": ANYTHING,
    "approx_percentile": with_fraction(ANYTHING),
    "count_distinct": PAIRS | ANYTHING,
    "percentile": with_fraction(NUMBERS),
    "apply": st.lists(WHOLE, max_size=10).map(lambda values: [(v, "v", f"{__name__}:in_order", "'") for v in values]),
}


def in_order(rows: pa.Table) -> list[int]:
    """A function of a user's, whose result depends on the order of the rows."""
    return [int(value) for value in rows["v"].to_pylist()]


# The formulas. Each takes the rows that are there, in the order of first and last.


def known(rows: list[Arguments]) -> list[Any]:
    return [row[0] for row in rows if row[0] is not None]


def total(rows: list[Arguments]) -> Any:
    values = known(rows)
    if not values:
        return None
    if not isinstance(values[0], float):
        return sum(values)
    if math.inf in values and -math.inf in values:
        return math.nan
    return math.fsum(values)


def mean(rows: list[Arguments]) -> Any:
    values = known(rows)
    if not values:
        return None
    if isinstance(values[0], Decimal):
        exact = Fraction(sum(values)) / len(values)
        return (Decimal(exact.numerator) / exact.denominator).quantize(Decimal("1e-6"), ROUND_HALF_UP)
    return float(total(rows)) / len(values)


def spread(formula: Callable[[list[float]], float], least: int) -> Callable[[list[Arguments]], Any]:
    def direct(rows: list[Arguments]) -> Any:
        values = [float(value) for value in known(rows)]
        if len(values) < least:
            return None
        return formula(values) if all(map(math.isfinite, values)) else math.nan

    return direct


def lowest(rows: list[Arguments]) -> Any:
    numbers = [value for value in known(rows) if value == value]
    return min(numbers) if numbers else known(rows)[0] if known(rows) else None


def highest(rows: list[Arguments]) -> Any:
    values = known(rows)
    nans = [value for value in values if value != value]
    return nans[0] if nans else max(values, default=None)


def distinct(rows: list[Arguments]) -> int:
    complete = [row for row in rows if None not in row]
    return len({tuple("NaN" if value != value else value for value in row) for row in complete})


def discrete(rows: list[Arguments]) -> Any:
    """The smallest value that so many are not above."""
    values = known(rows)
    if not values:
        return None
    enough = Fraction(str(rows[0][1])) * len(values)
    reached = [v for v in values if sum(sort_key(w) <= sort_key(v) for w in values) >= enough]
    return min(reached, key=sort_key)


def between(rows: list[Arguments], fraction: Any) -> Any:
    """Linear interpolation, exactly; the reference does it in doubles and may be off by their rounding."""
    values = sorted((float(value) for value in known(rows)), key=sort_key)
    if not values:
        return None
    position = (len(values) - 1) * float(fraction)
    low, high = values[math.floor(position)], values[math.ceil(position)]
    if low == high or position == math.floor(position):
        return low
    if not (math.isfinite(low) and math.isfinite(high)):
        return math.nan if math.isinf(low) else low + high  # Spark goes a part of the way from the lower one on
    part = Fraction(position) - math.floor(position)
    return Near(float(Fraction(low) * (1 - part) + Fraction(high) * part), max(abs(low), abs(high)))


class Near(float):
    """A double that others may miss by a few roundings at a given magnitude."""

    def __new__(cls, value: float, magnitude: float) -> Near:
        near = super().__new__(cls, value)
        near.room = magnitude * 1e-15 + 1e-320  # type: ignore[attr-defined]
        return near


DIRECT: dict[str, Callable[[list[Arguments]], Any]] = {
    "apply": lambda rows: [row[0] for row in rows] or None,
    "count": lambda rows: len([row for row in rows if None not in row]),
    "count_if": lambda rows: rows.count((True,)),
    "sum": total,
    "avg": mean,
    "var_samp": spread(statistics.variance, 2),
    "var_pop": spread(statistics.pvariance, 1),
    "stddev_samp": spread(statistics.stdev, 2),
    "stddev_pop": spread(statistics.pstdev, 1),
    "min": lowest,
    "max": highest,
    "bool_and": lambda rows: all(known(rows)) if known(rows) else None,
    "bool_or": lambda rows: any(known(rows)) if known(rows) else None,
    "first": lambda rows: rows[0][0] if rows else None,
    "last": lambda rows: rows[-1][0] if rows else None,
    "approx_count_distinct": distinct,
    "approx_percentile": discrete,
    "count_distinct": distinct,
    "median": lambda rows: between(rows, 0.5),
    "percentile": lambda rows: between(rows, rows[0][1]) if rows else None,
}


def agree(got: Any, expected: Any) -> bool:
    if isinstance(expected, Near):
        return abs(got - expected) <= expected.room  # type: ignore[attr-defined]
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(got, float) and math.isnan(got)
    return type(got) is type(expected) and got == expected and (isinstance(got, float) or str(got) == str(expected))


FOR_PEOPLE = [name for name, law in LAWS.items() if not law.ours]


def reduced(states: list[State], chance: Any) -> State:
    """All states as one, two at a time, in a tree that chance draws."""
    while len(states) > 1:
        chance.shuffle(states)
        states = [reduce(states[0], states[1]), *states[2:]]
    return reduce(*states)


def test_every_aggregate_has_a_meaning_and_a_formula() -> None:
    assert MEANINGS.keys() == set(FOR_PEOPLE) == DIRECT.keys()


@pytest.mark.parametrize("function", FOR_PEOPLE)
@settings(deadline=None, max_examples=40)
@given(st.data(), st.randoms(use_true_random=False))
def test_any_split_order_and_tree_give_the_whole(function: str, data: st.DataObject, chance: Any) -> None:
    rows = data.draw(INPUTS.get(function, NUMBERS))
    times = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    orders = [(time, *map(sort_key, row)) for time, row in zip(times, rows, strict=True)]
    there = [Observation(row, 1, order) for row, order in zip(rows, orders, strict=True)]
    gone = [seen for seen in there if chance.random() < 0.3]
    weighted = there + [seen._replace(weight=1) for seen in gone] + [seen._replace(weight=-1) for seen in gone]
    chance.shuffle(weighted)

    parts: list[list[Observation]] = [[] for _ in range(chance.randint(1, 4))]
    for seen in weighted:
        chance.choice(parts).append(seen)
    result = final(function, reduced([partial(function, part) for part in parts], chance))

    assert agree(result, final(function, partial(function, there)))
    left = subtract(partial(function, there + gone), partial(function, gone))
    assert agree(final(function, left), result)
    direct = DIRECT[function]([seen.arguments for seen in sorted(there, key=lambda seen: seen.order)])
    assert agree(result, direct), (result, direct)


def of(function: str, *values: Any, extra: tuple[Any, ...] = ()) -> Any:
    return final(function, partial(function, [Observation((value, *extra)) for value in values]))


def test_sums_leave_their_type_with_an_error_or_an_infinity() -> None:
    assert of("sum", 2**63 - 1, 1, -1) == 2**63 - 1, "what comes to fit is no overflow, in any order"
    with pytest.raises(Failed):
        of("sum", 2**63 - 1, 1)
    with pytest.raises(Failed):
        of("sum", *[Decimal(10) ** 37] * 10)
    assert of("sum", 1.7e308, 1.7e308) == math.inf
    assert of("sum", 1.7e308, 1.7e308, -1.7e308) == 1.7e308
    assert of("avg", 1.7e308, 1.7e308) == math.inf
    assert of("avg", 2**63 - 1, 2**63 - 1) == 2.0**63, "a sum that is only divided may be larger than BIGINT"
    with pytest.raises(Refused):
        of("sum", "1")


def test_averages_and_deviations() -> None:
    assert of("avg", Decimal("0.01"), Decimal("0.02"), Decimal("0.02")) == Decimal("0.016667")
    assert str(of("avg", Decimal("-1.00"), Decimal("-2.00"))) == "-1.500000"
    assert of("stddev_pop", 0.0, 2.0) == 1.0
    assert of("stddev_samp", 1) is None
    assert of("var_pop", 1) == 0.0


def test_percentages_are_as_they_are_written() -> None:
    hundred = range(1, 101)
    assert of("approx_percentile", *hundred, extra=(Decimal("0.07"), 100)) == 7
    assert of("approx_percentile", *hundred, extra=(0.07,)) == 7
    assert of("approx_percentile", *hundred, extra=(0,)) == 1
    assert of("percentile", *hundred, extra=(Decimal("0.5"),)) == 50.5
    with pytest.raises(Failed):
        of("percentile", 1, extra=(2,))


def test_a_deletion_without_its_row_waits() -> None:
    assert final("max", partial("max", [Observation((1,)), Observation((9,), -1)])) == 1
