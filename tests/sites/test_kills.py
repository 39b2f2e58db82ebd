"""Real SIGKILLs of real writers, in every phase of a commit.

After each: every run whose commit returned is in the log and whole; no row is visible whose commit had
not begun to be durable. In the end garbage collection, run while another process goes on writing,
removes every orphan and nothing else.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from anabranch.log.clock import system_clock
from anabranch.log.log import Log
from anabranch.log.reading import ReadRange
from tests.conftest import make_spec
from tests.sites.writers import CONTEXT, ROWS, Phase, killed_writer, racing_writer, running

KILLS = 200
PHASES = [Phase.BEFORE_SEGMENT, Phase.BEFORE_HEADER, Phase.INSIDE_TRANSACTION, Phase.AFTER_TRANSACTION]
LEASE_US = 1_000_000


def kill_one(place: Path, writer: int, chance: np.random.Generator) -> tuple[Phase, list[int]]:
    """Start a writer, kill it, and return in which phase it died and what it said was committed."""
    stop_at = PHASES[writer % 5] if writer % 5 < 4 else None
    runs_before = int(chance.integers(0, 3))
    phase = CONTEXT.Value("i", 0, lock=False)
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(
        target=killed_writer, args=(str(place), writer, LEASE_US, phase, theirs, stop_at, runs_before), daemon=True
    )
    process.start()
    theirs.close()
    said: list[int] = []
    assert ours.recv() == ("ready", writer)
    if stop_at is None:
        moment = time.monotonic() + float(chance.random()) * 0.25
        while (left := moment - time.monotonic()) > 0 and ours.poll(left):
            said.append(ours.recv()[1])
    else:
        listen(ours, said, until="reached")
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    listen(ours, said, until=None)
    ours.close()
    assert process.exitcode == -signal.SIGKILL
    return Phase(phase.value), said


def listen(pipe: Connection, said: list[int], until: str | None) -> None:
    try:
        while True:
            word, value = pipe.recv()
            if word == "committed":
                said.append(value)
            if word == until:
                return
    except (EOFError, ConnectionResetError):
        assert until is None, "the writer died by itself"


def check(log: Log, writer: int, said: list[int]) -> bool:
    """What a killed writer said it had committed is there, whole, and at most one run more: whether that one is."""
    headers = [h for h in log.headers(log.stream("impsns")) if h.run_id.entry_point == f"writer-{writer}"]
    sequences = [h.run_id.sequence for h in headers]
    assert sequences in (said, [*said, len(said) + 1])
    for header in headers:
        wanted = ReadRange(first_position=header.position, last_position=header.position)
        segments = log.plan("impsns", wanted).segments
        rows = [row for s in segments for row in pq.read_table(log.root / s.segment.path).to_pylist()]
        assert [(r["user"], r["campaign"]) for r in rows] == [(writer, str(header.run_id.sequence))] * ROWS
    return len(sequences) > len(said)


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_two_hundred_kills(tmp_path: Path) -> None:
    chance = np.random.default_rng(20260101)
    died: Counter[Phase] = Counter()
    lost = 0  # runs whose files were written, and that were not committed
    with Log(tmp_path) as log:
        stream = log.create_stream(make_spec())
    for writer in range(KILLS):
        phase, said = kill_one(tmp_path, writer, chance)
        died[phase] += 1
        with Log(tmp_path) as log:  # nobody else has it open: the catalog recovers by itself
            committed = check(log, writer, said)
        lost += phase in (Phase.BEFORE_HEADER, Phase.INSIDE_TRANSACTION) and not committed
    print("\nkills by phase:", {phase.name: died[phase] for phase in sorted(died)})
    assert all(died[phase] > 0 for phase in PHASES)
    assert sum(died.values()) == KILLS
    with Log(tmp_path) as log:
        positions = [h.position for h in log.headers(stream)]
        assert positions == list(range(1, len(positions) + 1))

    with running(racing_writer, str(tmp_path), None, -1, 100) as (_process, pipe):
        assert pipe.recv() == "ready"
        pipe.send("go")
        with Log(tmp_path, clock=lambda: system_clock() + 2 * LEASE_US) as log:
            before = referred(log)
            orphans = set()
            while not pipe.poll():
                orphans |= set(log.collect_garbage().orphans)
            assert pipe.recv() == "done"
            assert not orphans & before
            assert len(orphans) >= lost > 0
    with Log(tmp_path, clock=lambda: system_clock() + 2 * LEASE_US) as log:
        log.collect_garbage()
        found = {str(p.relative_to(tmp_path)) for p in (tmp_path / "data").rglob("*") if p.is_file()}
        assert found == referred(log), "no orphan is left, and nothing else is missing"
        assert log.stream("impsns").rows == sum(h.rows for h in log.headers(stream))


def referred(log: Log) -> set[str]:
    return {s.segment.path for s in log.plan("impsns", ReadRange()).segments}
