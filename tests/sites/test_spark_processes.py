"""Spark in processes of its own: clean ends, kills, clusters, Connect."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark
import pytest

from anabranch.log.clock import system_clock
from anabranch.log.log import Log
from anabranch.log.reading import ReadRange
from tests.sites.spark_scripts import ROWS

ROOT = Path(__file__).parents[2]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tests.sites.spark_scripts", *words]


def run(*words: str, seconds: int = 240) -> tuple[list[str], str]:
    done = subprocess.run(command(*words), cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


@pytest.mark.proof
def test_a_clean_end_leaves_no_jvm_and_no_noise(tmp_path: Path) -> None:
    out, err = run("shutdown", str(tmp_path / "w"))
    assert out == ["left 0", "left 0"]
    assert err == "", "Spark's warnings are not the user's"


@pytest.mark.proof
def test_settings_that_do_not_work_and_sessions_of_others(tmp_path: Path) -> None:
    out, _ = run("nonsense", str(tmp_path / "w"))
    assert out == ["error SPARK_NOT_STARTED", "error SPARK_NOT_STARTED", "shared 2", "theirs 3"]


def wait_for_a_task(place: Path, writer: subprocess.Popen[str]) -> str:
    """Until one task has written its segment and another one is at work."""
    sign = place / "in_task"
    before = set((place / "data").rglob("*.parquet"))
    while not (sign.exists() and set((place / "data").rglob("*.parquet")) - before):
        assert writer.poll() is None, "the writer died by itself"
        threading.Event().wait(0.1)
    sign.unlink()
    return "during_tasks"


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_ten_kills_of_a_writer_with_a_jvm(tmp_path: Path) -> None:
    phases = ["before_segment", "during_tasks", "before_header", "inside_transaction", "after_transaction"]
    died: Counter[str] = Counter()
    committed = []
    for kill in range(10):
        phase = phases[kill % 5]
        writer = subprocess.Popen(
            command("writer", str(tmp_path), phase, str(kill + 1)), cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        said = writer.stdout.readline().split()
        java = psutil.Process(int(said[1]))
        in_task = phase == "during_tasks"
        reached = wait_for_a_task(tmp_path, writer) if in_task else writer.stdout.readline().split()[1]
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert not psutil.wait_procs([java], timeout=60)[1], "the JVM ends with its driver"
        died[reached] += 1
        if phase == "after_transaction":
            committed.append(kill + 1)
    print("\nkills by phase:", dict(died))
    assert all(died[phase] for phase in phases)
    with Log(tmp_path, clock=lambda: system_clock() + 120_000_000) as log:
        stream = log.stream("impsns")
        assert [h.run_id.sequence for h in log.headers(stream)] == committed
        assert [h.rows for h in log.headers(stream)] == [ROWS] * len(committed)
        kept = {s.segment.path for s in log.plan("impsns", ReadRange()).segments}
        files = {str(p.relative_to(tmp_path)) for p in (tmp_path / "data").rglob("*.parquet")}
        assert kept < files, "the kills left orphans"
        assert set(log.collect_garbage().orphans) >= files - kept
        assert {str(p.relative_to(tmp_path)) for p in (tmp_path / "data").rglob("*.parquet")} == kept


@pytest.mark.proof
def test_executors_of_a_cluster_write_and_read(tmp_path: Path) -> None:
    out, _ = run("cluster", str(tmp_path))
    assert out == [f"appended {ROWS}", f"compacted {ROWS + 8} 1", "loaded 1", f"read {ROWS + 9}"]


@pytest.mark.proof
def test_the_laws_hold_on_a_cluster_whose_executors_read_and_write(tmp_path: Path) -> None:
    out, _ = run("laws_on_cluster", str(tmp_path), "3000", "10", seconds=540)
    assert out == [*(f"case {seed}" for seed in range(3000, 3010)), "wrote columnar:executor spark:executor"]


@contextmanager
def connect_server(port: int) -> Iterator[str]:
    home = Path(pyspark.__file__).parent
    settings = [f"spark.connect.grpc.binding.port={port}", "spark.ui.enabled=false"]
    words = [str(home / "bin" / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
             "--master", "local[2]", *(word for s in settings for word in ("--conf", s))]  # fmt: skip
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    server = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not listening(port):
            assert server.poll() is None, "the server did not start"
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return threading.Event().wait(0.2)  # False: look again a little later
    return True


@pytest.mark.proof
def test_spark_connect(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with connect_server(port) as url:
        out, _ = run("connect", str(tmp_path), url)
    assert out == [
        f"appended {ROWS}",
        f"compacted {ROWS + 8}",
        "loaded 1",
        f"read {ROWS + 9}",
        "said insert:2 update_preimage:2 update_postimage:3",
        f"adopted {ROWS + 10} Asia/Tokyo",
        "theirs 3",
        "error SPARK_UNREACHABLE",
    ]
