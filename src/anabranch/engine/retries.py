"""What has failed and is tried again: the work beside steps, and the hold on a catalog that is out of reach.

A failure of such work stops no step, no sink and no loop. It is counted, reported as a warning of the logger
`anabranch`, and shown by `engine.retrying()` until the work has succeeded. After each failure the pause before
the next try doubles, up to a longest one, by the clock that is passed in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

from anabranch.log.clock import Clock
from anabranch.model.errors import AnabranchError
from anabranch.model.time import duration_text, instant_text

LOGGER = logging.getLogger("anabranch")
# What passes without anybody's doing once a server, a disk or a process is back: nothing was committed.
OUTAGES = frozenset(("CATALOG_UNREACHABLE", "COMMIT_UNCERTAIN", "DISK_FULL", "INTENT_LAPSED"))


Work = tuple[str, int]  # a kind of work, and which of its kind


@dataclass(frozen=True)
class Backoff:
    """How long to pause after a failure, in microseconds."""

    first: int
    longest: int

    def pause(self, failures: int) -> int:
        return min(self.first << min(failures - 1, 40), self.longest)


@dataclass(frozen=True)
class Retry:
    """Work that has failed so many times in a row."""

    what: str
    failures: int
    error: str
    due: int


class Retries:
    """The failures of one engine that have not been made good yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[Work, Retry] = {}
        self._lock = Lock()

    def failed(self, work: Work, what: str, error: BaseException, backoff: Backoff) -> int:
        """Count a failure and report it; how many microseconds to pause before the next try."""
        with self._lock:
            before = self._failed.get(work)
            failures = 1 if before is None else before.failures + 1
            pause = backoff.pause(failures)
            retry = Retry(what, failures, _summary(error), self._clock() + pause)
            self._failed[work] = retry
        times = "" if failures == 1 else f" {failures} times in a row"
        LOGGER.warning("%s failed%s and is tried again after %s: %s", what, times, duration_text(pause), retry.error)
        return pause

    def succeeded(self, work: Work) -> None:
        with self._lock:
            before = self._failed.pop(work, None)
        if before is not None:
            LOGGER.warning("%s succeeded after %d failures", before.what, before.failures)

    def forget(self, over: Callable[[Work], bool]) -> None:
        """What nobody tries any more, such as the reduction of a store that was dropped."""
        with self._lock:
            self._failed = {work: retry for work, retry in self._failed.items() if not over(work)}

    def failures(self, work: Work) -> int:
        """How many times in a row work has failed."""
        with self._lock:
            return self._failed[work].failures if work in self._failed else 0

    def due(self, work: Work) -> bool:
        """Whether work may be tried now."""
        with self._lock:
            return work not in self._failed or self._failed[work].due <= self._clock()

    def shown(self) -> dict[str, Mapping[str, str]]:
        """For people: what has failed, how many times in a row, with what error, and when it is tried again."""
        with self._lock:
            failed = list(self._failed.values())
        return {r.what: {"failures": str(r.failures), "error": r.error, "next": instant_text(r.due)} for r in failed}


def _summary(error: BaseException) -> str:
    if isinstance(error, AnabranchError):
        return f"{error.id}: {error.place}: {error.got}"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
