"""The chore of reduction, for `maintain`: many partial results of one pane become one (`engine/reduce.py`).

Between steps the reducer has its turn after every step, so this one is due only when all is to be done.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.engine.live import Live
from anabranch.engine.reduce import Reducer
from anabranch.engine.upkeep.chore import Pace
from anabranch.log.leases import Lease

_NEVER = 1 << 62


class Reducing:
    """All stores, a level at a time."""

    name = "reduction"

    def __init__(self, reducer: Reducer, live: Callable[[], Live]) -> None:
        self.reducer = reducer
        self.live = live
        self.pace = Pace(reducer.log.clock, _NEVER, _NEVER)
        self.pace.looked(more=False)
        self._rounds = 0

    def do(self, lease: Lease) -> bool:
        more = self.reducer.reduce_now(self.live())
        self._rounds += more
        return more

    def done(self) -> dict[str, int]:
        return {"rounds of reduction": self._rounds}
