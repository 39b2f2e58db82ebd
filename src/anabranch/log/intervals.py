"""Finding the ranges that overlap a stretch, with an ordinary index.

The *width class* of a range is the bit length of its width. A range of class c that overlaps `[low,
high)` begins at or after `low - 2**c`, so one index range scan per class that occurs finds them all,
and looks at few others. How long the log is does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator

_WIDEST = 61  # keeps the bit mask of classes within a signed 64-bit integer


def width_class(low: int, high: int) -> int:
    """The class of the inclusive range `[low, high]`."""
    return min((high - low).bit_length(), _WIDEST)


def class_mask(classes: Iterator[int]) -> int:
    mask = 0
    for c in classes:
        mask |= 1 << c
    return mask


def starts_to_search(mask: int, low: int | None) -> list[tuple[int, int]]:
    """For each class that occurs: the class, and the earliest start that can reach `low`."""
    occurring = [c for c in range(_WIDEST + 1) if mask >> c & 1]
    return [(c, 0 if low is None else low - (1 << c)) for c in occurring]


def merge_ranges(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Overlapping or adjoining ranges of whole numbers, joined.

    >>> merge_ranges([(5, 6), (1, 2), (3, 3), (2, 2)])
    [(1, 3), (5, 6)]
    """
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged
