"""A stream, as people hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from anabranch.api.flow import BoundFlow
from anabranch.connectors.ingest import Ingests
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.fluent import Flow
from anabranch.engine.compact import Compacted, compact
from anabranch.engine.kernel import QUARANTINE
from anabranch.engine.load import load_files
from anabranch.engine.queries import Queries
from anabranch.engine.read import dataframe, quarantined
from anabranch.engine.retain import Retained, retain_all
from anabranch.engine.session import Session
from anabranch.engine.write import revise_with, write_dataframe
from anabranch.log.log import Log, StreamState
from anabranch.log.positions import Position
from anabranch.log.reading import ReadRange
from anabranch.log.units import UnitOfWork
from anabranch.log.views import View
from anabranch.model.errors import AnabranchError
from anabranch.model.run import ChangeType, Role, RunHeader, RunId
from anabranch.model.schema import Schema
from anabranch.model.stream import StreamSpec
from anabranch.model.time import Duration, Instant, instant_us, to_datetime


class Stream:
    """A base stream: an append-only log of runs."""

    def __init__(self, log: Log, session: Session, queries: Queries, ingests: Ingests, state: StreamState) -> None:
        self._log = log
        self._session = session
        self._queries = queries
        self._ingests = ingests
        self._state = state

    @property
    def name(self) -> str:
        return self._state.name

    @property
    def spec(self) -> StreamSpec:
        return self._state.spec

    @property
    def schema(self) -> Schema:
        return self._state.spec.schema

    def state(self) -> StreamState:
        """Counts, ranges and progress as they are now."""
        return self._log.stream(self.name)

    @property
    def progress(self) -> datetime | None:
        """How far in event time the stream has come."""
        micros = self.state().progress
        return None if micros is None else to_datetime(micros)

    # Queries in the fluent form; `create(name)` ends them.

    def _flow(self) -> BoundFlow:
        source = Source(self.name, self._queries.columns_of(self.name))
        return BoundFlow(Flow(source, self.name), self._queries)

    def where(self, condition: str) -> BoundFlow:
        """Begin a query: the rows for which a condition is true."""
        return self._flow().where(condition)

    def select(self, *columns: str) -> BoundFlow:
        """Begin a query: columns computed from each row."""
        return self._flow().select(*columns)

    def window(self, size: Duration, advance: Duration | None = None) -> BoundFlow:
        """Begin a query: windows over event time."""
        return self._flow().window(size, advance)

    def rows(self, size: int, advance: int | None = None) -> BoundFlow:
        """Begin a query: windows of so many rows of a group."""
        return self._flow().rows(size, advance)

    def resample(self, every: Duration, hold: Duration | None = None) -> BoundFlow:
        """Begin a query: a row at each instant of a grid, from the rows up to `hold` before it."""
        return self._flow().resample(every, hold)

    def split(self, *conditions: str) -> tuple[BoundFlow, ...]:
        """Begin queries: one for each condition, of which the first true one counts, and one for the rest."""
        return self._flow().split(*conditions)

    def sort(self) -> BoundFlow:
        """Begin a query: rows in the order of their event times, each said once progress has passed it."""
        return self._flow().sort()

    def groupBy(self, *keys: str) -> BoundFlow:
        """Begin a query: groups, for a running aggregate unless a window is said."""
        return self._flow().groupBy(*keys)

    def agg(self, *aggregates: str) -> BoundFlow:
        """Begin a query: an aggregate over all rows."""
        return self._flow().agg(*aggregates)

    def alias(self, name: str) -> BoundFlow:
        """Begin a query: the rows under another name, by which columns can be qualified."""
        return self._flow().alias(name)

    def join(self, other: BoundFlow | Stream, on: str, within: Duration | None = None, how: str = "inner") -> BoundFlow:
        """Begin a query: pairs of rows of this stream and of another for which `on` is true."""
        return self._flow().join(other, on, within, how)

    def lookup(self, table: BoundFlow | Stream, on: str, how: str = "inner", revise: bool = True) -> BoundFlow:
        """Begin a query: the rows of this stream with what a table, or any stream with a key, holds for them."""
        return self._flow().lookup(table, on, how, revise)

    def qualify(self, condition: str) -> BoundFlow:
        """Begin a query: the first rows of groups, by `row_number() OVER (...) <= n`."""
        return self._flow().qualify(condition)

    def union(self, other: BoundFlow | Stream) -> BoundFlow:
        """Begin a query: the rows of this stream and of another."""
        return self._flow().union(other)

    def append(
        self,
        data: Any,
        *,
        source: str | None = None,
        run_id: RunId | tuple[str, int] | None = None,
        on_bad_rows: str = "refuse",
        time_zone: str | None = None,
    ) -> RunHeader:
        """Commit rows as one run; they are durable when this returns.

        `data` is a list of dicts or tuples, Arrow data, a pandas DataFrame, or a Spark DataFrame, which
        the executors write. With a `run_id`, appending again changes nothing. Rows whose event time is
        missing or absurd are refused, or set aside with `on_bad_rows="quarantine"`.
        """
        unit = self._unit(data, source=source, run_id=run_id, on_bad_rows=on_bad_rows)
        with unit as work:
            work.append(data, time_zone=time_zone)
            return work.commit()

    def load(
        self,
        paths: Any,
        *,
        format: str | None = None,
        source: str | None = None,
        run_id: RunId | tuple[str, int] | None = None,
        on_bad_rows: str = "refuse",
        time_zone: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> RunHeader:
        """Commit Parquet, JSON lines or CSV files by reference, as one run: all of them or none.

        Nothing is copied, so the files must stay as they are; each call of `read()` checks that they did. Columns and
        change types are those that appended rows may have (docs/connect.md). Text without a time zone is read as
        UTC, or as `time_zone` says.
        """
        with self.unit_of_work(source=source, run_id=run_id, on_bad_rows=on_bad_rows) as work:
            work.load(paths, format=format, time_zone=time_zone, options=options)
            return work.commit()

    def ingest(
        self,
        frame: DataFrame,
        *,
        name: str | None = None,
        checkpoint: str | Path | None = None,
        source: str | None = None,
        on_bad_rows: str = "refuse",
        time_zone: str | None = None,
        trigger: Mapping[str, Any] | None = None,
    ) -> StreamingQuery:
        """Take in a streaming DataFrame, from any Spark `readStream`, each row exactly once across restarts.

        Each micro-batch is one run, committed under the identity of the checkpoint and the number of the batch: one
        that Spark repeats changes nothing. `name` tells several ingests into a stream apart; the checkpoint is in
        the warehouse unless you say where. `trigger` is what `DataStreamWriter.trigger` takes, such as
        `{"availableNow": True}`. The answer is Spark's own StreamingQuery; it is stopped when the engine closes.
        """
        return self._ingests.start(
            self._state, frame, name=name, checkpoint=checkpoint, source=source, on_bad_rows=on_bad_rows,
            time_zone=time_zone, trigger=trigger,
        )  # fmt: skip

    def replace(self, rows: Any, *, source: str | None = None, run_id: RunId | tuple[str, int] | None = None,
                time_zone: str | None = None) -> RunHeader:  # fmt: skip
        """Commit rows that take the place of those with the same key."""
        with self._unit(rows, source=source, run_id=run_id) as work:
            work.replace(rows, time_zone=time_zone)
            return work.commit()

    def delete(
        self, keys: Any, *, source: str | None = None, run_id: RunId | tuple[str, int] | None = None
    ) -> RunHeader:
        """Delete the rows with these keys: rows of the key columns, or bare values where the key is one column."""
        with self._unit(keys, source=source, run_id=run_id) as work:
            work.delete(keys)
            return work.commit()

    def unit_of_work(
        self,
        *,
        source: str | None = None,
        run_id: RunId | tuple[str, int] | None = None,
        speculative: bool = False,
        on_bad_rows: str = "refuse",
    ) -> Work:
        """Many appends, one run: it commits at the end of the `with` block and aborts on an exception.

        A `speculative` unit shows its rows before it commits, to readers that ask for tentative ones.
        """
        unit = self._log.unit_of_work(
            self._state, source=source, run_id=run_id, speculative=speculative, on_bad_rows=on_bad_rows
        )
        return Work(unit, self._session)

    def _unit(self, data: Any, **options: Any) -> Work:
        # A DataFrame is written by many tasks, some of them perhaps twice: it gets an intent of its own.
        single = not isinstance(data, DataFrame)
        return Work(self._log.unit_of_work(self._state, single=single, **options), self._session)

    def punctuate(self, time: Instant, source: str | None = None) -> RunHeader:
        """Promise that no row before `time` is to be waited for, from one source or from any."""
        return self._log.punctuate(self._state, instant_us(time, f"punctuate stream {self.name!r}"), source)

    def read(
        self,
        *,
        starting_position: int | None = None,
        ending_position: int | None = None,
        from_time: Instant | None = None,
        to_time: Instant | None = None,
        tentative: bool = False,
        log_columns: bool = False,
    ) -> DataFrame:
        """Rows as they were logged: positions inclusive, event times from inclusive to exclusive.

        `tentative` adds the rows of speculative units of work. `log_columns` adds where each row stands in
        the log: `_position`, `_ordinal`, `_stime`, `_entry_point`, `_sequence`, `_source`, `_change_type`,
        `_stability`. In a keyed stream deletions are rows of the log too; those by key have no event time, and
        a read of a stretch of event time has them only with `log_columns`, since they may concern it. Files
        taken by reference are checked when this is called, not each time the DataFrame is used.
        """
        place = f"read stream {self.name!r}"
        wanted = ReadRange(
            first_position=_position(starting_position, f"{place}, starting_position="),
            last_position=_position(ending_position, f"{place}, ending_position="),
            from_time=None if from_time is None else instant_us(from_time, f"{place}, from_time="),
            to_time=None if to_time is None else instant_us(to_time, f"{place}, to_time="),
            tentative=tentative,
        )
        _require_forward(starting_position, ending_position, f"{place}, positions")
        _require_forward(wanted.from_time, wanted.to_time, f"{place}, event times")
        plan = self._log.plan(self.name, wanted)
        return dataframe(self._session.spark, plan, self._log.root, log_columns=log_columns)

    def held(self) -> DataFrame:
        """Deletions that wait for rows which have not come, as these rows with `_held`, how many of each lack.

        They take nothing else away. In a stream with a key they are deletions of keys that never had a row.
        """
        return self._queries.held(self.name)

    def quarantined(self) -> DataFrame:
        """Rows that were set aside when they came, with `_reason`, and `_position` and `_source` of their run.

        Those that a query has set aside, because an expression failed on them, are in one column, `row`, as JSON.
        """
        names = [self.name] if self._state.role == "base" else self._queries.stages_of(self.name)
        plans = [self._log.plan(name, ReadRange(role=Role.QUARANTINE)) for name in names]
        if self._state.role != "base":
            plans = [replace(p, spec=replace(p.spec, schema=Schema(QUARANTINE.fields[:1]))) for p in plans]
        frames = [quarantined(self._session.spark, plan, self._log.root) for plan in plans]
        return reduce(DataFrame.unionByName, frames)

    @property
    def dropped_revisions(self) -> int:
        """How many revisions a query has not said because they matter too little (`REVISE WHEN`)."""
        return 0 if self._state.role == "base" else self._queries.query(self.name).dropped

    def runs(self, newest: int | None = None) -> list[RunHeader]:
        """The headers of the log in order, or of its newest few."""
        _position(newest, "newest=")
        return self._log.headers(self._state, newest=newest)

    def views(self) -> list[View]:
        return self._log.views_of(self.name)

    def hold(self, name: str, position: int) -> None:
        """Keep everything after a position readable and uncompacted until `release(name)`."""
        self._log.hold(self._state, name, position)

    def release(self, name: str) -> bool:
        return self._log.release(self._state, name)

    def positions(self) -> Sequence[Position]:
        return self._log.positions_of(self._state)

    def retain(self) -> Retained:
        """Let go of rows older than the history bound that nothing can need any more."""
        return retain_all(self._log, self.name)

    def compact(self) -> Compacted:
        """Rewrite small old segments into large ones; reads give the same rows as before."""
        return compact(self._log, self._session, self._state)

    def __repr__(self) -> str:
        return f"Stream({self.name!r}: {self.schema})"


class Work:
    """An open unit of work; see `Stream.unit_of_work`."""

    def __init__(self, unit: UnitOfWork, session: Session) -> None:
        self._unit = unit
        self._session = session

    def append(self, data: Any, *, time_zone: str | None = None) -> None:
        """Add rows, Arrow data, a pandas or a Spark DataFrame."""
        if isinstance(data, DataFrame):
            write_dataframe(data, self._unit, time_zone=time_zone)
        else:
            self._unit.append(data, time_zone=time_zone)

    def load(
        self,
        paths: Any,
        *,
        format: str | None = None,
        time_zone: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Add files by reference."""
        load_files(self._session, self._unit, paths, file_format=format, time_zone=time_zone, options=options)

    def replace(self, rows: Any, *, time_zone: str | None = None) -> None:
        """Add rows that take the place of those with the same key."""
        if isinstance(rows, DataFrame):
            revise_with(rows, self._unit, ChangeType.UPDATE_POSTIMAGE)
        else:
            self._unit.replace(rows, time_zone=time_zone)

    def delete(self, keys: Any) -> None:
        """Delete the rows with these keys."""
        if isinstance(keys, DataFrame):
            revise_with(keys, self._unit, ChangeType.DELETE)
        else:
            self._unit.delete(keys)

    def commit(self) -> RunHeader:
        """Commit before the block ends; nothing more can be added."""
        return self._unit.commit()

    def abort(self) -> None:
        self._unit.abort()

    def __enter__(self) -> Self:
        self._unit.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unit.__exit__(kind, error, trace)


def _position(value: int | None, place: str) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=place,
            need="a whole number from 1",
            got=repr(value),
            next_step="The first position is 1; leave it out for no limit.",
        )
    return value


def _require_forward(start: int | None, end: int | None, place: str) -> None:
    if start is not None and end is not None and end < start:
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=place,
            need="an end that is not before the start",
            got=f"{start} to {end}",
            next_step="Swap the two.",
        )
