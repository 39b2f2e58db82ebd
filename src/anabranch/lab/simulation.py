"""Virtual time: a heap of things that will happen, and nothing else that moves.

What happens at the same moment happens in the order in which it was planned, so a run depends on nothing but its
description.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

SECOND = 1_000_000  # stream time and virtual time are microseconds


class Simulation:
    def __init__(self) -> None:
        self.now = 0
        self.events = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._planned = 0

    def at(self, time: int, call: Callable[..., None], *arguments: Any) -> None:
        """Let something happen at a time, now at the earliest."""
        self._planned += 1
        heapq.heappush(self._heap, (max(time, self.now), self._planned, call, arguments))

    def run(self, until: int) -> None:
        """Let everything happen up to and with a time."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until:
            self.now, _, call, arguments = pop(heap)
            self.events += 1
            call(*arguments)
        self.now = until
