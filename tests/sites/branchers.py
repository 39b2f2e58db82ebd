"""A process that forks, steps on its branch, publishes and drops it, and stops at one point of that to be killed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from anabranch.log import branches, fork, steps
from anabranch.log.branches import Branches
from anabranch.log.catalog import Catalog
from anabranch.log.commit import Output
from anabranch.log.log import Log
from anabranch.log.rows import to_table
from anabranch.log.segments import numbered, write_segments
from anabranch.log.steps import Move, Reading
from anabranch.log.storage import home_of
from anabranch.model.run import RunDraft, RunKind
from tests.conftest import rows_at

POINTS = (
    "fork: held", "fork: copied", "fork: own, not committed", "fork: own",
    "publish: not committed", "publish: done",
    "step: bucket recorded", "step: files written", "step: not committed", "step: committed",
    "drop: not committed", "drop: ended", "drop: files half gone", "drop: files gone", "drop: done",
)  # fmt: skip


class Stage:
    """Stops the process at one point."""

    def __init__(self, stop_at: str, pipe: Connection) -> None:
        self.stop_at = stop_at
        self.pipe = pipe
        self.at_work: str | None = None

    def enter(self, point: str) -> None:
        assert point in POINTS, point
        if point == self.stop_at:
            self.pipe.send(("reached", point))
            signal.pause()

    def wrap(self, place: Any, name: str, *, before: str = "", after: str = "", work: str | None = None) -> None:
        """Points before and after a function, and what its transactions are part of."""
        original: Callable[..., Any] = getattr(place, name)

        def wrapped(*args: Any, **options: Any) -> Any:
            if before:
                self.enter(before)
            outer, self.at_work = self.at_work, work
            try:
                done = original(*args, **options)
            finally:
                self.at_work = outer
            if after:
                self.enter(after)
            return done

        setattr(place, name, wrapped)

    def install(self) -> None:
        self.wrap(Branches, "begin", after="fork: held")
        self.wrap(fork, "copy_catalog", after="fork: copied")
        self.wrap(fork, "make_own", after="fork: own, not committed")
        self.wrap(Branches, "publish", before="fork: own", after="publish: done", work="publish")
        self.wrap(steps, "commit_step", after="step: committed", work="step")
        for name in ("drop", "leave"):
            self.wrap(Branches, name, after="drop: done", work="drop")
        self._in_transactions()
        self._in_removal()

    def _in_transactions(self) -> None:
        write = Catalog.write
        stage = self

        @contextmanager
        def stopped(catalog: Catalog) -> Iterator[Any]:
            with write(catalog) as connection:
                yield connection
                if stage.at_work is not None:
                    stage.enter(f"{stage.at_work}: not committed")

        Catalog.write = stopped  # type: ignore[method-assign]

    def _in_removal(self) -> None:
        remove = branches.remove_home

        def removed(root: Path, generation: str) -> None:
            self.enter("drop: ended")
            next(p for p in (root / home_of(generation)).rglob("*.parquet")).unlink()
            self.enter("drop: files half gone")
            remove(root, generation)
            self.enter("drop: files gone")

        branches.remove_home = removed


def branching_process(
    place: str, catalog: str | None, stop_at: str, name: str | None, origin: str | None, pipe: Connection
) -> None:
    """Do all of it once, on a branch of main, or of another one."""
    stage = Stage(stop_at, pipe)
    with Log(place, catalog, branch=origin) as log:
        pipe.send("ready")
        pipe.recv()
        stage.install()
        with log.fork(name) as branch:
            step(branch, stage, 100)
            if name is not None:
                branch.branches.drop(branch.branch)  # type: ignore[arg-type]
    pipe.send(("done", stop_at))


def step(log: Log, stage: Stage | None, second: int) -> None:
    """A row, a bucket, and what a query emits for it."""
    base, derived = log.stream("impsns"), log.stream("derived")
    with log.unit_of_work(base) as work:
        work.append(rows_at(second))
    lease = log.leases.acquire()
    bucket = log.register.record_bucket(lease)
    assert bucket is not None
    if stage is not None:
        stage.enter("step: bucket recorded")
    (query,) = log.register.queries()
    intent = log.intents.begin(derived.id)
    written = write_segments(log.layout(derived, intent), numbered(to_table(rows_at(second), derived.spec), 0))
    if stage is not None:
        stage.enter("step: files written")
    log.register.commit_step(
        lease,
        [Move("query", query.id, query.bucket, bucket.number)],
        [Reading(base.id, "query derived", log.stream("impsns").last_position)],
        [
            Output(
                derived.id,
                RunDraft(RunKind.ROWS, tuple(written), bucket=bucket.number, stime=bucket.stime),
                intent.id,
            )
        ],
    )
    log.intents.forget(intent)
    log.leases.release(lease)
