"""The one place that makes or adopts a SparkSession.

Four ways lead to a session: nothing said, a local one is started, sized to the machine; `master=`, one
is started there; a Spark Connect URL, a client connects; `spark=`, the caller's is adopted. Ours always
works in a session of its own, with its own SQL settings: an adopted one is neither changed nor stopped.
One that we started ends with the last engine that uses it, and takes its JVM with it.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from urllib.parse import urlparse

from pyspark import SparkContext
from pyspark.sql import SparkSession

from anabranch.engine import exact, functions
from anabranch.engine.driver import LocalDriver, SessionOptions
from anabranch.engine.kernel import KernelChoice
from anabranch.engine.reports import NumberedTasks
from anabranch.model.errors import AnabranchError

_CONNECT = "sc://"
_CONNECT_PORT = 15002
_CONNECT_SECONDS = 10

# What short steps want, settable in any session (measured: docs/internals.md).
SQL_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # A file that is missing or broken is an error, whatever an adopted session would forgive.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.ansi.enabled": "true",
    # Texts are the user's own: "${HOME}" in one is no variable of ours.
    "spark.sql.variable.substitute": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "4096",
}


# What a query remembers of the session in which it was created.
QUERY_SETTINGS = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive")


class Session:
    """A session that starts when it is first needed."""

    def __init__(
        self, options: SessionOptions, root: Path, prepare: Callable[[SparkSession], None] | None = None
    ) -> None:
        self._options = options
        self.kernel = KernelChoice.parse(options.kernel)
        self._prepare = prepare  # what else a session of ours is to know
        self._root = root
        self._spark: SparkSession | None = None
        self._lock = threading.Lock()
        self._settling = threading.RLock()
        self._closed = False
        self._apart: dict[tuple[tuple[str, str], ...], SparkSession] = {}
        self.views: set[str] = set()  # of streams, in the session that people use, whichever branch they are of

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
                    self._teach(opened)
                    if not _is_local(opened):
                        require_shared_files(opened, self._root)
                except BaseException:
                    self._let_go(opened)
                    raise
                self._spark = opened
            return self._spark

    def _teach(self, spark: SparkSession) -> None:
        if self._prepare is not None:
            self._prepare(spark)

    def apart(self, settings: Mapping[str, str]) -> SparkSession:
        """A session beside the main one, with settings of its own that nobody else changes."""
        wanted = tuple(sorted(settings.items()))
        main = self.spark
        with self._lock:
            if wanted not in self._apart:
                made = _prepared(main.newSession())
                self._teach(made)
                for name, value in wanted:
                    made.conf.set(name, value)
                self._apart[wanted] = made
            return self._apart[wanted]

    @cached_property
    def tasks(self) -> int:
        """How many tasks are worth having at once."""
        return int(str(self.spark.conf.get("spark.sql.shuffle.partitions")))

    @cached_property
    def numbered(self) -> NumberedTasks:
        return NumberedTasks(self.spark)

    def query_settings(self) -> dict[str, str]:
        """The settings under which a query that is created now will always run."""
        return {name: str(self.spark.conf.get(name)) for name in QUERY_SETTINGS}

    @contextmanager
    def under(self, settings: Mapping[str, str]) -> Iterator[SparkSession]:
        """The main session, analysing what it is given in here as settings say.

        Spark fixes what expressions mean when it analyses them. A client of Spark Connect does so only when they
        run: there it is another session.
        """
        main = self.spark
        with self._settling:
            now = {name: str(main.conf.get(name)) for name in settings}
            if now == dict(settings):
                yield main
            elif _is_connect(main):
                yield self.apart(settings)
            else:
                try:
                    for name, value in settings.items():
                        main.conf.set(name, value)
                    yield main
                finally:
                    for name, value in now.items():
                        main.conf.set(name, value)

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
        made = _prepared(LocalDriver.acquire(options))
        if LocalDriver.context is SparkContext._active_spark_context:
            self._teach(SparkSession.builder.getOrCreate())  # ours too, and active where nothing else is
        return made

    def close(self) -> None:
        with self._lock:
            self._closed = True
            spark, self._spark = self._spark, None
            apart, self._apart = list(self._apart.values()), {}
        for one in apart:
            _end_remote(one)
        if spark is not None:
            self._let_go(spark)

    def _let_go(self, spark: SparkSession) -> None:
        _end_remote(spark)
        if self._options.spark is None and not _is_connect(spark):
            LocalDriver.release()


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
    exact.register(spark)
    functions.register(spark)
    if not _is_connect(spark) and spark.sparkContext.master.startswith("local"):
        spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    return spark


def _is_connect(spark: SparkSession) -> bool:
    return "connect" in type(spark).__module__


def _end_remote(spark: SparkSession) -> None:
    """Release a session of ours on its server. It is never the caller's own: an adopted one has ours beside it.

    Where PySpark runs the server itself, the end of any session would end the server: there it stays.
    """
    if _is_connect(spark) and "SPARK_LOCAL_REMOTE" not in os.environ:
        spark.stop()


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
