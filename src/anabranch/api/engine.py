"""The engine: one warehouse, and the Spark session that works on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from weakref import WeakSet

from pyspark.sql import DataFrame, SparkSession

from anabranch.api.branching import Branching
from anabranch.api.statements import Statements
from anabranch.api.stream import Stream
from anabranch.api.tables import Tables
from anabranch.connectors.ingest import Ingests
from anabranch.connectors.sinks import Sinks, SinkState
from anabranch.connectors.source import register
from anabranch.engine.advance import Advanced
from anabranch.engine.driver import SessionOptions
from anabranch.engine.loop import Loop
from anabranch.engine.queries import Queries
from anabranch.engine.read import dataframe
from anabranch.engine.session import Session
from anabranch.engine.subscribe import Subscription
from anabranch.engine.upkeep.keeper import Listener
from anabranch.log.gc import GRACE_US, Collected
from anabranch.log.log import Log, StreamState
from anabranch.log.queries import is_hidden
from anabranch.log.reading import ReadPlan, ReadRange
from anabranch.log.views import View, ViewEnd, declare_view
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import StreamSpec
from anabranch.model.time import Duration, History, Instant, bucket_us, duration_us, instant_us


def connect(
    warehouse: str | Path,
    *,
    catalog: str | None = None,
    master: str | None = None,
    spark: SparkSession | None = None,
    ui: bool = False,
    memory: str | None = None,
    config: Mapping[str, str] | None = None,
    create: bool = True,
    kernel: str = "auto",
    branch: str | None = None,
    bucket: Duration | None = None,
) -> Engine:
    """Open a warehouse, and make it if it is not there.

    Spark starts when it is first needed: on this machine by default, at `master` (a cluster's URL, or
    `sc://host:port` for Spark Connect), or in the session given as `spark`, which is neither changed
    nor stopped. The catalog is SQLite in the warehouse, or PostgreSQL at the URL given as `catalog`.
    Aggregates are computed by the columnar kernel where it is proven to give what Spark gives, and by Spark
    elsewhere; `kernel="spark"` never asks the first, `kernel="columnar"` refuses queries that need the second.
    With `branch` the engine is on that branch, which must be there.
    `bucket` makes a new warehouse whose buckets are intervals of stream time, such as `"500ms"`; without it a bucket
    is whatever waits. It is fixed from then on.
    """
    if spark is not None and (master is not None or memory is not None or config):
        raise AnabranchError(
            "BAD_ARGUMENT",
            place="connect()",
            need="either an existing session or settings for a new one",
            got="spark= together with master=, memory= or config=",
            next_step="Leave out one or the other.",
        )
    size = None if bucket is None else bucket_us(bucket)
    log = Log(warehouse, catalog, create=create, branch=branch, bucket_us=size)
    options = SessionOptions(master=master, spark=spark, ui=ui, memory=memory, config=config or {}, kernel=kernel)
    return Engine(log, Session(options, log.root, prepare=register))


class Engine(Branching):
    """An open warehouse, or a branch of one. Use `connect()` to get one, `close()` or a `with` block to let it go."""

    def __init__(self, log: Log, session: Session, *, guest: bool = False) -> None:
        self._log = log
        self._session = session
        self._guest = guest  # in the session of another engine
        self._forked: WeakSet[Branching] = WeakSet()
        self._closed = False
        self._queries = Queries(log, session)
        self._ingests = Ingests(log)
        self._sinks = Sinks(log, session, self._queries)
        if log.branch is None:
            self._queries.advancer.outlets.append(self._sinks)
        self._tables = Tables(log, self._queries, self._stream)
        self._statements = Statements(log, self._queries, self._sinks, self._tables)
        self._loop: Loop | None = None

    @property
    def warehouse(self) -> Path:
        return self._log.root

    @property
    def generation(self) -> str | None:
        """The generation of the branch that this engine is on, under which it has its identity; None in main."""
        return self._log.generation

    @property
    def spark(self) -> SparkSession:
        """The session in which this engine works; started now if it was not yet."""
        return self._session.spark

    def create_stream(
        self,
        name: str,
        schema: str | Mapping[str, str],
        *,
        event_time: str,
        key: Sequence[str] | str = (),
        slack: Duration | None = None,
        drift: Duration | None = None,
        history: History | None = None,
        earliest: Instant | None = None,
        ahead: Duration | None = None,
    ) -> Stream:
        """Create a stream, or return the one that has exactly this declaration.

        `slack` waits for late rows of a source, `drift` stops waiting for a silent one, `history` is how
        far behind progress rows can be read again, or, as a whole number, how many of the newest. Event times
        before `earliest` or further `ahead` of the clock are taken for mistakes.
        """
        self._require_open()
        spec = StreamSpec.declare(
            name,
            schema,
            event_time=event_time,
            key=key,
            slack=slack,
            drift=drift,
            history=history,
            earliest=earliest,
            ahead=ahead,
        )
        return self._stream(self._log.create_stream(spec))

    def create_table(self, name: str, frame: DataFrame, *, key: Sequence[str] | str) -> Stream:
        """Make a table of what a Spark DataFrame has, for joins and lookups: a stream with a key, without time."""
        self._require_open()
        return self._tables.create(name, frame, key)

    def replace_table(self, name: str, frame: DataFrame) -> Stream:
        """Read a table again: what differs is replaced, what is gone is deleted, in one unit of work."""
        self._require_open()
        return self._tables.replace(name, frame)

    def stream(self, name: str) -> Stream:
        self._require_open()
        return self._stream(self._log.stream(name))

    def streams(self) -> list[Stream]:
        self._require_open()
        return [self._stream(state) for state in self._log.streams()]

    def _stream(self, state: StreamState) -> Stream:
        return Stream(self._log, self._session, self._queries, self._ingests, state)

    def drop_stream(self, name: str) -> None:
        """Forget a stream or a query, and its rows; refused while something reads it."""
        self._require_open()
        self._queries.drop(name)

    def sql(self, text: str, *, name: str = "sql") -> DataFrame | None:
        """Run SQL: `CREATE STREAM`, `DROP STREAM`, `SHOW STREAMS`, `DESCRIBE`, `EXPLAIN`, or a snapshot query.

        A snapshot query is Spark's own SQL over streams as tables. The answer is a DataFrame, or None where there
        is nothing to answer; of several statements, that of the last one that has any. Errors call the text `name`.
        """
        self._require_open()
        return self._statements.run(text, name)

    def advance(self, *, release: bool = True) -> Advanced:
        """Process all that is waiting, and say how much that was.

        Revisions that a query defers (`REVISE EVERY n BUCKETS`) are released at the end, unless `release` is false.
        Where buckets have a size, the interval of now ends with this call, and what comes later belongs to a later one.
        """
        self._require_open()
        return self._queries.advance(release=release)

    def start(self) -> None:
        """Advance in the background from now on, until `stop()`."""
        self._require_open()
        if self._loop is None or not self._loop.running:
            if self._loop is not None:
                self._loop.stop()  # raises what ended it
            self._loop = Loop(self._queries)
            self._loop.start()

    def stop(self) -> None:
        """Finish the step that is under way and advance no more; raises what ended the background work, if any."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop()

    def halted(self) -> dict[str, Mapping[str, str]]:
        """The queries and sinks that have halted, each with the parts of its error."""
        stored = self._log.register.queries()
        queries = {q.name: q.halted for q in stored if q.halted is not None and not is_hidden(q.name)}
        return queries | {s.name: s.halted for s in self._sinks.states() if s.halted is not None}

    def retrying(self) -> dict[str, Mapping[str, str]]:
        """What this engine has failed at and tries again: how often (`failures`), what `error`, and the `next` try.

        Nothing is lost by it and no step is stopped; what succeeds again is not listed any more. Each failure is also
        a warning of the logger `anabranch`.
        """
        return self._queries.advancer.retries.shown()

    def resume(self, name: str) -> None:
        """Let a query or a sink that has halted go on from where it stopped."""
        self._require_open()
        if self._sinks.there(name):
            self._sinks.resume(name)
        else:
            self._queries.resume(name)

    def table(
        self,
        name: str,
        *,
        include_open: bool = False,
        timestamp_as_of: Instant | None = None,
        position_as_of: int | None = None,
    ) -> DataFrame:
        """What a stream has said, as a table: windows that progress has closed, consolidated now.

        `include_open` adds the windows that are still open, with a column `_open` to tell them apart. The past is
        what had been said then: up to a stream time (`timestamp_as_of`), or up to a position of the stream's log.
        """
        self._require_open()
        if timestamp_as_of is not None and position_as_of is not None:
            raise AnabranchError(
                "BAD_ARGUMENT",
                place=f"table {name!r}",
                need="timestamp_as_of= or position_as_of=",
                got="both",
                next_step="Leave out one of them.",
            )
        stime = None if timestamp_as_of is None else instant_us(timestamp_as_of, f"table {name!r}, timestamp_as_of=")
        return self._queries.table(name, include_open=include_open, stime=stime, position=position_as_of)

    def changes(
        self, name: str, *, starting_position: int | None = None, ending_position: int | None = None
    ) -> DataFrame:
        """What a stream said, and corrected, in order: positions of its log, both inclusive.

        Each change has `_change_type`, `_stability`, `_bucket` and `_ordinal` within it, `_position` and `_stime`.
        """
        self._require_open()
        return self._queries.changes(name, starting_position, ending_position)

    def subscribe(
        self,
        stream: str,
        *,
        after: tuple[int, int] | None = None,
        insert_only: bool = False,
        follow: bool = True,
        tentative: bool = False,
        name: str | None = None,
    ) -> Subscription:
        """Iterate over the changes of a stream in their order, with `for` or `async for`, and wait for more.

        `after` is the identity, `change.at`, of the last change that is known already. `insert_only` gives
        insertions and leaves out every revision. `follow=False` ends where nothing more has been said. A
        subscription with a `name` goes on behind what it has acknowledged with `ack()`, and everything after that
        is kept for it until `engine.stream(stream).release(name)`. Use it in a `with` block, or `close()` it.
        """
        self._require_open()
        return self._queries.subscribe(
            stream, after=after, insert_only=insert_only, follow=follow, tentative=tentative, known_as=name
        )

    def create_sink(
        self,
        name: str,
        stream: str,
        to: str,
        *,
        table: str | None = None,
        key: Sequence[str] | str = (),
        insert_only: bool = False,
        format: str | None = None,
        tentative: bool = False,
    ) -> None:
        """Take the stable changes of a stream somewhere else, each exactly once, whenever this warehouse advances.

        `to` is `"postgresql://host/database"`: a table (the stream's name, or `table`) of the rows that are there
        now, told apart by `key`; or a directory: files (`format` parquet, json or csv) of all changes. With
        `insert_only` either has the insertions alone. The same sink again changes nothing.
        """
        self._require_open()
        self._sinks.create(name, stream, to, table=table, key=key, insert_only=insert_only, format=format,
                           tentative=tentative)  # fmt: skip

    def drop_sink(self, name: str) -> None:
        """Forget a sink; what it has written stays."""
        self._require_open()
        self._sinks.drop(name)

    def sinks(self) -> list[SinkState]:
        """The sinks, how far each has come, and the errors of those that have halted."""
        self._require_open()
        return self._sinks.states()

    def ignored(self, name: str) -> DataFrame:
        """What a query has ignored because of its history bound: `row` as JSON, `_change_type`, `_event_time`,
        `_bucket`, and why in `_reason`.
        """
        self._require_open()
        return self._queries.ignored(name)

    def create_view(self, name: str, stream: str, start: ViewEnd = None, end: ViewEnd = None) -> View:
        """Name a range of a stream, fixed or moving; what it covers is kept from retention.

        Ends are positions (`100`, or `-50` for the last fifty) or event times (`"2026-01-01T00:00:00Z"`, or
        `"-1 hour"` behind the newest).
        """
        self._require_open()
        return self._log.create_view(declare_view(name, stream, start, end))

    def view(self, name: str, *, log_columns: bool = False) -> DataFrame:
        """The rows that a view covers now."""
        self._require_open()
        view = self._log.view(name)
        plan = self._log.plan(view.stream, self._log.view_range(view))
        return dataframe(self.spark, plan, self._log.root, log_columns=log_columns)

    def drop_view(self, name: str) -> None:
        self._require_open()
        self._log.drop_view(name)

    def plan(self, stream: str, wanted: ReadRange) -> ReadPlan:
        """Which segments a read would open; nothing is read."""
        self._require_open()
        return self._log.plan(stream, wanted)

    def maintain(self, listener: Listener | None = None) -> dict[str, int]:
        """Do all upkeep that is due now, and say how much that was; `listener` is told how far it has come.

        Nobody needs to call this: whoever advances keeps house between steps. It is for a warehouse that was
        neglected, or before a backup. What goes wrong is raised.
        """
        self._require_open()
        return self._queries.maintain(listener)

    def collect_garbage(self, grace: Duration | None = None) -> Collected:
        """Remove files that no run refers to. `grace` spares what was let go of only just now."""
        self._require_open()
        return self._log.collect_garbage(GRACE_US if grace is None else duration_us(grace, "grace="))

    def close(self, *, drop: bool = False) -> None:
        """Let the warehouse go, and stop Spark if this engine started it. A branch without a name ends."""
        if self._closed:
            return
        try:
            for engine in list(self._forked):
                engine.close()
            self._ingests.stop()
            self.stop()
            self._queries.advancer.close()
        finally:
            self._closed = True
            if not self._guest:
                self._session.close()
            self._log.close(drop=drop)

    def _beside(self, log: Log) -> Self:
        return type(self)(log, self._session, guest=True)

    def _require_open(self) -> None:
        if self._closed:
            raise AnabranchError(
                "ENGINE_CLOSED",
                place=f"warehouse {self._log.root}",
                need="an open engine",
                got="one that was closed",
                next_step="Connect again.",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        branch = "" if self._log.branch is None else f", branch {self._log.branch.label}"
        return f"Engine({str(self._log.root)!r}{branch})"
