"""Advancing a warehouse: record what is waiting as a bucket, take it through a step, until nothing waits.

One engine advances a warehouse at a time. The lease is taken when there is something to do, renewed while
a step takes long, and given back at the end; a step that lost it commits nothing. Buckets that were
recorded and not processed, because an engine died, come first. Between steps, and when nothing waits, upkeep that is
due gets a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from anabranch.engine.lease import leased
from anabranch.engine.live import Live, LiveQuery, Recipes
from anabranch.engine.materialise import Materialiser
from anabranch.engine.reduce import Reducer
from anabranch.engine.retries import Retries
from anabranch.engine.session import Session
from anabranch.engine.step import Step, Taken
from anabranch.engine.tentative import Open, Tentative, open_units
from anabranch.engine.upkeep.chore import Chore
from anabranch.engine.upkeep.collecting import Collecting
from anabranch.engine.upkeep.compacting import Compacting
from anabranch.engine.upkeep.folding import Folding
from anabranch.engine.upkeep.keeper import Keeper, Listener
from anabranch.engine.upkeep.reducing import Reducing
from anabranch.engine.upkeep.retaining import Retaining
from anabranch.log.buckets import Bucket
from anabranch.log.leases import Lease
from anabranch.log.log import Log
from anabranch.model.errors import AnabranchError


@dataclass(frozen=True)
class Advanced:
    """What advancing did."""

    buckets: int = 0
    changes: int = 0
    halted: tuple[str, ...] = ()

    def __add__(self, other: Advanced) -> Advanced:
        return Advanced(
            self.buckets + other.buckets,
            self.changes + other.changes,
            tuple(dict.fromkeys((*self.halted, *other.halted))),
        )


class Recording(Enum):
    """Which buckets are recorded by whoever advances."""

    ALL = "all"  # of everything that waits; where they have a size, the interval of now ends
    OVER = "over"  # the same, but where they have a size those intervals that are over
    NOTHING = "nothing"  # somebody else does, and says where each ends


class Outlet(Protocol):
    """What takes the changes of streams somewhere else, once steps have said them."""

    def waiting(self) -> bool:
        """Whether something has been said that has not been taken there."""

    def feed(self, lease: Lease) -> tuple[str, ...]:
        """Take it there; what fails is remembered, and named, and never stops a query."""


# So many versions of an answer are compared at once.
_MOST_BUCKETS = 64


class Advancer:
    """Takes buckets through steps, under the engine's lease."""

    def __init__(self, log: Log, session: Session) -> None:
        self.log = log
        self.session = session
        self.recipes = Recipes()
        self.retries = Retries(log.clock)
        self.reducer = Reducer(log, session, self.retries)
        self.compacting = Compacting(log, session)
        first: list[Chore] = [
            Reducing(self.reducer, self._live),
            Retaining(log, self.recipes),
            Folding(log, self._live),
        ]
        self.keeper = Keeper([*first, self.compacting, Collecting(log)], self.retries)
        self.materialiser = Materialiser(log, session, self.retries)
        self.outlets: list[Outlet] = []

    def advance(
        self, *, release: bool = True, at_once: int | None = None, recording: Recording = Recording.ALL
    ) -> Advanced:
        """Process what is recorded, and what is to be. `at_once` limits how many recorded buckets go into one step."""
        done = Advanced()
        steps = self._anything_to_do(release)
        if not steps and not any(outlet.waiting() for outlet in self.outlets):
            self._keep_house()
            return done
        with self._leased() as lease:
            if steps:
                done += self._advance(lease, release, at_once, recording)
            for outlet in self.outlets:
                done += Advanced(halted=outlet.feed(lease))
            self.keeper.turn(lease)
        return done

    def maintain(self, listener: Listener | None = None) -> dict[str, int]:
        """Do all upkeep that there is to do, and say how much that was; raises what goes wrong."""
        with self._leased() as lease:
            return self.keeper.all(lease, listener)

    def close(self) -> None:
        """Let what is under way beside the steps finish."""
        self.reducer.close()
        self.materialiser.close()
        self.compacting.close()

    def _keep_house(self) -> None:
        """A turn of upkeep while nothing waits, unless another engine advances, and keeps house."""
        if not self.keeper.due():
            return
        try:
            with self._leased() as lease:
                self.keeper.turn(lease)
        except AnabranchError as error:
            if error.id != "LEASE_HELD":
                raise

    def _live(self) -> Live:
        return Live(self.log, self.recipes)

    def _advance(self, lease: Lease, release: bool, at_once: int | None, recording: Recording) -> Advanced:
        done = Advanced()
        live, running = self._running()
        while True:
            waiting = self._waiting(running)
            if not waiting:
                force = _new(running) or (release and any(map(live.deferred, running)))
                if not (live.queries and self._record(lease, force, release, recording)):
                    break
                continue
            if done.buckets:
                self.keeper.turn(lease)
            self._undo(lease, live)
            done += self._step(lease, self._train(waiting[:at_once]))
            self.keeper.step()
            live, running = self._running()
            self.reducer.reduce(live)
            self.materialiser.materialise(live)
            self._trim(live)
        self._speculate(lease, live)
        return done

    def _record(self, lease: Lease, force: bool, release: bool, recording: Recording) -> bool:
        """Record what waits: one bucket, or, where they have a size, as many as one step takes."""
        if recording is Recording.NOTHING:
            return False
        record, early = self.log.register.record_bucket, recording is Recording.ALL
        if self.log.bucket_us is None:
            return record(lease, force=force, release=release) is not None
        if record(lease, force=force, release=force and release, early=early) is None:
            return False
        for _ in range(_MOST_BUCKETS - 1):
            if record(lease, release=False, early=early) is None:
                break
        return True

    def _train(self, waiting: Sequence[Bucket]) -> Sequence[Bucket]:
        """The buckets that go into one step. An engine that is behind takes many, one that is not takes one.

        It ends before a stream's first revision: rows are said in the order in which they came until then, and
        afterwards in the order of what they are.
        """
        waiting = waiting[:_MOST_BUCKETS]
        first, last = waiting[0].number, waiting[-1].number
        turns = self.log.register.turns(first, last) if first < last else []
        return [bucket for bucket in waiting if not turns or bucket.number < turns[0]]

    def _anything_to_do(self, release: bool) -> bool:
        """Whether there is a reason to take the lease; an idle engine only looks."""
        live, running = self._running()
        return bool(running) and (
            self.log.register.anything_waiting()
            or bool(self._waiting(running))
            or _new(running)
            or (release and any(map(live.deferred, running)))
            or any(query.stored.tentative is not None for query in running)
            or self.log.overlays.anything_open()
        )

    def _undo(self, lease: Lease, live: Live) -> None:
        """What was said tentatively rests on the last bucket: take it back before there is another one."""
        if any(query.stored.tentative is not None for query in live.queries.values()):
            Tentative(self.log, self.session, lease, live).undo(Open({}, {}))

    def _speculate(self, lease: Lease, live: Live) -> None:
        """Bring what is said tentatively up to date with the units of work that are open now."""
        said = any(query.stored.tentative is not None for query in live.queries.values())
        if not said and not self.log.overlays.anything_open():
            return
        now = open_units(self.log, live)
        if said or any(now.items.values()):
            Tentative(self.log, self.session, lease, live).undo(now)
            live = Live(self.log, self.recipes)
            Tentative(self.log, self.session, lease, live).say(now)

    def _step(self, lease: Lease, buckets: Sequence[Bucket]) -> Advanced:
        taken: Taken = Step(self.log, self.session, lease, buckets, self.recipes).run()
        return Advanced(len(buckets), taken.changes, tuple(query.name for query, _ in taken.halted))

    def _trim(self, live: Live) -> None:
        """Let go of answers that are computed again, once all who read them have taken them."""
        for query in live.queries.values():
            if query.terms.upstream:
                upto = min((reader.came for reader in live.readers_of(query)), default=query.came)
                self.log.register.trim(query.stored.stream_id, upto)

    def _running(self) -> tuple[Live, list[LiveQuery]]:
        """The queries that can go on: neither halted themselves, nor anything that they read."""
        live = Live(self.log, self.recipes)
        stuck = [query for query in live.queries.values() if query.halted]
        waiting = [reader for query in stuck for reader in live.readers_of(query)]
        return live, [query for query in live.queries.values() if query not in stuck and query not in waiting]

    def _waiting(self, running: Sequence[LiveQuery]) -> list[Bucket]:
        """The recorded buckets that some running query has not said yet."""
        came = min((query.came for query in running), default=None)
        return [] if came is None else self.log.register.buckets_after(came)

    def _leased(self) -> AbstractContextManager[Lease]:
        return leased(self.log.leases, self.retries)


def _new(running: Sequence[LiveQuery]) -> bool:
    """Whether some query has not said anything yet."""
    return any(query.stored.bucket is None for query in running)
