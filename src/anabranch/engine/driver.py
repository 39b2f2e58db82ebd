"""The Spark driver of this process: its start, sized to the machine, and its end, with nothing left behind.

A process has one driver at most. Engines that ask for one share it; it ends with the last of them, and its
JVM with it. A driver that somebody else has started is used, and left alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from anabranch.engine.java import require_java
from anabranch.model.errors import AnabranchError

_GIB = 1 << 30
_JVM_SECONDS = 30
_FOR_JAVA = "spark.driver.extraJavaOptions"
# A step leaves little behind. The JVM would rather let that grow to the whole heap than collect it: other processes,
# and the Python workers among them, need the memory too. What is not in use goes back to the machine.
_GIVE_BACK = "-XX:G1PeriodicGCInterval=2000 -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40"
# With heaps of some size Spark takes 64 MiB at a time for every sort and every grouping of every task, however few
# its rows; and what is larger than half a region of G1 is collected late.
_PAGE = "2m"


@dataclass(frozen=True)
class SessionOptions:
    """What the caller asked for."""

    master: str | None = None
    spark: SparkSession | None = None
    ui: bool = False
    memory: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    kernel: str = "auto"


class LocalDriver:
    """The Spark driver of this process, shared by every engine in it that asks for one."""

    lock = threading.Lock()
    users = 0
    context: SparkContext | None = None  # the one that we started
    options = SessionOptions()
    launched_jvm = False
    log: str | None = None

    @classmethod
    def acquire(cls, options: SessionOptions) -> SparkSession:
        with cls.lock:
            running = SparkContext._active_spark_context
            if running is not None and options.master not in (None, running.master):
                raise AnabranchError(
                    "SESSION_CONFLICT",
                    place=f"master={options.master!r}",
                    need="no other Spark session in this process, or one with the same master",
                    got=f"one that runs on {running.master!r}",
                    next_step="Stop it first, or pass it as spark=.",
                )
            if running is None:
                cls._start(options)
            elif not cls._has(options, running):
                raise AnabranchError(
                    "SESSION_CONFLICT",
                    place="memory=, config= or ui=",
                    need="a Spark session that is still to be started",
                    got=f"one that runs on {running.master!r} already",
                    next_step="Set these where that session is made, or stop it first.",
                )
            cls.users += 1
            session = SparkSession.builder.getOrCreate()
            return session.newSession()

    @classmethod
    def _has(cls, options: SessionOptions, running: SparkContext) -> bool:
        """Whether the running driver is what is asked for; what is not asked for is any."""
        ours = cls.options if running is cls.context else SessionOptions()
        return (
            options.memory in (None, ours.memory)
            and options.ui in (False, ours.ui)
            and (not options.config or dict(options.config) == dict(ours.config))
        )

    @classmethod
    def _start(cls, options: SessionOptions) -> None:
        require_java()
        builder = SparkSession.builder
        for name, value in _start_settings(options).items():
            builder = builder.config(name, value)
        descriptor, cls.log = tempfile.mkstemp(prefix="anabranch-spark-", suffix=".log")
        cls.launched_jvm = SparkContext._gateway is None
        cls.options = options
        try:
            with _stderr_to(descriptor):
                cls.context = builder.getOrCreate().sparkContext
                cls.context.setLogLevel("ERROR")
        except Exception as error:
            said = " ".join(Path(cls.log).read_text().split())[-300:]
            cls._end()
            raise AnabranchError(
                "SPARK_NOT_STARTED",
                place=f"master={options.master or 'local[*]'!r}",
                need="settings with which Spark starts",
                got=" ".join(str(error).split())[:300] or said,
                next_step=f"Correct master=, memory= or config=. Spark said: {said}" if said else "Correct them.",
            ) from error

    @classmethod
    def release(cls) -> None:
        with cls.lock:
            cls.users -= 1
            if cls.users == 0 and cls.context is not None:
                cls._end()

    @classmethod
    def _end(cls) -> None:
        """Stop what we started, if it is still there; somebody else's session is left alone."""
        context, cls.context = cls.context, None
        if context is not None and SparkContext._active_spark_context is context:
            SparkSession.builder.getOrCreate().stop()
        if cls.launched_jvm and SparkContext._active_spark_context is None:
            _end_jvm()
        if cls.log is not None:
            Path(cls.log).unlink(missing_ok=True)


def _end_jvm() -> None:
    """Stopping Spark leaves its JVM waiting for a next session; ours leaves nothing behind."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()  # the JVM ends when its parent's pipe does
        try:
            process.wait(_JVM_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """While the JVM is launched it inherits this as its stderr: no warnings between the user's lines."""
    sys.stderr.flush()
    saved = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(descriptor)


def _start_settings(options: SessionOptions) -> dict[str, str]:
    master = options.master or "local[*]"
    log4j = Path(__file__).with_name("log4j2.properties").as_uri()
    settings = {
        "spark.master": master,
        "spark.app.name": "anabranch",
        "spark.ui.enabled": str(options.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.sql.catalogImplementation": "in-memory",
        "spark.buffer.pageSize": _PAGE,
        _FOR_JAVA: f"-Dlog4j2.configurationFile={log4j} {_GIVE_BACK}",
    }
    if master.startswith("local"):
        settings["spark.driver.memory"] = options.memory or local_memory(machine_memory())
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    elif options.memory:
        settings["spark.executor.memory"] = options.memory
    # Workers that Spark launches by itself must find the interpreter that has this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for_java = f"{settings[_FOR_JAVA]} {options.config.get(_FOR_JAVA, '')}".strip()
    return {**settings, **options.config, _FOR_JAVA: for_java}


def local_memory(machine: int) -> str:
    """The heap for a local session: two fifths of the machine, since Python works beside it; 1 to 16 GiB.

    >>> local_memory(24 << 30)
    '9830m'
    """
    heap = min(max(machine * 2 // 5, _GIB), 16 * _GIB)
    return f"{heap >> 20}m"


def machine_memory() -> int:
    """The memory that this process may use: the machine's, or its container's if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(limit).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total
