"""Approximate quantiles: values in cells that are narrow in proportion, with the weight of each cell.

Every power of two is cut into 128 cells, so a value is known to within 1 part in 256. Which cell a value
falls into depends on the value alone, and weights add and subtract: the sketch merges in any order, takes
deletions, and is the same on every machine.
"""

from __future__ import annotations

_CELLS = 128
_ZERO = 1100  # more than any exponent in size, so that a cell's number has its value's sign
_INFINITE = (1025 + _ZERO) * _CELLS


def cell(x: str) -> str:
    """The number of the cell of a double; cells are in the order of their values."""
    guess = f"CAST(FLOOR(LOG2(ABS({x}))) AS INT)"
    part = f"(ABS({x}) * POW(2D, -({guess} DIV 2)) * POW(2D, ({guess} DIV 2) - {guess}))"
    # The logarithm may be off by one at a power of two; scaling by powers of two is exact and shows it.
    off = f"(CASE WHEN {part} >= 2D THEN 1 WHEN {part} < 1D THEN -1 ELSE 0 END)"
    within = f"CAST(FLOOR(({part} * POW(2D, -{off}) - 1D) * {_CELLS}) AS INT)"
    number = f"(({guess} + {off} + {_ZERO}) * {_CELLS} + {within})"
    return (
        f"CASE WHEN {x} IS NULL THEN NULL WHEN ISNAN({x}) THEN {_INFINITE + 1} WHEN {x} = 0 THEN 0 "
        f"WHEN {x} = DOUBLE('Infinity') THEN {_INFINITE} WHEN {x} = DOUBLE('-Infinity') THEN -{_INFINITE} "
        f"WHEN {x} > 0 THEN {number} ELSE -{number} END"
    )


def at(cells: str, share: str) -> str:
    """The value of the cell in which a share of the weight is reached, from a list of struct(c, w)."""
    total = f"AGGREGATE({cells}, 0L, (s, x) -> s + x.w)"
    target = f"GREATEST(1L, CAST(CEIL({share} * {total}) AS BIGINT))"
    step = (
        f"(s, x) -> IF(s.c IS NULL AND s.n + x.w >= {target}, NAMED_STRUCT('n', s.n + x.w, 'c', x.c), "
        "NAMED_STRUCT('n', s.n + x.w, 'c', s.c))"
    )
    start = "NAMED_STRUCT('n', 0L, 'c', CAST(NULL AS INT))"
    found = f"AGGREGATE(ARRAY_SORT({cells}), {start}, {step}, s -> s.c)"
    return _value(found)


def _value(cell: str) -> str:
    """The middle of a cell."""
    power = f"POW(2D, ABS({cell}) DIV {_CELLS} - {_ZERO})"
    middle = f"{power} * (1D + (ABS({cell}) % {_CELLS} + 0.5D) / {_CELLS})"
    return (
        f"CASE WHEN {cell} IS NULL THEN NULL WHEN {cell} = 0 THEN 0D WHEN {cell} > {_INFINITE} THEN DOUBLE('NaN') "
        f"WHEN {cell} = {_INFINITE} THEN DOUBLE('Infinity') WHEN {cell} = -{_INFINITE} THEN DOUBLE('-Infinity') "
        f"WHEN {cell} > 0 THEN {middle} ELSE -({middle}) END"
    )
