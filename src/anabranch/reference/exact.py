"""Exact fractions, rounded once: to a double, to the double nearest to a square root, to a decimal."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction


def ratio_to_float(value: Fraction) -> float:
    """The nearest double, ties to even; an infinity beyond the largest."""
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def ratio_to_decimal(value: Fraction, scale: int) -> Decimal:
    """The nearest decimal with so many digits after the point, ties away from zero."""
    scaled = abs(value) * 10**scale
    digits = math.floor(scaled + Fraction(1, 2))
    return Decimal((value < 0, tuple(map(int, str(digits))), -scale))


def ratio_root(value: Fraction) -> float:
    """The double nearest to the square root of a fraction that is not negative."""
    n, m = value.numerator, value.denominator
    # Scaled by a power of 4, the whole root has at least twice the digits of a double. Its last bit is set where
    # the root is not exact, so that the division at the end, which rounds, cannot take it for a tie.
    shift = (n.bit_length() - m.bit_length() - 109) // 2
    n, m = (n, m << 2 * shift) if shift >= 0 else (n << -2 * shift, m)
    root = math.isqrt(n // m)
    root |= root * root * m != n
    return ratio_to_float(Fraction(root) * Fraction(2) ** shift)
