"""The chore of retention: rows that nobody needs any more leave the log (`engine/retain.py`).

Where a bound is in rows (`HISTORY 5 ROWS`) upkeep lets go of nothing by itself: `Stream.retain()` does.
"""

from __future__ import annotations

from anabranch.engine.live import Recipes
from anabranch.engine.retain import Retained, retain
from anabranch.engine.upkeep.chore import Pace
from anabranch.log.leases import Lease
from anabranch.log.log import Log

_STEPS, _TIME_US = 32, 600_000_000


class Retaining:
    """All streams, so many segments at a time."""

    name = "retention"

    def __init__(self, log: Log, recipes: Recipes) -> None:
        self.log = log
        self.recipes = recipes
        self.pace = Pace(log.clock, _STEPS, _TIME_US)
        self._total = Retained()

    def do(self, lease: Lease) -> bool:
        done = retain(self.log, self.recipes, unasked=True)
        self._total += done
        return done.more

    def done(self) -> dict[str, int]:
        return {"rows let go": self._total.rows, "segments let go": self._total.segments}
