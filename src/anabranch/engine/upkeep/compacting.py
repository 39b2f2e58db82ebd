"""The chore of compaction: small segments of all streams become few, in one job (`log/tiers.py`).

Little is rewritten at once; more than a task can do in a moment is rewritten in a thread beside the steps, by which
no step waits for it. It needs no lease: what it replaces is compared when it commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from anabranch.engine.compact import Compacted, compact_together
from anabranch.engine.kernel import SMALL
from anabranch.engine.session import Session
from anabranch.engine.upkeep.chore import Pace
from anabranch.log.compaction import CompactionPlan
from anabranch.log.leases import Lease
from anabranch.log.log import Log, StreamState
from anabranch.model.errors import AnabranchError

_STEPS, _TIME_US = 8, 600_000_000
# So many segments in one job.
_MOST_GROUPS = 256
# What was read has changed meanwhile: it is planned anew.
_OVERTAKEN = ("POSITION_CONFLICT", "UNKNOWN_STREAM")

Plans = Sequence[tuple[StreamState, CompactionPlan]]


class Compacting:
    """All streams that have small segments enough."""

    name = "compaction"

    def __init__(self, log: Log, session: Session) -> None:
        self.log = log
        self.session = session
        self.pace = Pace(log.clock, _STEPS, _TIME_US)
        self.beside = True  # whether large ones are done in a thread
        self._thread: ThreadPoolExecutor | None = None
        self._working: Future[Compacted] | None = None
        self._total = Compacted()

    def do(self, lease: Lease) -> bool:
        if self._working is not None:
            if self.beside and not self._working.done():
                return False
            working, self._working = self._working, None
            self._count(working.result)
        plans = self._some(self.log.upkeep.plan_compaction(self.log.upkeep.streams()))
        if not plans:
            return False
        if self.beside and sum(plan.rows for _, plan in plans) >= SMALL:
            self._thread = self._thread or ThreadPoolExecutor(1, "anabranch-compact")
            self._working = self._thread.submit(compact_together, self.log, self.session, plans)
            return False
        return self._count(lambda: compact_together(self.log, self.session, plans))

    def close(self) -> None:
        """Let what is under way finish."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def done(self) -> dict[str, int]:
        return {"segments compacted": self._total.segments_read, "segments written": self._total.segments_written}

    def _count(self, work: Callable[[], Compacted]) -> bool:
        try:
            self._total += work()
        except AnabranchError as error:
            if error.id not in _OVERTAKEN:
                raise
        return True

    def _some(self, plans: Plans) -> Plans:
        """As much as fits into one job."""
        chosen: list[tuple[StreamState, CompactionPlan]] = []
        for stream, plan in plans:
            if chosen and sum(len(p.groups) for _, p in chosen) + len(plan.groups) > _MOST_GROUPS:
                break
            chosen.append((stream, plan))
        return chosen
