"""The aggregates, each as partial / reduce / final on plain values with weights.

A partial result is a finite map from something to a number: named figures for the linear aggregates (a sum and
its count, as exact fractions), values with their weights for all others. A row contributes such a map, its
weight multiplies it, and `reduce` adds maps and forgets zeros. So the law holds by construction, for any split
of the rows and any order of reduction:

    final(reduce(partial(A), partial(B))) == final(partial(A + B))
    final(subtract(partial(A + B), partial(B))) == final(partial(A))

Minimum, maximum, first, last, and the sketches keep every value here, so that they take deletions exactly;
approximate aggregates are exact. Sums, variances and deviations of doubles are fractions, rounded once at the end.
NULL is left out, but for first and last, to which it is a value; of no values everything is NULL but counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa

from anabranch.diagram.functions import EVENT_TIME, call
from anabranch.reference.casts import to_double
from anabranch.reference.exact import ratio_root, ratio_to_decimal, ratio_to_float
from anabranch.reference.values import (
    NAN,
    Failed,
    Refused,
    Value,
    canonical,
    fit,
    fit_decimal,
    kind,
    scale_of,
    sort_key,
)

State = Mapping[Hashable, int | Fraction]
_NUMBERS = ("whole", "decimal", "double")


class Observation(NamedTuple):
    """What a row shows to an aggregate: the arguments, and by what first and last order it."""

    arguments: tuple[Value, ...]
    weight: int = 1
    order: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Meaning:
    """What one observation of weight +1 contributes, and what a state means."""

    contribution: Callable[[Observation], State]
    final: Callable[[State], Value]


def partial(function: str, observations: Iterable[Observation]) -> State:
    contribution = MEANINGS[function].contribution
    return reduce(*(_times(contribution(seen), seen.weight) for seen in observations))


def reduce(*states: State) -> State:
    """Several partial results as one, still partial."""
    total: dict[Hashable, int | Fraction] = {}
    for state in states:
        for what, number in state.items():
            total[what] = total.get(what, 0) + number
    return {what: number for what, number in total.items() if number != 0}


def subtract(whole: State, part: State) -> State:
    """What is left of a partial result without a part of its rows."""
    return reduce(whole, _times(part, -1))


def final(function: str, state: State) -> Value:
    return MEANINGS[function].final(state)


def _times(state: State, weight: int) -> State:
    return {what: number * weight for what, number in state.items()}


# Counts.


def _if_all_known(seen: Observation) -> State:
    return {} if any(value is None for value in seen.arguments) else {"rows": 1}


def _if_true(seen: Observation) -> State:
    return {"rows": 1} if seen.arguments[0] is True else {}


def _count(state: State) -> Value:
    return int(state.get("rows", 0))


# Sums: the exact total of the finite values, how many values of each type and scale, how many of each special one.


class _Type(NamedTuple):
    """Later types are wider."""

    rank: int
    scale: int = 0


_WHOLE, _DECIMAL, _DOUBLE = 0, 1, 2


def _addend(seen: Observation) -> State:
    value = seen.arguments[0]
    match kind(value):
        case "NoneType":
            return {}
        case "whole":
            return {_Type(_WHOLE): 1, "total": Fraction(value)}
        case "decimal":
            return {_Type(_DECIMAL, scale_of(value)): 1, "total": Fraction(value)}
        case "double":
            return {_Type(_DOUBLE): 1, **_finite_or_not(value, {"total": Fraction})}
    raise Refused(f"a sum of {kind(value)}")


def _finite_or_not(value: float, finite: Mapping[str, Callable[[float], Fraction]]) -> State:
    if math.isnan(value):
        return {"nan": 1}
    if math.isinf(value):
        return {"inf" if value > 0 else "-inf": 1}
    return {name: make(value) for name, make in finite.items()}


def _type_of(state: State) -> _Type | None:
    return max((what for what, count in state.items() if isinstance(what, _Type) and count > 0), default=None)


def _special(state: State) -> float | None:
    """The sum where NaN or an infinity is among the values."""
    up, down = state.get("inf", 0) > 0, state.get("-inf", 0) > 0
    if state.get("nan", 0) > 0 or (up and down):
        return NAN
    return math.inf if up else -math.inf if down else None


def _sum(state: State) -> Value:
    type_, total = _type_of(state), Fraction(state.get("total", 0))
    if type_ is None:
        return None
    if type_.rank == _WHOLE:
        return fit(int(total), 64)
    if type_.rank == _DECIMAL:
        return fit_decimal(ratio_to_decimal(total, type_.scale))
    special = _special(state)
    return ratio_to_float(total) if special is None else special


def _avg(state: State) -> Value:
    """A decimal is divided exactly; otherwise the sum as a double is divided by the count, as Spark does it."""
    type_, total = _type_of(state), Fraction(state.get("total", 0))
    count = sum(number for what, number in state.items() if isinstance(what, _Type))
    if type_ is None or count <= 0:
        return None
    if type_.rank == _DECIMAL:
        return fit_decimal(ratio_to_decimal(total / count, type_.scale + 4))
    special = _special(state)
    return (ratio_to_float(total) if special is None else special) / float(count)


# Variances, of the values as doubles.


def _deviation(seen: Observation) -> State:
    value = seen.arguments[0]
    if value is None:
        return {}
    if kind(value) not in _NUMBERS:
        raise Refused(f"a variance of {kind(value)}")
    return {"rows": 1, **_finite_or_not(float(value), {"total": Fraction, "squares": lambda v: Fraction(v) ** 2})}


def _spread(sample: bool, finish: Callable[[Fraction], float]) -> Callable[[State], Value]:
    def final(state: State) -> Value:
        rows = state.get("rows", 0)
        if rows <= (1 if sample else 0):
            return None
        if _special(state) is not None:
            return NAN
        total, squares = Fraction(state.get("total", 0)), Fraction(state.get("squares", 0))
        return finish((squares - total * total / rows) / (rows - sample))

    return final


# Multisets: the arguments with their weights. A weight below zero is a deletion that waits for its row.


def _known_value(seen: Observation) -> State:
    return {} if seen.arguments[0] is None else {tuple(map(canonical, seen.arguments)): 1}


def _known_tuple(seen: Observation) -> State:
    return {} if any(value is None for value in seen.arguments) else {tuple(map(canonical, seen.arguments)): 1}


def _first_argument(seen: Observation) -> State:
    return _known_value(Observation(seen.arguments[:1]))


def _present(state: State) -> list[Any]:
    """What is there, each as often as its weight says."""
    return [what for what, weight in state.items() for _ in range(int(weight))]


def _sorted(state: State) -> list[Value]:
    return sorted((arguments[0] for arguments in _present(state)), key=sort_key)


def _least(state: State) -> Value:
    return next(iter(_sorted(state)), None)


def _greatest(state: State) -> Value:
    return next(reversed(_sorted(state)), None)


def _distinct(state: State) -> Value:
    return len(set(_present(state)))


def _fraction(state: State) -> Value:
    """The percentage that was asked for, which must be the same for every row."""
    fractions = {arguments[1] for arguments in _present(state)}
    fraction = fractions.pop()
    if fractions or kind(fraction) not in _NUMBERS or not 0 <= fraction <= 1:
        raise Failed(f"{fraction!r} is not a constant between 0 and 1")
    return fraction


def _discrete(state: State) -> Value:
    """The value whose rank is the percentage, as written, of the count, rounded up."""
    values = _sorted(state)
    if not values:
        return None
    rank = math.ceil(Fraction(str(_fraction(state))) * len(values))
    return values[max(rank, 1) - 1]


def _interpolated(values: list[Value], fraction: float) -> Value:
    """Spark's percentile, in doubles step by step as Spark does it."""
    if not values:
        return None
    if kind(values[0]) not in _NUMBERS:
        raise Refused(f"a percentile of {kind(values[0])}")
    position = (len(values) - 1) * fraction
    below, above = math.floor(position), math.ceil(position)
    low, high = to_double(values[below]), to_double(values[above])
    if below == above or low == high:
        return low
    return low + (high - low) * (position - below)


def _percentile(state: State) -> Value:
    return _interpolated(_sorted(state), float(_fraction(state))) if _present(state) else None


def _median(state: State) -> Value:
    return _interpolated(_sorted(state), 0.5)


# First and last: the value, NULL too, with the row's place in the order.


def _placed(seen: Observation) -> State:
    return {(seen.order, canonical(seen.arguments[0])): 1}


def _by_place(choose: Callable[..., Any]) -> Callable[[State], Value]:
    return lambda state: choose(_present(state), key=lambda placed: placed[0], default=(None, None))[1]


# Functions of the user's own: every row counts, with its place in time.


def _whole_row(seen: Observation) -> State:
    first = seen.order[0] if seen.order else None
    time = first[-1] if isinstance(first, tuple) else first  # in what rows are ordered by, event time comes first
    return {(time, *seen.arguments): 1}


def _applied(state: State) -> Value:
    found = [(what, int(often)) for what, often in state.items() if isinstance(what, tuple)]
    if not found:
        return None
    names, path = found[0][0][-3:-1]
    columns = [EVENT_TIME, *str(names).split(",")]
    rows = [dict(zip(columns, what, strict=False)) for what, often in found for _ in range(often)]
    instants = pa.array([row.pop(EVENT_TIME) for row in rows], pa.int64()).cast(pa.timestamp("us", "UTC"))
    result: Value = call(str(path), pa.Table.from_pylist(rows).append_column(EVENT_TIME, instants))
    return result


MEANINGS: Mapping[str, Meaning] = {
    "count": Meaning(_if_all_known, _count),
    "count_if": Meaning(_if_true, _count),
    "sum": Meaning(_addend, _sum),
    "avg": Meaning(_addend, _avg),
    "var_samp": Meaning(_deviation, _spread(True, ratio_to_float)),
    "var_pop": Meaning(_deviation, _spread(False, ratio_to_float)),
    "stddev_samp": Meaning(_deviation, _spread(True, ratio_root)),
    "stddev_pop": Meaning(_deviation, _spread(False, ratio_root)),
    "min": Meaning(_known_value, _least),
    "max": Meaning(_known_value, _greatest),
    "bool_and": Meaning(_known_value, _least),
    "bool_or": Meaning(_known_value, _greatest),
    "first": Meaning(_placed, _by_place(min)),
    "last": Meaning(_placed, _by_place(max)),
    "approx_count_distinct": Meaning(_first_argument, _distinct),
    "approx_percentile": Meaning(_known_value, _discrete),
    "count_distinct": Meaning(_known_tuple, _distinct),
    "apply": Meaning(_whole_row, _applied),
    "median": Meaning(_known_value, _median),
    "percentile": Meaning(_known_value, _percentile),
}
