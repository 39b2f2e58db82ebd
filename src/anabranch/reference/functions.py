"""Spark's scalar functions on values that are not NULL."""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal

from anabranch.reference.casts import EXACT, to_string
from anabranch.reference.operators import compare
from anabranch.reference.values import Failed, Refused, Value, fit_decimal, kind, scale_of

_LONGEST = (1 << 31) - 1


def absolute(value: Value) -> Value:
    _need(value, "abs", "whole", "decimal", "double")
    return value.copy_abs() if isinstance(value, Decimal) else abs(value)


def least(*values: Value) -> Value:
    """The least of the values; NULLs are left out before."""
    found = values[0]
    for value in values[1:]:
        found = value if compare(value, found) < 0 else found
    return found


def greatest(*values: Value) -> Value:
    found = values[0]
    for value in values[1:]:
        found = value if compare(value, found) > 0 else found
    return found


def floor(value: Value) -> Value:
    return _whole_part(value, "floor", ROUND_FLOOR)


def ceil(value: Value) -> Value:
    return _whole_part(value, "ceil", ROUND_CEILING)


def _whole_part(value: Value, name: str, rounding: str) -> Value:
    _need(value, name, "whole", "decimal", "double")
    if isinstance(value, Decimal):
        return value.quantize(Decimal(1), rounding=rounding, context=EXACT)
    if isinstance(value, int):
        return value
    # Java's conversion of a double to a long: NaN is 0, and what is too large becomes the largest.
    if not math.isfinite(value):
        value = 0.0 if math.isnan(value) else math.copysign(1e300, value)
    whole = math.floor(value) if rounding == ROUND_FLOOR else math.ceil(value)
    return max(-(1 << 63), min(whole, (1 << 63) - 1))


def rounded(value: Value, places: Value = 0) -> Value:
    """round: half up, of a double as it is printed."""
    _need(value, "round", "whole", "decimal", "double")
    if kind(places) != "whole":
        raise Refused(f"round to {kind(places)} places")
    if isinstance(value, float) and not math.isfinite(value):
        return value
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if places >= scale_of(exact):
        return value
    result = exact.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP, context=EXACT)
    if isinstance(value, Decimal):
        return fit_decimal(result.quantize(Decimal(1).scaleb(-max(places, 0)), context=EXACT))
    return type(value)(result)


def upper(text: Value) -> str:
    return to_string(text).upper()


def lower(text: Value) -> str:
    return to_string(text).lower()


def length(text: Value) -> int:
    return len(to_string(text))


def concat(*parts: Value) -> str:
    return "".join(map(to_string, parts))


def substring(text: Value, start: Value, count: Value = _LONGEST) -> str:
    """Counted from 1, or from the end if negative; what lies outside of the text is left out."""
    if kind(start) != "whole" or kind(count) != "whole":
        raise Refused(f"substring from {kind(start)} for {kind(count)}")
    whole = to_string(text)
    first = start - 1 if start > 0 else len(whole) + start if start < 0 else 0
    return whole[max(first, 0) : max(first + count, 0)]


def like(text: Value, pattern: Value, escape: str = "\\") -> bool:
    """LIKE: `%` is any text and `_` any character, unless the escape character is before it."""
    _need(text, "LIKE", "string")
    _need(pattern, "LIKE", "string")
    expression, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise Failed(f"the escape character in the pattern {pattern!r} escapes nothing")
            expression += re.escape(pattern[at])
        else:
            expression += {"%": ".*", "_": "."}.get(char, re.escape(char))
        at += 1
    return re.fullmatch(expression, text, re.DOTALL) is not None


def _need(value: Value, name: str, *kinds: str) -> None:
    if kind(value) not in kinds:
        raise Refused(f"{name} of {kind(value)}")
