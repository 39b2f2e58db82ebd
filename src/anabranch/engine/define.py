"""Making a query: its diagram is rewritten, Spark says what types come out, and the register gets it.

Nothing runs: Spark analyses the plans over empty inputs, which is also how mistakes in expressions are
found before anything is created.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from anabranch.diagram import codec
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.limits import Limits
from anabranch.diagram.query import Query
from anabranch.diagram.rewrites import STAGE, WHOLE, Rewritten, rewrite
from anabranch.diagram.rewrites.known import Key, Known, Note
from anabranch.diagram.rewrites.stack import stack
from anabranch.diagram.stages import boxes_of, kept_in, leaves_of
from anabranch.engine.analysis import Analysis, schema_of
from anabranch.engine.checks import (
    check_expressions,
    refuse_lookups,
    refuse_waiting,
    refuse_windows_over_running,
)
from anabranch.engine.kernel import KernelChoice
from anabranch.engine.kernels import kernel_lines, refuse_others
from anabranch.engine.key_ranges import ranged_key
from anabranch.engine.limits import check_importance
from anabranch.engine.live import Live, LiveQuery, Terms
from anabranch.engine.mistakes import quietly, spark_words
from anabranch.engine.relation import Leaves
from anabranch.log.buckets import BASE
from anabranch.log.queries import is_hidden
from anabranch.log.register import NewQuery, NewStore
from anabranch.model.errors import AnabranchError
from anabranch.model.schema import Schema
from anabranch.model.stream import StreamSpec

EVENT_TIME = "_event_time"
# What the log of a derived stream has beside the columns of its query.
SAID = "_event_time TIMESTAMP, _bucket BIGINT, _of BIGINT"


@dataclass(frozen=True)
class Stage:
    """A part of a diagram that is to be computed, and what it gives and keeps."""

    asked: Box
    rewritten: Rewritten
    schema: Schema
    stores: tuple[int | NewStore, ...]
    upstream: bool = False


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

    def __init__(
        self,
        live: Live,
        spark: SparkSession,
        settings: Mapping[str, str],
        kernel: KernelChoice = KernelChoice.AUTO,
    ) -> None:
        self.live = live
        self.kernel = kernel
        self.spark = spark
        self.settings = dict(settings)
        self.analysis = Analysis(live, spark, settings)

    def define(self, query: Query) -> Defined:
        """Rewrite a query and find its types; raises what Spark refuses, at its place."""
        terms = self._terms(query)
        known = replace(self._known(terms), upstream=query.limits.upstream)
        whole = self._whole(query, known)
        refuse_lookups(query.box, known.keyed, query)
        refuse_windows_over_running(whole.box, query)
        behind = []
        for keep in kept_in(whole.box):
            if self.live.stage(keep, terms) is None:
                behind.append(replace(self._stage(keep.input, known, query), upstream=keep.upstream))
                self.analysis.schemas[keep] = behind[-1].schema
        stage = self._stage(whole.box, known, query)
        check_importance(self.analysis, stage.rewritten.box, query)
        refuse_waiting(stage.rewritten.box, query)
        notes = (*whole.notes, *(note for s in behind for note in s.rewritten.notes), *stage.rewritten.notes)
        refuse_others(self.kernel, self.analysis, [s.rewritten.box for s in (*behind, stage)], query)
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
                return schema_of(
                    leaves.frame(self.analysis.answer(leaves, made).sql), made.columns, f"stream {query.name!r}"
                )
            except (AnalysisException, ParseException):
                return None  # it is refused at its place later

    def _terms(self, query: Query) -> Terms:
        return Terms.of(self.settings, query.on_error, query.limits.history, query.limits.rows)

    def _known(self, terms: Terms) -> Known:
        live = self.live
        # Under other terms its expressions would mean something else, and what retention has taken it has still said.
        derived = {
            name: query.asked
            for name, query in live.queries.items()
            if not query.hidden
            and query.terms == terms
            and not query.limits.cut
            and not (query.linear and self._trimmed(query))
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
            check_expressions(self.analysis, leaves, box)
            answer = self._analysed(leaves, self.analysis.answer(leaves, box).sql, query)
            schema = schema_of(answer, box.columns, f"stream {query.name!r}")
        terms = self._terms(query)
        numbers = {s.box: number for number, s in self.live.stores.items() if s.terms == terms}
        stores: list[int | NewStore] = []
        for part in dict.fromkeys(b for b in boxes_of(box) if isinstance(b, Partials)):
            stores.append(numbers[part] if part in numbers else self._new_store(part, query))
        return Stage(asked, rewritten, schema, tuple(stores))

    def create(self, defined: Sequence[Defined], text: str) -> None:
        """Create queries that one text asks for: all of them, or none."""
        self.live.log.register.create_queries([new for one in defined for new in self._new_queries(one, text)])

    def _new_queries(self, defined: Defined, text: str) -> list[NewQuery]:
        query = defined.query
        made = [
            self._new_query(stage, stage_name(Keep(stage.asked, stage.upstream), self.settings, query), query)
            for stage in defined.behind
        ]
        own = self._new_query(defined.stage, query.name, query)
        said = {"text": text, "asked": codec.to_json(query.box), "notes": [asdict(note) for note in defined.notes]}
        own = replace(own, definition={**own.definition, **said}, archive=query.archive)
        return [*made, own]

    def kernels(self, defined: Defined) -> list[str]:
        """The kernel of each box, as lines for people."""
        stages = [stage.rewritten.box for stage in (*defined.behind, defined.stage)]
        return kernel_lines(self.kernel, self.analysis, stages, defined.query.limits)

    def whole_plan(self, defined: Defined) -> Box:
        """A query's diagram as it will be computed, with that of the stages behind it."""
        terms = self._terms(defined.query)
        new = {Keep(stage.asked, stage.upstream): stage.rewritten.box for stage in defined.behind}
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
            "limits": (
                Limits(history=query.limits.history, upstream=stage.upstream, rows=query.limits.rows)
                if is_hidden(name)
                else query.limits
            ).to_json(),
        }
        return NewQuery(StreamSpec(name, schema, EVENT_TIME), definition, stage.stores)

    def _reads(self, stage: Stage, asked: Box, query: Query) -> dict[str, int | None]:
        """The streams that a stage reads or was defined on, with their numbers; stages that are new have none yet."""
        terms = self._terms(query)
        found: dict[str, int | None] = {}
        for leaf in [*leaves_of(stage.rewritten.box), *(b for b in asked.walk() if isinstance(b, Source))]:
            if isinstance(leaf, Source):
                found[leaf.stream] = self.live.stream(leaf.stream).id
                continue
            kept = self.live.stage(leaf, terms)
            name = stage_name(leaf, self.settings, query) if kept is None else kept.name
            found[name] = None if kept is None else kept.stored.stream_id
        return found

    def _new_store(self, box: Partials, query: Query) -> NewStore:
        with Leaves(self.spark) as leaves:
            made = self.analysis.partial_rows(leaves, box)
            schema = schema_of(leaves.frame(made.sql), made.carried, f"partial results of {query.name!r}")
        definition = {"box": codec.to_json(box), "settings": self.settings, "on_error": str(query.on_error)}
        definition |= {"history": query.limits.history, "rows": query.limits.rows}
        return NewStore(schema, "_pane", definition, ranged_key(box, schema))

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


def with_stages(box: Box, plan_of: Callable[[Keep], Box]) -> Box:
    """A diagram in which what is kept shows how it is computed."""
    if isinstance(box, Keep):
        return replace(box, input=with_stages(plan_of(box), plan_of))
    return box.with_inputs(*(with_stages(part, plan_of) for part in box.inputs)) if box.inputs else box


def stage_name(keep: Keep, settings: Mapping[str, str], query: Query) -> str:
    """The name of a stage: what it computes, so that equal ones are one."""
    asked, history = codec.to_json(keep), [query.limits.history]
    history += [] if query.limits.rows is None else [query.limits.rows]
    said = json.dumps([asked, sorted(settings.items()), str(query.on_error), *history], sort_keys=True)
    return f"rows.{hashlib.sha256(said.encode()).hexdigest()[:16]}"
