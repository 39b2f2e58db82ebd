"""How an entry point stamps: `max(last + 1, clock)`, never at or below a stamp it has logged.

Stream time is the order of entry. Two runs of one entry point never share a stamp, and a clock that
jumps back cannot take the order with it.
"""

from __future__ import annotations


def next_stime(last: int, clock: int) -> int:
    """The stamp after `last` when the clock shows `clock`, both in microseconds."""
    return max(last + 1, clock)
