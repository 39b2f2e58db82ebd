"""The one place that makes or adopts a SparkSession.

Four ways lead to a session: nothing said, a local one is started, sized to the machine; `master=`, one
is started there; a Spark Connect URL, a client connects; `spark=`, the caller's is adopted. Ours always
works in a session of its own, with its own SQL settings: an adopted one is neither changed nor stopped.
One that we started ends with the last engine that uses it, and takes its JVM with it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlparse

from pyspark import SparkContext
from pyspark.sql import SparkSession

from anabranch.engine.java import require_java
from anabranch.model.errors import AnabranchError

_CONNECT = "sc://"
_CONNECT_PORT = 15002
_CONNECT_SECONDS = 10
_JVM_SECONDS = 30
_GIB = 1 << 30

# What short steps want, settable in any session (measured: docs/internals.md).
SQL_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # A file that is missing or broken is an error, whatever an adopted session would forgive.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "4096",
}


@dataclass(frozen=True)
class SessionOptions:
    """What the caller asked for."""

    master: str | None = None
    spark: SparkSession | None = None
    ui: bool = False
    memory: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)


class Session:
    """A session that starts when it is first needed."""

    def __init__(self, options: SessionOptions, root: Path) -> None:
        self._options = options
        self._root = root
        self._spark: SparkSession | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def spark(self) -> SparkSession:
        with self._lock:
            if self._closed:
                raise AnabranchError(
                    "ENGINE_CLOSED",
                    place="engine",
                    need="an open engine",
                    got="one that was closed",
                    next_step="Connect again.",
                )
            if self._spark is None:
                opened = self._open()
                try:
                    if not _is_local(opened):
                        require_shared_files(opened, self._root)
                except BaseException:
                    self._let_go(opened)
                    raise
                self._spark = opened
            return self._spark

    def _open(self) -> SparkSession:
        options = self._options
        if options.spark is not None:
            return _adopt(options.spark)
        if options.master is not None and options.master.startswith(_CONNECT):
            if options.memory or options.config or options.ui:
                raise AnabranchError(
                    "NOT_SUPPORTED",
                    place="memory=, config= or ui=",
                    need="settings that a client of Spark Connect can make",
                    got="settings of a server that runs already",
                    next_step="Set them where the server is started.",
                )
            return _prepared(_connect(options.master))
        return _prepared(_Local.acquire(options))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            spark, self._spark = self._spark, None
        if spark is not None:
            self._let_go(spark)

    def _let_go(self, spark: SparkSession) -> None:
        if self._options.spark is not None:
            return
        if _is_connect(spark):
            spark.stop()
        else:
            _Local.release()


class _Local:
    """The Spark driver of this process, shared by every engine in it that asks for one."""

    lock = threading.Lock()
    users = 0
    context: SparkContext | None = None  # the one that we started
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
            elif running is not cls.context and (options.memory or options.config or options.ui):
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
    def _start(cls, options: SessionOptions) -> None:
        require_java()
        builder = SparkSession.builder
        for name, value in _start_settings(options).items():
            builder = builder.config(name, value)
        descriptor, cls.log = tempfile.mkstemp(prefix="anabranch-spark-", suffix=".log")
        cls.launched_jvm = SparkContext._gateway is None
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
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j}",
    }
    if master.startswith("local"):
        settings["spark.driver.memory"] = options.memory or local_memory(machine_memory())
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    elif options.memory:
        settings["spark.executor.memory"] = options.memory
    # Workers that Spark launches by itself must find the interpreter that has this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {**settings, **options.config}


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


def _connect(url: str) -> SparkSession:
    try:
        import grpc  # noqa: F401
        import grpc_status  # noqa: F401
        import zstandard  # noqa: F401
    except ImportError as error:
        raise AnabranchError(
            "CONNECT_NOT_INSTALLED",
            place=f"master={url!r}",
            need="the client packages of Spark Connect",
            got=f"no module named {error.name!r}",
            next_step="Install them with: pip install 'anabranch[connect]'.",
        ) from None
    if SparkContext._active_spark_context is not None:
        raise AnabranchError(
            "SESSION_CONFLICT",
            place=f"master={url!r}",
            need="a process without a Spark driver of its own",
            got=f"a session on {SparkContext._active_spark_context.master!r}",
            next_step="Stop that session first, or connect from another process.",
        )
    _require_listening(url)
    return SparkSession.builder.remote(url).create()


def _require_listening(url: str) -> None:
    """The client would try for many minutes before it says that nobody is there."""
    parsed = urlparse(url)
    address = (parsed.hostname or "localhost", parsed.port or _CONNECT_PORT)
    try:
        socket.create_connection(address, timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise AnabranchError(
            "SPARK_UNREACHABLE",
            place=f"master={url!r}",
            need="a Spark Connect server that answers",
            got=str(error),
            next_step="Check the address, and that the server runs.",
        ) from error


def _adopt(spark: SparkSession) -> SparkSession:
    """A session of our own beside the caller's: the same cluster, separate SQL settings and views."""
    if type(spark).__name__ != "SparkSession" or not hasattr(spark, "newSession"):
        raise AnabranchError(
            "BAD_ARGUMENT",
            place="spark=",
            need="a SparkSession",
            got=f"a {type(spark).__name__}",
            next_step="Pass the session itself.",
        )
    return _prepared(spark.newSession())


def _prepared(spark: SparkSession) -> SparkSession:
    for name, value in SQL_SETTINGS.items():
        spark.conf.set(name, value)
    if not _is_connect(spark) and spark.sparkContext.master.startswith("local"):
        spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    return spark


def _is_connect(spark: SparkSession) -> bool:
    return "connect" in type(spark).__module__


def _is_local(spark: SparkSession) -> bool:
    """Whether driver and executors are this machine's, so that every file is everywhere."""
    return not _is_connect(spark) and spark.sparkContext.master.startswith("local")


def require_shared_files(spark: SparkSession, root: Path) -> None:
    """Executors must see the warehouse under the same path as this process."""
    probe = root / f".probe-{os.getpid()}"
    probe.write_text("anabranch")
    try:
        spark.read.text(probe.as_uri()).first()
    except Exception as error:
        raise AnabranchError(
            "WAREHOUSE_NOT_SHARED",
            place=f"warehouse {root}",
            need="a directory that this process and Spark's executors see under the same path",
            got="Spark does not find a file that was just written there",
            next_step="Put the warehouse on a file system that every machine mounts at the same place.",
        ) from error
    finally:
        probe.unlink(missing_ok=True)
