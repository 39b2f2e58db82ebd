"""Advancing in the background: a thread that looks for new runs and takes them through steps.

It waits a little between looks, and longer while nothing comes. Revisions that were deferred are released
when the streams have gone quiet. Where buckets have a size it takes the intervals that are over. What passes by
itself, such as a catalog that is restarted or a disk that is full, is tried again until it has passed
(`engine/retries.py`); any other error ends the loop and is raised where it is stopped or asked for.
"""

from __future__ import annotations

import threading

from anabranch.engine.advance import Recording
from anabranch.engine.queries import Queries
from anabranch.engine.retries import OUTAGES, Backoff
from anabranch.model.errors import AnabranchError

SHORTEST, LONGEST = 0.05, 0.5
# Another engine is at work, or a query was dropped under a step: look again later.
_PASSING = ("LEASE_HELD", "POSITION_CONFLICT", "FENCED")
_WORK = ("loop", 0)
_BACKOFF = Backoff(100_000, 10_000_000)


class Loop:
    """One background thread that advances."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="anabranch-advance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Let the step that is under way finish, and end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def _run(self) -> None:
        pause = SHORTEST
        try:
            while not self._stop.is_set():
                pause = self._turn(pause)
                self._stop.wait(pause)
        except BaseException as error:
            self.error = error

    def _turn(self, pause: float) -> float:
        """Process what there is; how many seconds to pause after it, given the last pause."""
        retries = self.queries.advancer.retries
        try:
            done = self.queries.advance(release=False, recording=Recording.OVER)
            if done.buckets == 0:
                done = self.queries.advance(recording=Recording.OVER)  # quiet: say what was deferred
        except AnabranchError as error:
            if error.id in OUTAGES:
                return retries.failed(_WORK, "advancing in the background", error, _BACKOFF) / 1_000_000
            if error.id not in _PASSING:
                raise
            return min(pause * 2, LONGEST)
        retries.succeeded(_WORK)
        return SHORTEST if done.buckets else min(pause * 2, LONGEST)
