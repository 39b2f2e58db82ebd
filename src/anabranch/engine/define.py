"""Making a query: its diagram is rewritten, Spark says what types come out, and the register gets it.

Nothing runs: Spark analyses the plans over empty inputs, which is also how mistakes in expressions are
found before anything is created.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.diagram import codec
from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.expression import Expression
from anabranch.diagram.progress import has_event_time, sources_of
from anabranch.diagram.query import Query
from anabranch.diagram.rewrites import STAGE, WHOLE, Rewritten, rewrite
from anabranch.diagram.rewrites.known import Key, Known, Note
from anabranch.diagram.rewrites.stack import stack
from anabranch.diagram.stages import Leaf, boxes_of, kept_in, leaves_of
from anabranch.diagram.taxonomy import arbitrary_in
from anabranch.engine.aggregates import has_map
from anabranch.engine.answers import Answers, Kept, Version
from anabranch.engine.groups import Recipe, recipe
from anabranch.engine.join import paired, sources
from anabranch.engine.kernel import partial_rows, prepare_partials, rows_below
from anabranch.engine.live import Live, LiveQuery, Terms, is_hidden
from anabranch.engine.mistakes import ExpressionRefused, quietly, spark_words
from anabranch.engine.read import spark_schema
from anabranch.engine.relation import Leaves, Relation, listed
from anabranch.engine.rows import lower_linear
from anabranch.log.buckets import BASE
from anabranch.log.register import NewQuery, NewStore
from anabranch.model.errors import AnabranchError
from anabranch.model.schema import Schema
from anabranch.model.stream import StreamSpec

EVENT_TIME = "_event_time"
# What the log of a derived stream has beside the columns of its query.
SAID = "_event_time TIMESTAMP, _bucket BIGINT, _of BIGINT"
_CARRIED = "_event_time TIMESTAMP, _weight INT, _bucket BIGINT, _of BIGINT"
_ORDERED = (
    "min",
    "max",
    "first",
    "last",
    "count_distinct",
    "median",
    "percentile",
    "approx_percentile",
    "approx_count_distinct",
)
_MESSAGE = "_gone BOOLEAN, _stamp STRUCT<s: TIMESTAMP, p: BIGINT, o: BIGINT>"


@dataclass(frozen=True)
class Stage:
    """A part of a diagram that is to be computed, and what it gives and keeps."""

    asked: Box
    rewritten: Rewritten
    schema: Schema
    stores: tuple[int | NewStore, ...]


@dataclass(frozen=True)
class Defined:
    """A query that can be created: the stages behind it that are new, and its own."""

    query: Query
    behind: tuple[Stage, ...]
    stage: Stage
    notes: tuple[Note, ...]

    @property
    def schema(self) -> Schema:
        return self.stage.schema

    @property
    def plan(self) -> Box:
        return self.stage.rewritten.box


class Definer:
    """Analyses queries over the streams of a warehouse."""

    def __init__(self, live: Live, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self.live = live
        self.spark = spark
        self.settings = dict(settings)
        self._schemas: dict[Keep, Schema] = {}  # of stages that are not created yet

    def define(self, query: Query) -> Defined:
        """Rewrite a query and find its types; raises what Spark refuses, at its place."""
        terms = Terms.of(self.settings, query.on_error)
        known = self._known(terms)
        whole = self._whole(query, known)
        _refuse_windows_over_running(whole.box, query)
        behind = []
        for keep in kept_in(whole.box):
            if self.live.stage(keep, terms) is None:
                behind.append(self._stage(keep.input, known, query))
                self._schemas[keep] = behind[-1].schema
        stage = self._stage(whole.box, known, query)
        notes = (*whole.notes, *(note for s in behind for note in s.rewritten.notes), *stage.rewritten.notes)
        return Defined(query, tuple(behind), stage, notes)

    def _whole(self, query: Query, known: Known) -> Rewritten:
        """The diagram down to the base streams. Aggregates that are one must have the types that they had as two."""
        whole = rewrite(query.box, known, WHOLE)
        if any(note.rewrite == "stack" and "->" in note.what for note in whole.notes):
            apart = rewrite(query.box, known, tuple(step for step in WHOLE if step is not stack))
            if self._types(apart.box, known, query) != self._types(whole.box, known, query):
                return apart
        return whole

    def _types(self, box: Box, known: Known, query: Query) -> Schema | None:
        if kept_in(box):
            return None
        with Leaves(self.spark) as leaves, quietly():
            made = rewrite(box, known, STAGE).box
            try:
                return _schema(leaves.frame(self._answer(leaves, made).sql), made.columns, f"stream {query.name!r}")
            except (AnalysisException, ParseException):
                return None  # it is refused at its place later

    def _known(self, terms: Terms) -> Known:
        live = self.live
        # Under other terms its expressions would mean something else, and what retention has taken it has still said.
        derived = {
            name: query.asked
            for name, query in live.queries.items()
            if not query.hidden and query.terms == terms and not (query.linear and self._trimmed(query))
        }
        keyed = {
            state.name: Key(state.spec.key, state.spec.event_time)
            for state in live.log.streams()
            if state.role == BASE and state.spec.key
        }
        return Known(derived, tuple(s.box for s in live.stores.values() if s.terms == terms), keyed)

    def _trimmed(self, query: LiveQuery) -> bool:
        return any(self.live.stream(name).trimmed for name in query.sources)

    def _stage(self, asked: Box, known: Known, query: Query) -> Stage:
        rewritten = rewrite(asked, known, STAGE)
        box = rewritten.box
        with Leaves(self.spark) as leaves:
            self._check_expressions(leaves, box)
            answer = self._analysed(leaves, self._answer(leaves, box).sql, query)
            schema = _schema(answer, box.columns, f"stream {query.name!r}")
        terms = Terms.of(self.settings, query.on_error)
        numbers = {s.box: number for number, s in self.live.stores.items() if s.terms == terms}
        stores: list[int | NewStore] = []
        for part in dict.fromkeys(b for b in boxes_of(box) if isinstance(b, Partials)):
            stores.append(numbers[part] if part in numbers else self._new_store(part, query))
        return Stage(asked, rewritten, schema, tuple(stores))

    def create(self, defined: Defined, text: str) -> None:
        query = defined.query
        made = [
            self._new_query(stage, stage_name(stage.asked, self.settings, query), query) for stage in defined.behind
        ]
        own = self._new_query(defined.stage, query.name, query)
        said = {"text": text, "asked": codec.to_json(query.box), "notes": [asdict(note) for note in defined.notes]}
        own = replace(own, definition={**own.definition, **said}, archive=query.archive)
        self.live.log.register.create_queries([*made, own])

    def whole_plan(self, defined: Defined) -> Box:
        """A query's diagram as it will be computed, with that of the stages behind it."""
        terms = Terms.of(self.settings, defined.query.on_error)
        new = {Keep(stage.asked): stage.rewritten.box for stage in defined.behind}
        return with_stages(defined.plan, lambda keep: new.get(keep) or self.live.plan_of(keep, terms))

    def _new_query(self, stage: Stage, name: str, query: Query) -> NewQuery:
        schema = Schema((*stage.schema.fields, *Schema.parse(SAID, "").fields))
        definition = {
            "text": f"-- behind {query.name}",
            "asked": codec.to_json(stage.asked),
            "plan": codec.to_json(stage.rewritten.box),
            "reads": self._reads(stage, stage.asked if is_hidden(name) else query.box, query),
            "revise_every": 1 if is_hidden(name) else query.revise_every,
            "on_error": str(query.on_error),
            "settings": self.settings,
        }
        return NewQuery(StreamSpec(name, schema, EVENT_TIME), definition, stage.stores)

    def _reads(self, stage: Stage, asked: Box, query: Query) -> dict[str, int | None]:
        """The streams that a stage reads or was defined on, with their numbers; stages that are new have none yet."""
        terms = Terms.of(self.settings, query.on_error)
        found: dict[str, int | None] = {}
        for leaf in [*leaves_of(stage.rewritten.box), *(b for b in asked.walk() if isinstance(b, Source))]:
            if isinstance(leaf, Source):
                found[leaf.stream] = self.live.stream(leaf.stream).id
                continue
            kept = self.live.stage(leaf, terms)
            name = stage_name(leaf.input, self.settings, query) if kept is None else kept.name
            found[name] = None if kept is None else kept.stored.stream_id
        return found

    def _new_store(self, box: Partials, query: Query) -> NewStore:
        with Leaves(self.spark) as leaves:
            made = self._partial_rows(leaves, box)
            schema = _schema(leaves.frame(made.sql), made.carried, f"partial results of {query.name!r}")
        definition = {"box": codec.to_json(box), "settings": self.settings, "on_error": str(query.on_error)}
        return NewStore(schema, "_pane", definition)

    def _check_expressions(self, leaves: Leaves, box: Box) -> None:
        """Let Spark look at each expression by itself, from the sources up, so that a mistake has a place."""
        if isinstance(box, Keep):
            return
        for part in box.inputs:
            self._check_expressions(leaves, part)
        expressions = expressions_of(box)
        if not expressions or not box.inputs:
            return
        if isinstance(box, Map | Filter) and any(isinstance(b, Aggregate | Consolidate) for b in boxes_of(box)):
            _refuse_arbitrary(expressions)
        parts = [self._answer(leaves, part) for part in box.inputs]
        source = sources(box, parts[0], parts[1]) if isinstance(box, Join) else parts[0].source
        if isinstance(box, Aggregate | Partials):
            self._refuse_maps(leaves, box, parts[0])
        whole = ", ".join(f"({expression})" for expression in expressions)
        if self._refusal(leaves, f"SELECT {whole} FROM {source}") is None:
            return
        for expression in expressions:
            refusal = self._refusal(leaves, f"SELECT ({expression}) FROM {source}")
            if refusal is not None:
                raise ExpressionRefused(expression, refusal) from refusal

    def _refuse_maps(self, leaves: Leaves, box: Aggregate | Partials, below: Relation) -> None:
        """Maps have no order, so there are no groups, no extremes and no distinct values of them."""
        ordered = [key.expression for key in box.keys]
        ordered += [call.arguments[0] for call in box.calls if call.function in _ORDERED and call.arguments]
        made = ", ".join(f"({expression}) AS x{n}" for n, expression in enumerate(ordered))
        sql = f"SELECT {made} FROM {below.source}"
        if not ordered or self._refusal(leaves, sql) is not None:
            return  # what is wrong otherwise is said by itself
        for expression, field in zip(ordered, leaves.frame(sql).schema, strict=True):
            if has_map(field.dataType):
                raise ExpressionRefused(expression, "a map, which has no order; map_entries(...) has one")

    def _analysed(self, leaves: Leaves, sql: str, query: Query) -> DataFrame:
        try:
            with quietly():
                return leaves.frame(sql)
        except (AnalysisException, ParseException) as error:
            raise AnabranchError(
                "BAD_EXPRESSION",
                place=f"query {query.name!r}",
                need="a query that Spark accepts",
                got=spark_words(error),
                next_step="Correct the query; nothing was created.",
            ) from error

    def _refusal(self, leaves: Leaves, sql: str) -> PySparkException | None:
        try:
            with quietly():
                leaves.frame(sql)
        except (AnalysisException, ParseException) as error:
            return error
        return None

    def empty(self, leaves: Leaves, leaf: Leaf) -> Relation:
        """A stream of which there is nothing, with everything that a row carries."""
        messages = isinstance(leaf, Source) and leaf.messages
        extra = T.StructType.fromDDL(f"{_CARRIED}, {_MESSAGE}" if messages else _CARRIED)
        fields = [f for f in spark_schema(self._schema_of(leaf)) if not f.name.startswith("_")]
        frame = self.spark.createDataFrame([], T.StructType([*fields, *extra]))
        alias = leaf.stream if isinstance(leaf, Source) else "_kept"
        columns = tuple(f.name for f in fields)
        return Relation(f"SELECT * FROM {leaves.add(frame)}", tuple(f.name for f in extra), columns, alias)

    def _schema_of(self, leaf: Leaf) -> Schema:
        if leaf in self._schemas:
            return self._schemas[leaf]
        return self.live.stream(self.live.name_of(leaf, self.settings)).spec.schema

    def recipe_of(self, leaves: Leaves, box: Partials) -> Recipe:
        """How the calls of some partials are computed; found once for the streams that they read."""
        key = self._recipe_key(box)
        if key not in self.live.recipes:
            rows = rows_below(box, lambda leaf: self.empty(leaves, leaf))
            self.live.recipes[key] = recipe(rows, box.keys, box.calls, lambda sql: leaves.frame(sql).schema)
        return self.live.recipes[key]

    def _recipe_key(self, box: Box) -> tuple[Box, tuple[int, ...], tuple[tuple[str, str], ...]]:
        streams = tuple(self.live.stream(name).id for name in sources_of(box))
        return box, streams, tuple(sorted(self.settings.items()))

    def gathered_recipe(self, leaves: Leaves, box: Aggregate, below: Relation) -> Recipe:
        key = self._recipe_key(box)
        if key not in self.live.recipes:
            sql = f"SELECT {listed(below.names)}, 1 AS _weight FROM {below.source}"
            rows = replace(below, sql=sql, carried=(*below.carried, "_weight"))
            self.live.recipes[key] = recipe(rows, box.keys, box.calls, lambda sql: leaves.frame(sql).schema)
        return self.live.recipes[key]

    def _partial_rows(self, leaves: Leaves, box: Partials) -> Relation:
        made_of = self.recipe_of(leaves, box)
        rows = prepare_partials(box, lambda leaf: self.empty(leaves, leaf), made_of.ties)
        return partial_rows(rows, box, made_of.lowered, [key.name for key in box.keys])

    def _answer(self, leaves: Leaves, box: Box) -> Relation:
        if not any(isinstance(b, Consolidate) for b in boxes_of(box)):
            return self._rows(leaves, box)

        def kept(box: Partials) -> Kept:
            made = self._partial_rows(leaves, box)
            others = [name for name in made.carried if name != "_pane"]
            sql = f"SELECT {listed(others)}, UNIX_MICROS(_pane) AS _pane FROM {made.source}"
            return Kept(replace(made, sql=sql), self.recipe_of(leaves, box).lowered)

        def gathered(box: Aggregate, below: Relation) -> Recipe:
            return self.gathered_recipe(leaves, box, below)

        return Answers([Version(0, {})], kept, gathered).lower(box)

    def _rows(self, leaves: Leaves, box: Box) -> Relation:
        if isinstance(box, Source | Keep):
            return self.empty(leaves, box)
        if isinstance(box, Join):
            left, right = (self._rows(leaves, part) for part in box.parts)
            return paired(box, left, right)
        return lower_linear(box, lambda inner: self._rows(leaves, inner))


def _refuse_arbitrary(expressions: Sequence[Expression]) -> None:
    """Results of aggregates are computed again to be compared with what was said: they must come out the same."""
    for expression in expressions:
        function = arbitrary_in(expression)
        if function is not None:
            reason = (
                f"{function}, which is another one each time, over results that are computed again when they change"
            )
            raise ExpressionRefused(expression, reason)


def _schema(frame: DataFrame, names: Sequence[str], place: str) -> Schema:
    types = {f.name: f.dataType.simpleString() for f in frame.schema}
    return Schema.parse({name: types[name] for name in names}, place)


def expressions_of(box: Box) -> list[Expression]:
    """What a box asks Spark to evaluate over its input."""
    match box:
        case Filter():
            return [box.predicate]
        case Map():
            return [output.expression for output in box.outputs]
        case Join():
            bounds = [box.between.low, box.between.high] if box.between else []
            return [*([box.on] if box.on else []), *bounds]
        case Aggregate() | Partials():
            keys = [key.expression for key in box.keys]
            return [*keys, *(e for call in box.calls for e in call.expressions)]
    return []


def _refuse_windows_over_running(box: Box, query: Query) -> None:
    for above in box.walk():
        if isinstance(above, Aggregate) and above.window is not None and not has_event_time(above.input):
            raise AnabranchError(
                "NO_EVENT_TIME",
                place=f"query {query.name!r}, {above.window}",
                need="an input whose rows have event times",
                got="a running aggregate, whose rows have none",
                next_step="Give the inner aggregate a window, or leave out this one.",
            )


def with_stages(box: Box, plan_of: Callable[[Keep], Box]) -> Box:
    """A diagram in which what is kept shows how it is computed."""
    if isinstance(box, Keep):
        return Keep(with_stages(plan_of(box), plan_of))
    return box.with_inputs(*(with_stages(part, plan_of) for part in box.inputs)) if box.inputs else box


def stage_name(asked: Box, settings: Mapping[str, str], query: Query) -> str:
    """The name of a stage: what it computes, so that equal ones are one."""
    said = json.dumps([codec.to_json(asked), sorted(settings.items()), str(query.on_error)], sort_keys=True)
    return f"rows.{hashlib.sha256(said.encode()).hexdigest()[:16]}"
