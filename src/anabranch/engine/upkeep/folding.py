"""The chore of folding: fewer marks of the past, the longer ago it was (`log/folding.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from anabranch.diagram.limits import KEPT
from anabranch.engine.live import Live
from anabranch.engine.upkeep.chore import Pace
from anabranch.log.folding import Grid, grids
from anabranch.log.leases import Lease
from anabranch.log.log import Log

_STEPS, _TIME_US = 32, 600_000_000
_EVERY = 1 << 62


class Folding:
    """Buckets first, and then the headers of runs, which end with the buckets that stay."""

    name = "folding"

    def __init__(self, log: Log, live: Callable[[], Live]) -> None:
        self.log = log
        self.live = live
        self.pace = Pace(log.clock, _STEPS, _TIME_US)
        self._done: Counter[str] = Counter()
        # How far it has come, with each grid: hours and minutes. It begins anew when the engine is opened.
        self._buckets: dict[int, int] = {}
        self._runs: dict[int, dict[int, int]] = {}
        self._left: list[tuple[str, Grid]] = []

    def do(self, lease: Lease) -> bool:
        if not self._left:
            hours, minutes = grids(self.log.clock())
            self._left = [("buckets", hours), ("buckets", minutes), ("runs", hours), ("runs", minutes)]
        while self._left:
            what, grid = self._left[0]
            if self._fold_buckets(lease, grid) if what == "buckets" else self._fold_runs(lease, grid):
                return True
            del self._left[0]
        return False

    def done(self) -> dict[str, int]:
        return {"portions folded": self._done["portions"]}

    def _fold_buckets(self, lease: Lease, grid: Grid) -> bool:
        after = self._buckets.get(grid.width)
        if after is None:
            after = 0 if grid.until < self.log.clock() else self.log.upkeep.first_within(grid)
        came = self.log.upkeep.fold_buckets(lease, grid, after, last_unneeded(self.live()))
        self._buckets[grid.width] = after if came is None else came
        return self._count(came is not None and came > after)

    def _fold_runs(self, lease: Lease, grid: Grid) -> bool:
        cursors = self._runs.get(grid.width, {})
        after = {stream.id: cursors.get(stream.id, 0) for stream in self.log.upkeep.streams()}
        came = self.log.upkeep.fold_runs(lease, grid, after)
        self._runs[grid.width] = after | came
        return self._count(any(came[number] > after[number] for number in came))

    def _count(self, more: bool) -> bool:
        self._done["portions"] += more
        return more


def last_unneeded(live: Live) -> int:
    """The last bucket that no query and no store needs by itself, whether it has halted or defers its revisions."""
    needed = [store.came for store in live.stores.values()]
    for query in live.queries.values():
        needed.append(query.came)
        # What is left out until there is a table is compared with what was emitted, not with earlier buckets.
        if query.stored.bucket is not None and query.revise_every != KEPT:
            needed.append(query.stored.released or 0)
    return min(needed, default=_EVERY)
