"""Branches, for people: an engine forks others, which see what it saw and never change it.

An engine on a branch works in the session of the one that forked it, so opening it starts nothing; closing it ends
a branch without a name and leaves the session alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from weakref import WeakSet

from pyspark.sql import DataFrame

from anabranch.engine.advance import Recording
from anabranch.engine.diff import difference
from anabranch.engine.live import Live
from anabranch.engine.past import bucket_dependent
from anabranch.engine.queries import Queries
from anabranch.engine.session import Session
from anabranch.log.branches import label_of
from anabranch.log.follow import Followed
from anabranch.log.log import Log
from anabranch.log.past import Past
from anabranch.model.errors import AnabranchError
from anabranch.model.time import Duration, Instant, duration_us, instant_us


@dataclass(frozen=True)
class BranchState:
    """A branch as it is now; times are in microseconds. `parent` is the name of what it was forked from; None: main."""

    name: str | None
    generation: str
    parent: str | None
    made: int
    expires: int | None
    holder: str  # the process that has made it


class Branching:
    """What every engine can do with branches."""

    _log: Log
    _session: Session
    _forked: WeakSet[Branching]

    def branch(
        self, name: str | None = None, *, at: int | Instant | None = None, expires: Duration | None = None
    ) -> Self:
        """An engine on a branch: the streams and queries as they are now, to append, advance and ask at will.

        With `at`, the number of a bucket or a stream time, they are as they were when that bucket had been processed,
        or the last one that had ended then, with the definitions of now of the queries that existed; what these
        have emitted is computed again, now.
        Without a name it is there until it is closed, which leaving its `with` block does, or this process ends.
        With one it is made, or opened if it is there, and stays until it is dropped or `expires` has passed since
        it was made. Sinks, ingests and subscriptions with a name belong to main.
        """
        self._require_open()
        if at is None and name is not None and self._log.branches.there(name):
            log = self._log.open_branch(self._log.branches.find(name))
        else:
            log = self._log.fork(name, _lifetime(expires), past=past_of(self._log, at))
        made = self._beside(log)
        self._forked.add(made)
        if at is not None:
            try:
                _catch_up(Queries(log, self._session))
            except BaseException:
                made.close(drop=True)
                raise
        return made

    def branches(self) -> list[BranchState]:
        """The branches that there are, also those of branches."""
        self._require_open()
        return states_of(self._log)

    def drop_branch(self, name: str) -> None:
        """Forget a branch and all that was done there; refused while there are branches of it."""
        self._require_open()
        wanted = self._log.branches.find(name)
        self._log.branches.require_childless(wanted)
        for engine in list(self._forked):
            if engine._log.generation == wanted.generation:
                engine.close()
        self._log.branches.drop(wanted)

    def drop(self) -> None:
        """Close this engine on a branch and forget the branch; refused while there are branches of it."""
        self._require_branch("drop()")
        self._log.branches.require_childless(self._log.branch)  # type: ignore[arg-type]
        self.close(drop=True)

    def follow(self) -> Followed:
        """Bring what the base streams of main have got since the fork, or since the last time, with main's buckets.

        Nothing is copied, and nothing is processed: `advance()` takes the queries of this branch through these
        buckets. An error once the branch has rows or buckets of its own. A branch of a branch follows that one.
        """
        self._require_open()
        self._require_branch("follow()")
        return self._log.follow()

    def diff(self, stream: str) -> DataFrame:
        """What the table of a stream has here and not in main, and the reverse; `_in` says which: branch, or main.

        Of a branch of a branch, `main` is the branch from which it was forked.
        """
        self._require_open()
        self._require_branch("diff()")
        with self._log.open_parent() as main:
            theirs = Queries(main, self._session).table(stream)
        return difference(Queries(self._log, self._session).table(stream), theirs, f"diff of {stream!r}")

    def _beside(self, log: Log) -> Self:
        """An engine on another log, in the session of this one."""
        raise NotImplementedError

    def close(self, *, drop: bool = False) -> None:
        raise NotImplementedError

    def _require_open(self) -> None:
        raise NotImplementedError

    def _require_branch(self, what: str) -> None:
        if self._log.branch is None:
            raise AnabranchError(
                "BAD_ARGUMENT", place=what, need="an engine on a branch", got="one on main",
                next_step="Fork one with engine.branch().",
            )  # fmt: skip


def states_of(log: Log) -> list[BranchState]:
    """The branches of a warehouse, in the order in which they were forked."""
    known = log.branches.all()
    names = {branch.generation: branch.name or label_of(None, branch.generation) for branch in known}
    return [
        BranchState(
            b.name, b.generation, None if b.parent is None else names.get(b.parent, b.parent), b.made_at, b.expires_at,
            b.holder,
        )
        for b in known
    ]  # fmt: skip


def create_branch(
    log: Log, session: Session | None, name: str, expires: Duration | None, at: int | Instant | None = None
) -> None:
    """Make a branch with a name. One at a past bucket is computed now, if there is a session to do it in."""
    with log.fork(name, _lifetime(expires), past=past_of(log, at)) as made:
        if at is not None and session is not None:
            _catch_up(Queries(made, session))


def past_of(log: Log, at: int | Instant | None) -> Past | None:
    """Which past is asked for, and which queries must be taken through it bucket by bucket."""
    if at is None:
        return None
    in_turn = bucket_dependent(Live(log))
    if isinstance(at, int):
        return Past(bucket=at, in_turn=in_turn)
    return Past(stime=instant_us(at, "at="), in_turn=in_turn)


def _catch_up(queries: Queries) -> None:
    """Compute what queries emit up to the bucket at which a branch was made; what is appended there comes later."""
    queries.advance(release=False, recording=Recording.NOTHING)


def _lifetime(expires: Duration | None) -> int | None:
    return None if expires is None else duration_us(expires, "EXPIRES")
