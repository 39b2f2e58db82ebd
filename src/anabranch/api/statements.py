"""Carrying out SQL statements."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

from pyspark.sql import DataFrame

from anabranch.api.branching import create_branch, states_of
from anabranch.api.tables import Tables
from anabranch.connectors.sinks import Sinks
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.drawing import draw
from anabranch.diagram.limits import IDLE, KEPT, Limits
from anabranch.diagram.rewrites.known import Note
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.source_text import did_you_mean
from anabranch.diagram.sql.split import compile_split
from anabranch.diagram.sql.statements import (
    CreateBranch,
    CreateQuery,
    CreateSink,
    CreateStream,
    Describe,
    Drop,
    DropBranch,
    DropSink,
    Explain,
    ReadTable,
    Resume,
    ResumeSink,
    ShowBranches,
    ShowSinks,
    ShowStreams,
    Snapshot,
    SplitStream,
    Statement,
)
from anabranch.engine.mistakes import quietly, spark_words
from anabranch.engine.queries import Queries
from anabranch.log.log import Log, StreamState
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import StreamSpec, check_name
from anabranch.model.time import duration_text, history_text, instant_text

_registering = threading.Lock()


class Statements:
    """Runs statements against one warehouse."""

    def __init__(self, log: Log, queries: Queries, sinks: Sinks, tables: Tables) -> None:
        self.log = log
        self.queries = queries
        self.sinks = sinks
        self.tables = tables

    def run(self, text: str, name: str = "sql") -> DataFrame | None:
        """Run all statements of a text; the result of the last one that has any."""
        result = None
        for statement in parse(text, name):
            found = self._one(statement)
            result = found if found is not None else result
        return result

    def _one(self, statement: Statement) -> DataFrame | None:
        match statement:
            case CreateStream():
                self._create_stream(statement)
            case CreateQuery():
                self._create_query(statement)
            case SplitStream():
                ways = compile_split(statement, self.queries.columns_of)
                self.queries.create_all(ways, statement.source)
            case ReadTable():
                frame = self._snapshot(statement.query)
                if statement.replace:
                    self.tables.replace(self.queries.resolve(statement.name), frame)
                else:
                    self.tables.create(statement.name, frame, statement.key)
            case Drop():
                self._drop(statement)
            case Resume():
                self.queries.resume(self.queries.resolve(statement.name))
            case ShowStreams():
                return self._show()
            case CreateSink():
                self._create_sink(statement)
            case DropSink():
                if not (statement.if_exists and not self.sinks.there(statement.name)):
                    self.sinks.drop(statement.name)
            case ResumeSink():
                self.sinks.resume(statement.name)
            case ShowSinks():
                return self._show_sinks()
            case CreateBranch():
                if not (statement.if_not_exists and self.log.branches.there(statement.name)):
                    session = self.queries.session
                    create_branch(self.log, session, statement.name, statement.expires, statement.past)
            case DropBranch():
                if not (statement.if_exists and not self.log.branches.there(statement.name)):
                    self.log.branches.drop(self.log.branches.find(statement.name))
            case ShowBranches():
                return self._show_branches()
            case Describe():
                return self._describe(statement)
            case Explain():
                return self._lines("plan", self.explain(statement))
            case Snapshot():
                return self._snapshot(statement)
        return None

    def _create_stream(self, wanted: CreateStream) -> None:
        spec = StreamSpec.declare(
            wanted.name, dict(wanted.columns), event_time=wanted.event_time, key=wanted.key, slack=wanted.slack,
            drift=wanted.drift, history=wanted.history,
        )  # fmt: skip
        if not (wanted.if_not_exists and self._exists(wanted.name)):
            self.log.create_stream(spec)

    def _create_query(self, wanted: CreateQuery) -> None:
        check_name(wanted.name, "stream")
        if wanted.archive is not None:
            check_name(wanted.archive, "archive")
        if wanted.if_not_exists and self._exists(wanted.name):
            return
        query = compile_query(wanted, self.queries.columns_of)
        self.queries.create(query, wanted.source)

    def _exists(self, name: str) -> bool:
        return any(state.name == name for state in self.log.streams())

    def _drop(self, wanted: Drop) -> None:
        if wanted.if_exists and not self._exists(wanted.name):
            return
        self.queries.drop(wanted.name)

    def _show(self) -> DataFrame:
        halted = {q.name: q.halted is not None for q in self.log.register.queries()}
        rows = [
            (s.name, "query" if s.role != "base" else "base", s.rows, instant_text(s.progress),
             "halted" if halted.get(s.name) else "")
            for s in self.log.streams()
        ]  # fmt: skip
        columns = "name STRING, kind STRING, rows BIGINT, progress STRING, state STRING"
        return self.queries.session.spark.createDataFrame(rows, columns)

    def _create_sink(self, wanted: CreateSink) -> None:
        if wanted.if_not_exists and self.sinks.there(wanted.name):
            return
        self.sinks.create(
            wanted.name, wanted.stream, wanted.to, table=wanted.table, key=wanted.key,
            insert_only=wanted.insert_only, format=wanted.format,
        )  # fmt: skip

    def _show_sinks(self) -> DataFrame:
        rows = [
            (s.name, s.stream, s.to, s.waiting, "" if s.halted is None else "retries" if s.retries else "halted",
             "" if s.halted is None else s.halted["got"])
            for s in self.sinks.states()
        ]  # fmt: skip
        columns = "name STRING, stream STRING, to STRING, waiting BIGINT, state STRING, error STRING"
        return self.queries.session.spark.createDataFrame(rows, columns)

    def _show_branches(self) -> DataFrame:
        rows = [
            (b.name or b.generation, b.parent or "", instant_text(b.made), instant_text(b.expires), b.holder)
            for b in states_of(self.log)
        ]
        columns = "name STRING, parent STRING, made STRING, expires STRING, holder STRING"
        return self.queries.session.spark.createDataFrame(rows, columns)

    def _describe(self, wanted: Describe) -> DataFrame:
        state = self.log.stream(self.queries.resolve(wanted.name))
        rows = [(f.name, f.type, _note(state, f.name)) for f in state.spec.schema if not f.name.startswith("_")]
        rows += [("", "", "")] + [(f"# {name}", value, "") for name, value in self._facts(state)]
        return self.queries.session.spark.createDataFrame(rows, "column STRING, type STRING, note STRING")

    def _facts(self, state: StreamState) -> list[tuple[str, str]]:
        if state.role == "base":
            spec = state.spec
            said = [("slack", duration_text(spec.slack)), ("drift", duration_text(spec.drift)),
                    ("history", history_text(spec.history, spec.history_rows)),
                    ("key", ", ".join(spec.key))]  # fmt: skip
        else:
            query = self.queries.query(state.name)
            definition = query.stored.definition
            said = [("query", definition["text"]), ("archive", definition["archive"] or ""),
                    ("history", _history(query.limits)),
                    ("ignored", str(self.queries.ignored_count(query) or "")),
                    ("revise every", _every(query.revise_every)),
                    ("revisions", str(query.limits)),
                    ("dropped revisions", str(query.dropped) if query.limits.when else ""),
                    ("on error", str(query.on_error)),
                    ("recovery", str(self.queries.recovery(self.queries.whole_plan(query)))),
                    ("halted", (query.stored.halted or {}).get("got", ""))]  # fmt: skip
        return [(name, value) for name, value in [*said, ("progress", instant_text(state.progress))] if value]

    def explain(self, wanted: Explain) -> list[str]:
        """A drawing of a query that is asked for, or of one that is there."""
        if isinstance(wanted.what, str):
            query = self.queries.query(self.queries.resolve(wanted.what))
            notes = [Note(**note) for note in query.stored.definition["notes"]]
            return self._drawn(self.queries.whole_plan(query), notes, self.queries.kernels(query))
        asked = compile_query(wanted.what, self.queries.columns_of)
        definer, defined = self.queries.define(asked, wanted.what.source)
        return self._drawn(definer.whole_plan(defined), defined.notes, definer.kernels(defined))

    def _drawn(self, plan: Box, notes: Sequence[Note], kernels: Sequence[str]) -> list[str]:
        return [*draw(plan, notes), "", "Kernels:", *kernels, "", f"Recovery: {self.queries.recovery(plan)}"]

    def _lines(self, column: str, lines: list[str]) -> DataFrame:
        return self.queries.session.spark.createDataFrame([(line,) for line in lines], f"{column} STRING")

    def _snapshot(self, wanted: Snapshot) -> DataFrame:
        """Spark's own SQL; the streams that it names are tables in it."""
        spark = self.queries.session.spark
        known = {state.name.lower(): state.name for state in self.log.streams()}
        known |= {archive.lower(): archive for archive in self.queries.archives()}
        with _registering:
            views = self.queries.session.views
            for name in views - set(known.values()):  # of streams that were dropped since, or are another branch's
                spark.catalog.dropTempView(name)
            views &= set(known.values())
            for name in sorted(known.keys() & wanted.names):
                self.queries.table(known[name]).createOrReplaceTempView(known[name])
                views.add(known[name])
            try:
                with quietly():
                    return spark.sql(wanted.text)
            except Exception as error:
                if type(error).__name__ not in ("AnalysisException", "ParseException"):
                    raise
                streams = ", ".join(sorted(known.values())) or "none yet"
                if missing := _not_found(error):
                    raise AnabranchError(
                        "UNKNOWN_STREAM",
                        place=wanted.source.name,
                        need=f"a stream or table that is there; the streams are {streams}",
                        got=repr(missing),
                        next_step=did_you_mean(missing, tuple(known.values())) + "Check the spelling.",
                    ) from error
                raise AnabranchError(
                    "BAD_EXPRESSION",
                    place=wanted.source.name,
                    need=f"a query that Spark accepts, over the streams that there are ({streams})",
                    got=spark_words(error),
                    next_step="Correct the query.",
                ) from error


def _history(limits: Limits) -> str:
    return " ".join(filter(None, (history_text(limits.history, limits.rows), "upstream" if limits.upstream else "")))


def _every(buckets: int) -> str:
    said = {IDLE: "time that nothing else waits", KEPT: "time that a table is to be kept right", 1: ""}
    return said.get(buckets, f"{buckets} buckets")


def _not_found(error: Exception) -> str | None:
    """The table that Spark did not find, if that is what it says."""
    found = re.search(r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view (\S+) cannot be found", str(error))
    return found[1].replace("`", "") if found else None


def _note(state: StreamState, column: str) -> str:
    notes = [("event time", column == state.spec.event_time), ("key", column in state.spec.key)]
    return ", ".join(note for note, holds in notes if holds)
