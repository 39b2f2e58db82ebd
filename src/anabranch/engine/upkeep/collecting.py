"""The chore of collection: files and intents that nobody refers to any more (`log/gc.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.engine.upkeep.chore import Pace
from anabranch.log.gc import GRACE_US, Collected
from anabranch.log.leases import Lease
from anabranch.log.log import Log

_STEPS, _TIME_US = 32, 600_000_000


class Collecting:
    """One portion after the other of what there is to collect."""

    name = "collection"

    def __init__(self, log: Log, grace_us: int = GRACE_US) -> None:
        self.log = log
        self.grace_us = grace_us
        self.pace = Pace(log.clock, _STEPS, _TIME_US)
        self._portions: Iterator[Collected] | None = None
        self._files = self._branches = 0

    def do(self, lease: Lease) -> bool:
        if self._portions is None:
            self._portions = self.log.upkeep.collect(self.grace_us)
        try:
            portion = next(self._portions, None)
        except BaseException:
            self._portions = None
            raise
        if portion is None:
            self._portions = None
            return False
        self._files += len(portion.orphans) + len(portion.released)
        self._branches += len(portion.branches)
        return True

    def done(self) -> dict[str, int]:
        return {"files removed": self._files, "branches removed": self._branches}
