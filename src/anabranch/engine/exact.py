"""Exact sums of doubles and of long decimals inside Spark: one answer, whatever the order of adding.

A finite double is an integer times a power of two. Its exponent is rounded down to a multiple of eight, its
*block*, and within a block the integers, below 2^62 in size, add up exactly as two halves of 31 bits. A
partial sum is the blocks that occur with their two sums of halves; partials add, and subtract, by block.
Only the final step rounds, once. Variances keep the squares the same way, in decimals.

A decimal of more than 28 digits is summed in two parts, its digits above the last 28 and the last 28: so the sums of
ten billion values fit into the 38 digits that there are, and no partial sum fails. Only the sum itself may have too
many digits.

The SQL here takes numbers apart; the Arrow functions put the sums together. They see one list per
group, or two numbers, never a row of the input.
"""

from __future__ import annotations

import itertools
import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udf

_SHIFT = 53
HALF = 31

# The names under which a session knows the functions that finish a sum.
SUM, VARIANCE = "anabranch_exact_sum", "anabranch_exact_variance"
DECIMAL = "anabranch_exact_decimal"

# The digits of a decimal that add up for ten billion rows.
PLAIN_DIGITS = 28
_WIDE = Context(prec=80)


def block(x: str) -> str:
    """The block of a double; null where there is none: no value, zero, NaN, infinities."""
    exponent = f"CAST(FLOOR(LOG2(ABS({x}))) AS INT)"
    return (
        f"CASE WHEN {x} IS NULL OR {x} = 0 OR ISNAN({x}) OR ABS({x}) = DOUBLE('Infinity') THEN NULL "
        f"ELSE {exponent} - PMOD({exponent}, 8) END"
    )


def scaled(x: str, block: str) -> str:
    """The whole number that a double is within its block. Powers of two, in two steps, so that nothing overflows."""
    power = f"({_SHIFT} - {block})"
    half = f"({power} DIV 2)"
    return f"CAST({x} * POW(2D, {half}) * POW(2D, {power} - {half}) AS BIGINT)"


def high(whole: str) -> str:
    return f"SHIFTRIGHT({whole}, {HALF})"


def low(whole: str) -> str:
    return f"({whole} & {(1 << HALF) - 1})"


def parts(x: str, scale: int) -> tuple[str, str]:
    """A long decimal's digits above the last 28, as a whole number, and the last 28, as a decimal of its scale."""
    above = PLAIN_DIGITS - scale
    one = f"1{'0' * above}" if above >= 0 else f"0.{'0' * (-above - 1)}1"
    kind = f"DECIMAL({above + 1}, 0)" if above >= 0 else f"DECIMAL({-above}, {-above})"
    unit = f"CAST({one} AS {kind})"
    return f"CAST(({x} DIV {unit}) AS DECIMAL(19, 0))", f"({x} % {unit})"


def register(spark: SparkSession) -> None:
    """Make the finishing functions known to a session."""
    spark.udf.register(DECIMAL, arrow_udf(decimals, "string"))
    spark.udf.register(SUM, arrow_udf(sums, "double"))
    spark.udf.register(VARIANCE, arrow_udf(variances, "double"))


def sums(blocks: pa.Array) -> pa.Array:
    """Correctly rounded sums of lists of struct(e, h, l)."""
    lists, parts = _lists(blocks)
    terms = _terms(parts)
    with np.errstate(over="ignore"):
        finite = np.isfinite(terms).all(axis=0)
    whole = bool(finite.all())
    sums = []
    for begin, end in lists:
        if whole or finite[begin:end].all():
            sums.append(math.fsum(terms[:, begin:end].ravel().tolist()))
        else:
            sums.append(_as_float(_total(parts, begin, end)))
    return pa.array(sums, pa.float64())


def _terms(parts: dict[str, np.ndarray]) -> np.ndarray:
    """Four exact doubles for each block: the halves, each in two pieces of at most 32 bits."""
    pieces = []
    with np.errstate(over="ignore"):
        for name, shift in (("h", HALF), ("l", 0)):
            top = (parts[name] >> 32).astype(np.float64)
            bottom = (parts[name] & 0xFFFFFFFF).astype(np.float64)
            scale = (parts["e"] + (shift - _SHIFT)).astype(np.int32)
            pieces += [np.ldexp(top, scale + 32), np.ldexp(bottom, scale)]
    return np.stack(pieces) if pieces else np.empty((4, 0))


def _total(parts: dict[str, np.ndarray], begin: int, end: int) -> Fraction:
    total = Fraction(0)
    for at in range(begin, end):
        whole = (int(parts["h"][at]) << HALF) + int(parts["l"][at])
        total += whole * Fraction(2) ** (int(parts["e"][at]) - _SHIFT)
    return total


def variances(blocks: pa.Array, counts: pa.Array, below: pa.Array) -> pa.Array:
    """(sum of squares - square of sum / n) / (n - below), exact until the last step."""
    lists, parts = _lists(blocks)
    squares = {name: _field(blocks, name).to_pylist() for name in ("hh", "hl", "ll")}
    found: list[float | None] = []
    for (begin, end), count, less in zip(lists, counts.to_pylist(), below.to_pylist(), strict=True):
        if count is None or count - less <= 0:
            found.append(None)
            continue
        second = Fraction(0)
        for at in range(begin, end):
            whole = (int(squares["hh"][at]) << 62) + (int(squares["hl"][at]) << 32) + int(squares["ll"][at])
            second += whole * Fraction(4) ** (int(parts["e"][at]) - _SHIFT)
        first = _total(parts, begin, end)
        found.append(_as_float((second - first * first / count) / (count - less)))
    return pa.array(found, pa.float64())


def decimals(above: pa.Array, below: pa.Array) -> pa.Array:
    """Sums of the two parts of long decimals, in all their digits, as texts."""
    shift = PLAIN_DIGITS - below.type.scale
    texts = []
    for high, low in zip(above.to_pylist(), below.to_pylist(), strict=True):
        known = high is not None and low is not None
        texts.append(format(decimal_sum(high, low, shift), "f") if known else None)
    return pa.array(texts, pa.string())


def decimal_sum(high: Decimal, low: Decimal, shift: int) -> Decimal:
    return _WIDE.add(_WIDE.scaleb(high, shift), low)


def _as_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _field(blocks: pa.Array, name: str) -> pa.Array:
    lists = blocks if isinstance(blocks, pa.ListArray) else pa.concat_arrays(blocks.chunks)
    return lists.flatten().field(name)


def _lists(blocks: pa.Array) -> tuple[list[tuple[int, int]], dict[str, np.ndarray]]:
    """Where each list begins and ends in the flattened fields, and the fields themselves."""
    ends = np.cumsum([0, *(n or 0 for n in pa.compute.list_value_length(blocks).to_pylist())])
    parts = {n: _field(blocks, n).to_numpy(zero_copy_only=False).astype(np.int64) for n in ("e", "h", "l")}
    return [(int(a), int(b)) for a, b in itertools.pairwise(ends)], parts
