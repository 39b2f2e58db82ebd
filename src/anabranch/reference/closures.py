"""Compiled pieces of an expression: closures over a row, and how NULL goes through them.

Most operators are strict: NULL in, NULL out. AND, OR and IN follow three-valued logic, and CASE, IF, COALESCE
look at no more operands than they need, so that what they leave aside cannot fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from anabranch.reference import operators
from anabranch.reference.casts import caster
from anabranch.reference.values import WHOLE_NAMES, Failed, Refused, Value, fit, kind

Evaluate = Callable[[Mapping[str, Value]], Value]


class Part(NamedTuple):
    """A compiled piece, and the width of its type if it gives integers; 8 bits where it says nothing."""

    evaluate: Evaluate
    bits: int = 8


def constant(value: Value) -> Part:
    bits = 8
    if kind(value) == "whole":
        bits = 32 if -(1 << 31) <= value < 1 << 31 else 64
    return Part(lambda row: value, bits)


def strict(function: Callable[..., Value], parts: Sequence[Part], bits: int = 64) -> Evaluate:
    """NULL as soon as an operand is; an integer that comes out must fit its type."""

    def evaluate(row: Mapping[str, Value]) -> Value:
        values = []
        for part in parts:
            value = part.evaluate(row)
            if value is None:
                return None
            values.append(value)
        return fit(function(*values), bits)

    return evaluate


def widest(function: Callable[..., Value], parts: Sequence[Part], width: int | None = None) -> Part:
    """A strict function whose integers are as wide as its widest operand, unless another width is given."""
    bits = width or bits_of(parts)
    return Part(strict(function, parts, bits), bits)


def bits_of(parts: Iterable[Part]) -> int:
    return max((part.bits for part in parts), default=8)


def truth(value: Value) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"{kind(value)} where a condition is needed")
    return value


def junction(parts: Sequence[Part], decides: bool) -> Evaluate:
    """AND is decided by the first operand that is false, OR by the first that is true; else NULL makes it unknown."""

    def evaluate(row: Mapping[str, Value]) -> Value:
        unknown = False
        for part in parts:
            value = part.evaluate(row)
            if value is None:
                unknown = True
            elif truth(value) is decides:
                return decides
        return None if unknown else not decides

    return evaluate


def same(parts: Sequence[Part], wanted: bool) -> Evaluate:
    def evaluate(row: Mapping[str, Value]) -> Value:
        left, right = (part.evaluate(row) for part in parts)
        if left is None or right is None:
            return (left is right) is wanted
        return operators.equal(left, right) is wanted

    return evaluate


def one_of(subject: Part, *choices: Part) -> Evaluate:
    return junction([Part(strict(operators.equal, [subject, choice])) for choice in choices], decides=True)


def between(subject: Part, low: Part, high: Part) -> Evaluate:
    above = strict(lambda a, b: operators.compare(a, b) >= 0, [subject, low])
    below = strict(lambda a, b: operators.compare(a, b) <= 0, [subject, high])
    return junction([Part(above), Part(below)], decides=False)


def coalesce(parts: Sequence[Part]) -> Part:
    """The first operand that is not NULL; those after it are not looked at."""

    def evaluate(row: Mapping[str, Value]) -> Value:
        for part in parts:
            value = part.evaluate(row)
            if value is not None:
                return value
        return None

    return Part(evaluate, bits_of(parts))


def nullif(left: Part, right: Part) -> Part:
    same = strict(operators.equal, [left, right])
    return Part(lambda row: None if same(row) is True else left.evaluate(row), left.bits)


def of_known(function: Callable[..., Value], parts: Sequence[Part]) -> Part:
    def evaluate(row: Mapping[str, Value]) -> Value:
        known = [value for value in (part.evaluate(row) for part in parts) if value is not None]
        return function(*known) if known else None

    return Part(evaluate, bits_of(parts))


def branches(pairs: Sequence[tuple[Part, Part]], otherwise: Part) -> Part:
    def evaluate(row: Mapping[str, Value]) -> Value:
        for condition, result in pairs:
            met = condition.evaluate(row)
            if met is not None and truth(met):
                return result.evaluate(row)
        return otherwise.evaluate(row)

    return Part(evaluate, bits_of([otherwise, *(result for _, result in pairs)]))


def casting(part: Part, name: str, parameters: tuple[int, ...], safe: bool) -> Part:
    """CAST, or with `safe` TRY_CAST: NULL where the cast itself fails."""
    to = caster(name, parameters)

    def attempt(value: Value) -> Value:
        try:
            return to(value)
        except Failed:
            if safe:
                return None
            raise

    widths = {spark: width for width, spark in WHOLE_NAMES.items()}
    return Part(strict(attempt, [part]), widths.get(name, 8))
