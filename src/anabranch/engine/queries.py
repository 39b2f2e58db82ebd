"""The queries of a warehouse, for whoever talks to people: create, drop, explain, read, advance."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.view import View
from anabranch.diagram.progress import sources_of
from anabranch.diagram.query import Query
from anabranch.diagram.sql.source_text import SourceText
from anabranch.diagram.taxonomy import Verdict, recovery_of
from anabranch.engine.advance import Advanced, Advancer, Recording
from anabranch.engine.analysis import Analysis
from anabranch.engine.define import Defined, Definer, with_stages
from anabranch.engine.ignored import count_ignored, ignored_rows
from anabranch.engine.kernels import columnar, kernel_lines
from anabranch.engine.live import Live, LiveQuery
from anabranch.engine.mistakes import ExpressionRefused
from anabranch.engine.netting import held_of, rows_of
from anabranch.engine.pieces import Cursor, Pieces
from anabranch.engine.read import dataframe
from anabranch.engine.session import Session
from anabranch.engine.subscribe import Subscription, check_combination, start_of
from anabranch.engine.tables import changes_of, table_of_query
from anabranch.engine.upkeep.keeper import Listener
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadRange
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import check_name
from anabranch.model.time import instant_text

_ATTEMPTS = 5


class Queries:
    """Continuous queries over one log and one session."""

    def __init__(self, log: Log, session: Session) -> None:
        self.log = log
        self.session = session
        self.advancer = Advancer(log, session)
        self._stepping = threading.Lock()  # one step at a time in this process

    # Making and dropping.

    def define(self, query: Query, source: SourceText) -> tuple[Definer, Defined]:
        """Analyse a query; mistakes in its expressions point into its text."""
        definer, defined = self._define([self._with_names(query)], source)
        return definer, defined[0]

    def _define(self, queries: Sequence[Query], source: SourceText) -> tuple[Definer, list[Defined]]:
        settings = self.session.query_settings()
        definer = Definer(Live(self.log), self.session.apart(settings), settings, self.session.kernel)
        try:
            return definer, [definer.define(query) for query in queries]
        except ExpressionRefused as refused:
            raise bad_expression(refused, source) from refused

    def create(self, query: Query, source: SourceText) -> None:
        """Create a query. The same one again changes nothing; another one under its name is an error."""
        self.create_all([query], source)

    def create_all(self, queries: Sequence[Query], source: SourceText) -> None:
        """Create queries of one statement: all of them, or none if something is wrong with one."""
        with self._stepping:  # what is kept must not change between being found and being used
            known = Live(self.log).queries
            asked = [self._with_names(query) for query in queries]
            new = [query for query in asked if not (query.name in known and known[query.name].asks(query))]
            if new:
                definer, defined = self._define(new, source)
                definer.create(defined, source.text)

    def _with_names(self, query: Query) -> Query:
        return replace(query, box=self._named(query.box))

    def _named(self, box: Box) -> Box:
        """A diagram whose sources have the names that their streams have, in whatever case they were written."""
        if isinstance(box, Source):
            name = self.resolve(box.stream)
            right = replace(box, stream=name)
            return right if name.lower() == box.stream.lower() else View(right, box.stream)
        return box.with_inputs(*map(self._named, box.inputs)) if box.inputs else box

    def whole_plan(self, query: LiveQuery) -> Box:
        """A query's diagram as it is computed, with that of the stages behind it."""
        return _whole(Live(self.log), query)

    def kernels(self, query: LiveQuery) -> list[str]:
        """The kernel of each box of a query and of the stages behind it, as lines for people."""
        live = Live(self.log, self.advancer.recipes)
        analysis = Analysis(live, self.session.apart(query.settings), query.settings)
        own, *behind = (stage.plan for stage in live.stages_of(query))
        return kernel_lines(self.session.kernel, analysis, [*behind, own], query.limits)

    def recovery(self, box: Box) -> Verdict:
        """How a diagram recovers, with those of the queries whose answers it reads."""
        live = Live(self.log)
        read: dict[str, Box] = {}
        waiting = [box]
        while waiting:
            for name in sources_of(waiting.pop()):
                if name in live.queries and name not in read:
                    read[name] = _whole(live, live.queries[name])
                    waiting.append(read[name])
        return recovery_of(box, *read.values())

    def columns_of(self, name: str) -> tuple[str, ...]:
        """The columns of a stream, base or derived, as queries see them."""
        stream = self.log.stream(self.resolve(name))
        return tuple(c for c in stream.spec.schema.names if not c.startswith("_"))

    def resolve(self, name: str) -> str:
        """A stream's name, also where its archive's was given or its case was not kept."""
        known = {archive.lower(): query for archive, query in self.archives().items()}
        names = [state.name for state in self.log.streams()]
        known |= {there.lower(): there for there in names}
        return name if name in names else known.get(name.lower(), name)

    def archives(self) -> dict[str, str]:
        """The archives of the warehouse, and the queries whose tables they are."""
        stored = self.log.register.queries()
        return {q.definition["archive"]: q.name for q in stored if q.definition.get("archive")}

    def drop(self, name: str) -> None:
        with self._stepping:
            self._drop(name)

    def _drop(self, name: str) -> None:
        name = self.resolve(name)
        query = Live(self.log).queries.get(name)
        if query is None:
            self.log.drop_stream(name)
        else:
            self.log.register.drop_query(query.stored)

    def resume(self, name: str) -> None:
        """Let a query that has halted try again from where it stopped; one that has not goes on as it does."""
        wanted = self.query(self.resolve(name))
        live = Live(self.log)
        behind = [q for q in live.queries.values() if q.hidden and wanted in live.readers_of(q)]
        for query in [*behind, wanted]:
            self.log.register.resume(query.stored.id)

    def query(self, name: str) -> LiveQuery:
        live = Live(self.log)
        if name not in live.queries:
            state = self.log.stream(name)
            raise AnabranchError(
                "BAD_ARGUMENT",
                place=f"stream {state.name!r}",
                need=f"a query; there are {', '.join(live.queries) or 'none'}",
                got="a base stream",
                next_step="Name a stream that was made with CREATE STREAM ... AS.",
            )
        return live.queries[name]

    # Reading.

    def table(
        self, name: str, *, include_open: bool = False, stime: int | None = None, position: int | None = None
    ) -> DataFrame:
        """A stream's table: what it has said, now or at a moment of the past."""
        name = self.resolve(name)
        state = self.log.stream(name)
        if stime is not None or position is not None:
            if include_open:
                raise AnabranchError(
                    "NOT_SUPPORTED",
                    place=f"table {name!r}",
                    need="either include_open= or a moment of the past",
                    got="both",
                    next_step="Leave one out: the past is what had been said, and open windows had not.",
                )
            return self._past(state, stime, position)
        live = Live(self.log, self.advancer.recipes)
        if name in live.queries:
            return self._answer(name, live, include_open=include_open)
        rows = self._base(state, None)
        return rows.selectExpr("*", "false AS _open") if include_open else rows

    def _answer(self, name: str, live: Live, *, include_open: bool) -> DataFrame:
        """The table of a query. Where a step was committed while it was planned, it is planned again."""
        kernel = columnar(self.session, self.log.root)
        while True:
            query = live.queries[name]
            with self.session.under(query.settings) as spark:  # its expressions keep meaning what they meant
                table = table_of_query(self.log, live, spark, query, kernel, include_open=include_open)
            live = Live(self.log, self.advancer.recipes)
            if name not in live.queries or live.queries[name].stored.bucket == query.stored.bucket:
                return table

    def _base(self, state: StreamState, last: int | None) -> DataFrame:
        plan = self.log.plan(state.name, ReadRange(last_position=last, held=last is None))
        if last is None and not state.spec.key and not state.revised_by(state.last_position):
            return dataframe(self.session.spark, plan, self.log.root)
        changes = dataframe(self.session.spark, plan, self.log.root, log_columns=True)
        return rows_of(changes, state.spec.key, state.spec.schema.names)

    def held(self, name: str) -> DataFrame:
        """The deletions of a stream that wait for their rows; of a query there are none."""
        state = self.log.stream(self.resolve(name))
        changes = changes_of(self.log, self.session.spark, state, None, None, versions=True)
        columns = [c for c in state.spec.schema.names if not c.startswith("_")]
        return held_of(changes, state.spec.key, columns)

    def _past(self, state: StreamState, stime: int | None, position: int | None) -> DataFrame:
        last = self._position_at(state, stime) if position is None else position
        if not 0 <= last <= state.last_position:
            raise AnabranchError(
                "BAD_ARGUMENT",
                place=f"table {state.name!r}, position_as_of=",
                need=f"a position from 0 to {state.last_position}",
                got=str(last),
                next_step="Choose a position that the stream has reached.",
            )
        if state.role == "base":
            return self._base(state, last)
        own = tuple(c for c in state.spec.schema.names if not c.startswith("_"))
        if last == 0:
            return rows_of(changes_of(self.log, self.session.spark, state, None, None).where("false"), (), own)
        return rows_of(changes_of(self.log, self.session.spark, state, None, last), (), own)

    def _position_at(self, state: StreamState, stime: int | None) -> int:
        assert stime is not None
        position = self.log.moments.position_at(state.id, stime)
        if position is None:
            raise AnabranchError(
                "HISTORY_GONE",
                place=f"table {state.name!r}, timestamp_as_of=",
                need="a stream time of which the log still knows",
                got=instant_text(stime),
                next_step="Choose a later time: older headers have been folded together.",
            )
        return position

    def changes(self, name: str, first: int | None, last: int | None) -> DataFrame:
        """What a stream said, and corrected, in order; what is tentative after the bucket that it rests on."""
        state = self.log.stream(self.resolve(name))
        stable = changes_of(self.log, self.session.spark, state, first, last)
        if state.role == "base":
            return stable.orderBy("_position", "_ordinal")
        feed = self.log.stream_by_id(self.query(state.name).stored.feed_id)
        if last is not None or feed.last_position == 0:
            return stable.orderBy("_position", "_ordinal")
        said = changes_of(self.log, self.session.spark, feed, None, None)
        if first is not None:
            said = said.where(F.col("_bucket") >= self.log.moments.bucket_of(state.id, first))
        tentative = said.withColumns({"_stability": F.lit("tentative"), "_feed": F.col("_position")})
        tentative = tentative.withColumn("_position", F.lit(None).cast("bigint"))
        both = stable.withColumn("_feed", F.lit(0)).unionByName(tentative)
        return both.orderBy("_bucket", "_feed", "_ordinal").drop("_feed")

    def subscribe(
        self, name: str, *, after: object, insert_only: bool, follow: bool, tentative: bool, known_as: str | None
    ) -> Subscription:
        """The changes of a stream, one after the other."""
        state = self.log.stream(self.resolve(name))
        check_combination(state, insert_only=insert_only, tentative=tentative)
        if known_as is not None:
            check_name(known_as, "subscription")
            self.log.require_main("a subscription with a name")
        cursor, behind = start_of(self.log, state, known_as, after)
        readers = [Pieces(self.log, self.session, state, cursor, after=behind, insert_only=insert_only)]
        if tentative:
            feed = self.log.stream_by_id(self.query(state.name).stored.feed_id)
            bucket = behind[0] if behind else self.log.moments.bucket_of(state.id, max(cursor.next_position - 1, 1))
            rests = Cursor(self.log.moments.before_bucket(feed.id, 0 if cursor.position == 0 else bucket))
            readers.append(Pieces(self.log, self.session, feed, rests))
        return Subscription(self.log, state, readers, follow=follow, name=known_as)

    def stages_of(self, name: str) -> list[str]:
        """The streams that a query says its answers through: its own, and those of the stages behind it."""
        live = Live(self.log)
        return [query.name for query in live.stages_of(live.queries[name])]

    def ignored(self, name: str) -> DataFrame:
        """What a query has ignored, because rows beyond its history bound would have to be read again."""
        return ignored_rows(self.log, self.session.spark, Live(self.log), self.query(self.resolve(name)))

    def ignored_count(self, query: LiveQuery) -> int:
        return count_ignored(self.log, Live(self.log), query)

    # Advancing.

    def advance(
        self, *, release: bool = True, at_once: int | None = None, recording: Recording = Recording.ALL
    ) -> Advanced:
        """Process all that is waiting."""
        with self._stepping:
            for _ in range(_ATTEMPTS):
                try:
                    return self.advancer.advance(release=release, at_once=at_once, recording=recording)
                except AnabranchError as error:
                    if error.id != "POSITION_CONFLICT":
                        raise
                    last = error  # another engine has dropped or made a query meanwhile: look again
            raise last

    # Upkeep.

    def maintain(self, listener: Listener | None = None) -> dict[str, int]:
        """Do all upkeep that there is to do."""
        with self._stepping:
            return self.advancer.maintain(listener)


def _whole(live: Live, query: LiveQuery) -> Box:
    return with_stages(query.plan, lambda keep: live.plan_of(keep, query.terms))


def bad_expression(refused: ExpressionRefused, source: SourceText) -> AnabranchError:
    expression = refused.expression
    place = (
        "an expression" if expression.at is None else source.place(expression.at, expression.at + len(expression.text))
    )
    return AnabranchError(
        "BAD_EXPRESSION",
        place=place,
        need="an expression of Spark SQL over the columns of the input",
        got=refused.reason,
        next_step="Correct the expression; nothing was created.",
    )
