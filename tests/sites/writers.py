"""What the processes do that the tests kill, stop and let race. Loaded once by a fork server."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from enum import IntEnum
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from anabranch.log import units
from anabranch.log.commit import Output
from anabranch.log.log import Log
from anabranch.log.reading import ReadRange
from anabranch.log.register import NewQuery
from anabranch.log.steps import Move, Reading
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunDraft, RunKind
from tests.conftest import make_spec, rows_at

ROWS = 3
CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.sites.writers"])


class Phase(IntEnum):
    IDLE = 0
    BEFORE_SEGMENT = 1
    BEFORE_HEADER = 2
    INSIDE_TRANSACTION = 3
    AFTER_TRANSACTION = 4


class Stage:
    """Tells the test in which phase a writer is, and stops it in the one where it is to be killed."""

    def __init__(self, phase: Any, pipe: Connection, stop_at: Phase | None, runs_before: int) -> None:
        self.phase = phase
        self.pipe = pipe
        self.stop_at = stop_at
        self.runs_left = runs_before

    def enter(self, phase: Phase) -> None:
        self.phase.value = int(phase)
        if phase is self.stop_at and self.runs_left <= 0:
            self.pipe.send(("reached", int(phase)))
            signal.pause()

    def install(self) -> None:
        """Wrap the steps of a commit in the module that performs them."""
        write, commit = units.write_segments, units.commit_run

        def write_segments(*args: Any, **options: Any) -> Any:
            self.enter(Phase.BEFORE_SEGMENT)
            written = write(*args, **options)
            self.enter(Phase.BEFORE_HEADER)
            return written

        def commit_run(*args: Any, **options: Any) -> Any:
            header = commit(*args, **options)
            self.enter(Phase.INSIDE_TRANSACTION)  # everything is written, nothing is committed
            return header

        units.write_segments = write_segments  # type: ignore[assignment]
        units.commit_run = commit_run  # type: ignore[assignment]


def killed_writer(
    place: str, writer: int, lease_us: int, phase: Any, pipe: Connection, stop_at: Phase | None, runs_before: int
) -> None:
    """Append runs of known rows for ever, and tell of each after it was committed."""
    stage = Stage(phase, pipe, stop_at, runs_before)
    stage.install()
    log = Log(place, lease_us=lease_us)
    stream = log.stream("impsns")
    pipe.send(("ready", writer))
    for sequence in range(1, 1_000_000):
        with log.unit_of_work(stream, single=sequence % 2 == 0, run_id=(f"writer-{writer}", sequence)) as work:
            work.append(rows_at(*range(ROWS), user=writer, campaign=str(sequence)))
        stage.enter(Phase.AFTER_TRANSACTION)
        pipe.send(("committed", sequence))
        stage.phase.value = int(Phase.IDLE)
        stage.runs_left -= 1


def racing_writer(place: str, catalog: str | None, writer: int, runs: int, pipe: Connection) -> None:
    """Append so many runs, and report what went wrong."""
    try:
        with Log(place, catalog) as log:
            stream = log.stream("impsns")
            pipe.send("ready")
            pipe.recv()
            for number in range(runs):
                with log.unit_of_work(stream, single=True, source=f"writer-{writer}") as work:
                    work.append(rows_at(number, user=writer, campaign=str(number)))
        pipe.send("done")
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def engine_process(place: str, catalog: str | None, pipe: Connection) -> None:
    """Take the lease, prepare a step, and commit it when told to."""
    with Log(place, catalog) as log:
        base = log.stream("impsns")
        log.register.create_queries([NewQuery(make_spec("derived"), {})])
        (query,) = log.register.queries()
        lease = log.leases.acquire("first engine")
        read = sum(s.segment.rows for s in log.plan("impsns", ReadRange()).segments)
        pipe.send(("ready", read))
        pipe.recv()
        try:
            log.register.commit_step(
                lease,
                [Move("query", query.id, None, 1)],
                [Reading(base.id, "q", base.last_position)],
                [Output(query.stream_id, RunDraft(RunKind.ROWS, bucket=1, stime=1))],
            )
            pipe.send("committed")
        except AnabranchError as error:
            pipe.send(error.id)


@contextmanager
def running(target: Any, *args: Any) -> Any:
    """A process with a pipe to it, certain to be gone afterwards."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=target, args=(*args, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        ours.close()
