"""What a chore is: work that keeps a warehouse small, done in bounded portions, and when it is due.

A chore never changes an answer. It looks at the warehouse only when it is due, which a counter tells: after
so many steps, or so much time, and again at once as long as the last portion left something to do.
"""

from __future__ import annotations

from typing import Protocol

from anabranch.log.clock import Clock
from anabranch.log.leases import Lease


class Pace:
    """When to look again. A new one is due, since nobody knows what was left undone before."""

    def __init__(self, clock: Clock, steps: int, time_us: int) -> None:
        self._clock = clock
        self._steps = steps
        self._time_us = time_us
        self._taken = 0
        self._last: int | None = None  # when there was nothing left to do

    def step(self) -> None:
        """A step was taken."""
        self._taken += 1

    def looked(self, *, more: bool) -> None:
        """A portion was done; is there more?"""
        if more:
            self._last = None
        else:
            self._last, self._taken = self._clock(), 0

    def lateness(self) -> float:
        """How overdue it is: 1 and more when it is due."""
        if self._last is None:
            return float(1 << 30)
        return max(self._taken / self._steps, (self._clock() - self._last) / self._time_us)


class Chore(Protocol):
    """One kind of upkeep."""

    name: str  # as people read it after "while"
    pace: Pace

    def do(self, lease: Lease) -> bool:
        """A bounded amount of work; whether there is more of it now."""

    def done(self) -> dict[str, int]:
        """What it has done so far, in numbers, by what they count."""
