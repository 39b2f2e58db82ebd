"""The keeper: does the chores that are due, between the steps of whoever advances.

Its budget for a turn is a number of portions, so that no step waits long, and a turn goes to the chores that are
most overdue. What a chore raises stops no step: it is counted, reported, and tried again after a pause
(`engine/retries.py`); the others go on. All of it happens under the lease of the engine that advances.

Call order: `step()` after each step; `turn(lease)` between two, or when nothing waits and `due()`; or `all(lease)`,
for somebody who waits for it and wants to know what went wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from anabranch.engine.retries import Backoff, Retries, Work
from anabranch.engine.upkeep.chore import Chore
from anabranch.log.leases import Lease
from anabranch.model.errors import AnabranchError

# Portions in a turn. Most take a few milliseconds, a compaction about as long as a job of Spark's.
BUDGET = 3
BACKOFF = Backoff(1_000_000, 600_000_000)
# The lease is another engine's by now, or the end of this one has come: nothing of it is the chore's fault.
_OVER = ("FENCED", "ENGINE_CLOSED")


@dataclass(frozen=True)
class Progress:
    """How far `maintain` has come: what it is at, and what that chore has done in all."""

    chore: str
    done: dict[str, int]


Listener = Callable[[Progress], None]


class Keeper:
    """The chores of one engine."""

    def __init__(self, chores: Sequence[Chore], retries: Retries) -> None:
        self.chores = tuple(chores)
        self.retries = retries
        self._served: Counter[str] = Counter()

    def step(self) -> None:
        for chore in self.chores:
            chore.pace.step()

    def due(self) -> bool:
        """Whether some chore is due and may be tried."""
        return next(self._due(), None) is not None

    def turn(self, lease: Lease, budget: int = BUDGET) -> None:
        """A few portions of the chores that are most overdue; never raises what goes wrong with one."""
        for _ in range(budget):
            chore = max(self._due(), key=lambda c: (c.pace.lateness(), -self._served[c.name]), default=None)
            if chore is None or not self._try(chore, lease):
                return
            self._served[chore.name] += 1  # those that have as much to do take turns

    def all(self, lease: Lease, listener: Listener | None = None) -> dict[str, int]:
        """Every chore until nothing of it is left, one after the other; raises what goes wrong."""
        for chore in self.chores:
            more = True
            while more:
                more = chore.do(lease)
                chore.pace.looked(more=more)
                if listener is not None:
                    listener(Progress(chore.name, chore.done()))
            self.retries.succeeded(_work(chore))
        return {what: many for chore in self.chores for what, many in chore.done().items()}

    def _due(self) -> Iterator[Chore]:
        return (c for c in self.chores if c.pace.lateness() >= 1 and self.retries.due(_work(c)))

    def _try(self, chore: Chore, lease: Lease) -> bool:
        """One portion; whether the turn may go on."""
        try:
            more = chore.do(lease)
        except AnabranchError as error:
            if error.id in _OVER:
                return False
            self._failed(chore, error)
        except Exception as error:
            self._failed(chore, error)
        else:
            self.retries.succeeded(_work(chore))
            chore.pace.looked(more=more)
        return True

    def _failed(self, chore: Chore, error: Exception) -> None:
        self.retries.failed(_work(chore), f"upkeep, {chore.name},", error, BACKOFF)


def _work(chore: Chore) -> Work:
    return f"upkeep {chore.name}", 0
