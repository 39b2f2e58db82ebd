"""Several processes at one warehouse."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from anabranch.log.clock import system_clock
from anabranch.log.log import Log
from anabranch.log.reading import ReadRange
from tests.conftest import make_spec, rows_at
from tests.sites.writers import engine_process, racing_writer, running

RUNS = 500


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_two_processes_append_at_once(tmp_path: Path, catalog_url: str | None) -> None:
    with Log(tmp_path, catalog_url) as log:
        stream = log.create_stream(make_spec())
        with (
            running(racing_writer, str(tmp_path), catalog_url, 1, RUNS) as (_, one),
            running(racing_writer, str(tmp_path), catalog_url, 2, RUNS) as (_, two),
        ):
            assert [one.recv(), two.recv()] == ["ready", "ready"]
            one.send("go")
            two.send("go")
            assert [one.recv(), two.recv()] == ["done", "done"], "no error reaches the caller"
        headers = log.headers(stream)
        assert [h.position for h in headers] == list(range(1, 2 * RUNS + 1))
        assert [h.stime for h in headers] == sorted({h.stime for h in headers})
        assert log.stream("impsns").rows == 2 * RUNS
        segments = log.plan("impsns", ReadRange()).segments
        held = [row for s in segments for row in pq.read_table(tmp_path / s.segment.path).to_pylist()]
        sent = [(writer, str(number)) for writer in (1, 2) for number in range(RUNS)]
        assert sorted((row["user"], row["campaign"]) for row in held) == sorted(sent), "nothing is lost or doubled"
        switches = sum(a.source != b.source for a, b in itertools.pairwise(headers))
        assert switches > 10, "the two did not run at the same time"


def test_a_paused_engine_cannot_commit(tmp_path: Path, catalog_url: str | None) -> None:
    with Log(tmp_path, catalog_url) as log:
        stream = log.create_stream(make_spec())
        with log.unit_of_work(stream) as work:
            work.append(rows_at(1, 2))
    with running(engine_process, str(tmp_path), catalog_url) as (process, pipe):
        assert pipe.recv() == ("ready", 2)
        os.kill(process.pid, signal.SIGSTOP)
        with Log(tmp_path, catalog_url, clock=lambda: system_clock() + 31_000_000) as second:
            taken = second.leases.acquire("second engine")
            os.kill(process.pid, signal.SIGCONT)
            pipe.send("commit")
            assert pipe.recv() == "FENCED"
            assert second.headers(second.stream("derived")) == []
            assert second.positions_of(second.stream("impsns")) == []
            assert second.leases.renew(taken).epoch == 2


def test_an_engine_that_was_not_replaced_commits(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.create_stream(make_spec())
    with running(engine_process, str(tmp_path), None) as (process, pipe):
        assert pipe.recv() == ("ready", 0)
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(process.pid, signal.SIGCONT)
        pipe.send("commit")
        assert pipe.recv() == "committed"
