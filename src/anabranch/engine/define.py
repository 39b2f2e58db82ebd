"""Making a query: its diagram is rewritten, Spark says what types come out, and the register gets it.

Nothing runs: Spark analyses the plans over empty inputs, which is also how mistakes in expressions are
found before anything is created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.diagram import codec
from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.expression import Expression
from anabranch.diagram.progress import sources_of
from anabranch.diagram.query import Query
from anabranch.diagram.rewrites import Rewritten, rewrite
from anabranch.diagram.rewrites.known import Known, is_linear
from anabranch.engine.answers import Answers, Kept, Version
from anabranch.engine.groups import Recipe, recipe
from anabranch.engine.kernel import partial_rows, prepare_partials, rows_below
from anabranch.engine.live import Live
from anabranch.engine.mistakes import ExpressionRefused, quietly
from anabranch.engine.read import spark_schema
from anabranch.engine.relation import Leaves, Relation, listed
from anabranch.engine.rows import lower_linear
from anabranch.log.register import NewStore
from anabranch.model.errors import AnabranchError
from anabranch.model.schema import Schema
from anabranch.model.stream import StreamSpec

EVENT_TIME = "_event_time"
_CARRIED = "_event_time TIMESTAMP, _weight INT, _bucket BIGINT"


@dataclass(frozen=True)
class Defined:
    """A query that can be created."""

    query: Query
    rewritten: Rewritten
    schema: Schema
    stores: tuple[int | NewStore, ...]


class Definer:
    """Analyses queries over the streams of a warehouse."""

    def __init__(self, live: Live, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self.live = live
        self.spark = spark
        self.settings = dict(settings)

    def define(self, query: Query) -> Defined:
        """Rewrite a query and find its types; raises what Spark refuses, at its place."""
        self._check_inputs(query)
        kept = {
            number: store.box
            for number, store in self.live.stores.items()
            if store.on_error is query.on_error and dict(store.settings) == self.settings
        }
        known = Known({n: q.asked for n, q in self.live.queries.items()}, tuple(kept.values()))
        rewritten = rewrite(query.box, known)
        _refuse_windows_over_running(rewritten.box, query)
        _refuse_union_of_aggregates(rewritten.box, query)
        with Leaves(self.spark) as leaves:
            self._check_expressions(leaves, rewritten.box)
            answer = leaves.frame(self._answer(leaves, rewritten.box).sql)
            schema = _schema(answer, rewritten.box.columns, f"stream {query.name!r}")
        numbers = {box: number for number, box in kept.items()}
        stores: list[int | NewStore] = []
        for box in dict.fromkeys(b for b in rewritten.box.walk() if isinstance(b, Partials)):
            stores.append(numbers[box] if box in numbers else self._new_store(box, query))
        return Defined(query, rewritten, schema, tuple(stores))

    def create(self, defined: Defined, text: str) -> None:
        query = defined.query
        schema = Schema((*defined.schema.fields, *Schema.parse(f"{EVENT_TIME} TIMESTAMP, _bucket BIGINT", "").fields))
        definition = {
            "text": text,
            "asked": codec.to_json(query.box),
            "plan": codec.to_json(defined.rewritten.box),
            "notes": [asdict(note) for note in defined.rewritten.notes],
            "archive": query.archive,
            "revise_every": query.revise_every,
            "on_error": str(query.on_error),
            "settings": self.settings,
        }
        spec = StreamSpec(query.name, schema, EVENT_TIME)
        self.live.log.register.create_query(spec, definition, defined.stores, query.archive)

    def _new_store(self, box: Partials, query: Query) -> NewStore:
        with Leaves(self.spark) as leaves:
            made = self._partial_rows(leaves, box)
            schema = _schema(leaves.frame(made.sql), made.carried, f"partial results of {query.name!r}")
        definition = {"box": codec.to_json(box), "settings": self.settings, "on_error": str(query.on_error)}
        return NewStore(schema, "_pane", definition)

    def _check_expressions(self, leaves: Leaves, box: Box) -> None:
        """Let Spark look at each expression by itself, from the sources up, so that a mistake has a place."""
        for part in box.inputs:
            self._check_expressions(leaves, part)
        expressions = expressions_of(box)
        if not expressions or not box.inputs:
            return
        below = self._answer(leaves, box.inputs[0])
        whole = ", ".join(f"({expression})" for expression in expressions)
        if self._refusal(leaves, f"SELECT {whole} FROM {below.source}") is None:
            return
        for expression in expressions:
            refusal = self._refusal(leaves, f"SELECT ({expression}) FROM {below.source}")
            if refusal is not None:
                raise ExpressionRefused(expression, refusal) from refusal

    def _refusal(self, leaves: Leaves, sql: str) -> PySparkException | None:
        try:
            with quietly():
                leaves.frame(sql)
        except (AnalysisException, ParseException) as error:
            return error
        return None

    def _check_inputs(self, query: Query) -> None:
        for box in query.box.walk():
            if isinstance(box, Source) and box.stream not in self.live.queries:
                spec = self.live.stream(box.stream).spec
                if spec.key:
                    raise AnabranchError(
                        "NOT_SUPPORTED",
                        place=f"query {query.name!r}",
                        need="streams without a key; revisions by key do not reach queries yet",
                        got=f"{box.stream!r} with key {', '.join(spec.key)}",
                        next_step="Declare the stream without KEY.",
                    )

    def empty(self, leaves: Leaves, stream: str) -> Relation:
        """A stream of which there is nothing, with everything that a row carries."""
        spec = self.live.stream(stream).spec
        extra = T.StructType.fromDDL(_CARRIED)
        frame = self.spark.createDataFrame([], T.StructType([*spark_schema(spec.schema), *extra]))
        names = tuple(f.name for f in extra)
        return Relation(f"SELECT * FROM {leaves.add(frame)}", names, spec.schema.names, stream)

    def recipe_of(self, leaves: Leaves, box: Partials) -> Recipe:
        """How the calls of some partials are computed; found once for the streams that they read."""
        key = self._recipe_key(box)
        if key not in self.live.recipes:
            rows = rows_below(box, lambda stream: self.empty(leaves, stream))
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
        rows = prepare_partials(box, lambda stream: self.empty(leaves, stream), made_of.ties)
        return partial_rows(rows, box, made_of.lowered, [key.name for key in box.keys])

    def _answer(self, leaves: Leaves, box: Box) -> Relation:
        if not any(isinstance(b, Consolidate) for b in box.walk()):
            return self._linear(leaves, box)

        def kept(box: Partials) -> Kept:
            made = self._partial_rows(leaves, box)
            others = [name for name in made.carried if name != "_pane"]
            sql = f"SELECT {listed(others)}, UNIX_MICROS(_pane) AS _pane FROM {made.source}"
            return Kept(replace(made, sql=sql), self.recipe_of(leaves, box).lowered)

        def gathered(box: Aggregate, below: Relation) -> Recipe:
            return self.gathered_recipe(leaves, box, below)

        return Answers([Version(0, {})], kept, gathered).lower(box)

    def _linear(self, leaves: Leaves, box: Box) -> Relation:
        if isinstance(box, Source):
            return self.empty(leaves, box.stream)
        return lower_linear(box, lambda inner: self._linear(leaves, inner))


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
        case Aggregate() | Partials():
            keys = [key.expression for key in box.keys]
            return [*keys, *(e for call in box.calls for e in _of_call(call))]
    return []


def _of_call(call: Call) -> list[Expression]:
    return [*call.arguments, *([call.where] if call.where else [])]


def _refuse_windows_over_running(box: Box, query: Query) -> None:
    for above in box.walk():
        if isinstance(above, Aggregate) and above.window is not None:
            below = [b for b in above.input.walk() if isinstance(b, Aggregate | Consolidate)]
            if any(b.window is None for b in below[:1]):
                raise AnabranchError(
                    "NO_EVENT_TIME",
                    place=f"query {query.name!r}, {above.window}",
                    need="an input whose rows have event times",
                    got="a running aggregate, whose rows have none",
                    next_step="Give the inner aggregate a window, or leave out this one.",
                )


def _refuse_union_of_aggregates(box: Box, query: Query) -> None:
    if any(isinstance(b, Union) and not is_linear(b) for b in box.walk()):
        raise AnabranchError(
            "NOT_SUPPORTED",
            place=f"query {query.name!r}",
            need="a union of rows",
            got="a union of aggregates",
            next_step="Unite the streams first and aggregate the union, or read both in a snapshot query.",
        )
