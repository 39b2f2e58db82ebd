"""What comes out of a diagram, found without running it: Spark analyses its plan over empty inputs.

How aggregates are computed depends on the types that they are given, so that is found here too: their recipes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.boxes.sort import Sort
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.columnar.kinds import NotProven
from anabranch.diagram.progress import sources_of
from anabranch.diagram.stages import Leaf, boxes_of
from anabranch.engine.answers import Answers, Kept, Version
from anabranch.engine.columnar.answer import Answer, answer, bottom
from anabranch.engine.columnar.pipeline import Pipeline, pipelines
from anabranch.engine.counts import untouched
from anabranch.engine.groups import Recipe, recipe
from anabranch.engine.join import paired
from anabranch.engine.kernel import partial_rows as kernel_rows
from anabranch.engine.kernel import prepare_partials, rows_below
from anabranch.engine.live import Live, RecipeKey
from anabranch.engine.netting import STAMP_TYPE
from anabranch.engine.read import spark_schema
from anabranch.engine.relation import Leaves, Relation, listed
from anabranch.engine.rows import lower_linear
from anabranch.model.schema import Schema

_CARRIED = "_event_time TIMESTAMP, _weight INT, _bucket BIGINT, _of BIGINT"
_MESSAGE = f"_gone BOOLEAN, _stamp {STAMP_TYPE}"


class Analysis:
    """Diagrams over the streams of a warehouse, under some settings."""

    def __init__(self, live: Live, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self.live = live
        self.spark = spark
        self.settings = dict(settings)
        self.schemas: dict[Leaf, Schema] = {}  # of stages that are not created yet

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
        if leaf in self.schemas:
            return self.schemas[leaf]
        return self.live.stream(self.live.name_of(leaf, self.settings)).spec.schema

    def recipe_of(self, leaves: Leaves, box: Partials) -> Recipe:
        """How the calls of some partials are computed; found once for the streams that they read."""
        key = self._recipe_key(box)
        if key not in self.live.recipes.aggregates:
            rows = rows_below(box, lambda leaf: self.empty(leaves, leaf))
            made = recipe(rows, box.keys, box.calls, lambda sql: leaves.frame(sql).schema)
            if not self._as_stored(box, made):
                made = recipe(rows, box.keys, box.calls, lambda sql: leaves.frame(sql).schema, wide=False)
            self.live.recipes.aggregates[key] = replace(made, columnar=self._columnar(box, made))
        return self.live.recipes.aggregates[key]

    def _as_stored(self, box: Partials, made: Recipe) -> bool:
        """Whether partial results that are there already have the measures that would be made now.

        Those of format 4 and before have one for the sum of a long decimal, which fails where it gets too large.
        """
        stored = [store.stored.stream_id for store in self.live.stores.values() if store.box == box]
        measures = {measure.name for measure in made.lowered.measures}
        return all(measures <= set(self.live.state(number).spec.schema.names) for number in stored)

    def _columnar(self, box: Partials, made: Recipe) -> tuple[Pipeline, ...] | str:
        try:
            return pipelines(box, made, self._schema_of, self.settings)
        except NotProven as reason:
            return str(reason)

    def columnar_answer(self, leaves: Leaves, plan: Box) -> Answer | str:
        """How the columnar kernel answers from partial results, or why it does not; found once."""
        key = self._recipe_key(plan)
        answers = self.live.recipes.answers
        if key not in answers:
            try:
                box = bottom(plan)
                made = self.partial_rows(leaves, box.input)
                kept = schema_of(leaves.frame(made.sql), made.carried, "partial results")
                answers[key] = answer(plan, self.recipe_of(leaves, box.input).lowered, kept, self.settings)
            except NotProven as reason:
                answers[key] = str(reason)
        return answers[key]

    def _recipe_key(self, box: Box) -> RecipeKey:
        streams = tuple(self.live.stream(name).id for name in sources_of(box))
        return box, streams, tuple(sorted(self.settings.items()))

    def gathered_recipe(self, leaves: Leaves, box: Aggregate, below: Relation) -> Recipe:
        key = self._recipe_key(box)
        if key not in self.live.recipes.aggregates:
            sql = f"SELECT {listed(below.names)}, 1 AS _weight FROM {below.source}"
            rows = replace(below, sql=sql, carried=(*below.carried, "_weight"))
            self.live.recipes.aggregates[key] = recipe(rows, box.keys, box.calls, lambda sql: leaves.frame(sql).schema)
        return self.live.recipes.aggregates[key]

    def counts_recipe(self, leaves: Leaves, box: Counts) -> Recipe:
        key = self._recipe_key(box)
        if key not in self.live.recipes.aggregates:
            rows = self._rows(leaves, box.input)
            made = recipe(rows, box.keys, box.calls, lambda sql: leaves.frame(sql).schema, tied=True)
            self.live.recipes.aggregates[key] = made
        return self.live.recipes.aggregates[key]

    def partial_rows(self, leaves: Leaves, box: Partials) -> Relation:
        made_of = self.recipe_of(leaves, box)
        rows = prepare_partials(box, lambda leaf: self.empty(leaves, leaf), made_of.ties)
        return kernel_rows(rows, box, made_of.lowered, [key.name for key in box.keys])

    def answer(self, leaves: Leaves, box: Box) -> Relation:
        if not any(isinstance(b, Consolidate) for b in boxes_of(box)):
            return self._rows(leaves, box)

        def kept(box: Partials) -> Kept:
            made = self.partial_rows(leaves, box)
            others = [name for name in made.carried if name != "_pane"]
            sql = f"SELECT {listed(others)}, UNIX_MICROS(_pane) AS _pane FROM {made.source}"
            return Kept(replace(made, sql=sql), self.recipe_of(leaves, box).lowered)

        def gathered(box: Aggregate, below: Relation) -> Recipe:
            return self.gathered_recipe(leaves, box, below)

        return Answers([Version(0, {})], kept, gathered).lower(box)

    def _rows(self, leaves: Leaves, box: Box) -> Relation:
        if isinstance(box, Source | Keep):
            return self.empty(leaves, box)
        if isinstance(box, Sort):
            return self._rows(leaves, box.input)
        if isinstance(box, Counts):
            return untouched(box, self._rows(leaves, box.input), self.counts_recipe(leaves, box))
        if isinstance(box, Lookup):
            left, right = (self._rows(leaves, part) for part in box.parts)
            made = paired(box.pairs, left, right, kind="LEFT JOIN")
            sql = f"SELECT *, TRUE AS _matched, _bucket AS _came FROM {made.source}"
            return replace(made, sql=sql, columns=box.columns)
        if isinstance(box, Join):
            left, right = (self._rows(leaves, part) for part in box.parts)
            return paired(box, left, right)
        return lower_linear(box, lambda inner: self._rows(leaves, inner))


def schema_of(frame: DataFrame, names: Sequence[str], place: str) -> Schema:
    """The columns of a frame as a schema of ours."""
    types = {f.name: f.dataType.simpleString() for f in frame.schema}
    return Schema.parse({name: types[name] for name in names}, place)
