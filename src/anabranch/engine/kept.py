"""Reading partial results: only the segments that can hold the panes that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.diagram.reach import BEGINNING, END, Interval
from anabranch.diagram.reach import join as joined
from anabranch.diagram.stages import Leaf, boxes_of, leaves_of
from anabranch.engine import spreading as spread
from anabranch.engine.analysis import Analysis
from anabranch.engine.answers import Kept
from anabranch.engine.groups import Recipe
from anabranch.engine.kernel import SMALL
from anabranch.engine.key_ranges import between, holding
from anabranch.engine.live import Live, LiveQuery, Terms
from anabranch.engine.paths import literal_path
from anabranch.engine.read import spark_schema
from anabranch.engine.relation import Leaves, Relation, listed
from anabranch.engine.resets import RESET
from anabranch.log.log import Log, StreamState
from anabranch.model.run import Segment

_TERMS = 4


@dataclass(frozen=True)
class Choice:
    """The segments of some partials that hold the panes asked for, and what the catalog knows of them."""

    state: StreamState
    panes: tuple[Interval, ...]
    segments: tuple[Segment, ...]
    keys: str = "TRUE"  # the condition on keys, where only some are asked for

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.segments)

    @property
    def range(self) -> Interval | None:
        known = [(s.event_min, s.event_max) for s in self.segments if s.event_min is not None]
        return (min(low for low, _ in known), max(high for _, high in known if high is not None)) if known else None


class Shelf:
    """Reads the partial results of a query into the leaves of one text."""

    def __init__(self, log: Log, live: Live, query: LiveQuery, leaves: Leaves) -> None:
        self.log = log
        self.live = live
        self.query = query
        self.leaves = leaves

    def choose(
        self,
        box: Partials,
        panes: Sequence[Interval],
        fresh: Sequence[Segment] = (),
        *,
        tentative: bool = False,
        only: Sequence[Segment] | None = None,
    ) -> Choice:
        """What is committed, what a step has just written, and what is tentative if asked.

        `only` asks for the groups of some segments, where the headers tell which others can hold them.
        """
        state = self.live.state(self.live.store_of(self.query, box).stored.stream_id)
        segments = [s.segment for s in self.log.plan_panes(state, panes, tentative=tentative)]
        condition = "TRUE"
        if only is not None and state.spec.key:
            key = state.spec.key[0]
            kind = state.spec.schema[key].type
            segments = holding(segments, only, kind)
            condition = between(key, only, kind)
        if only is not None:
            segments = spread.holding(segments, spread.wanted_parts(only))
        segments += [s for s in fresh if s.meets(panes)]
        return Choice(state, tuple(panes), tuple(segments), condition)

    def read(self, box: Partials, choice: Choice, *, together: bool | None = None) -> Kept:
        """The chosen partial results; in one task if they are few."""
        spark = self.leaves.spark
        schema = spark_schema(choice.state.spec.schema)
        paths = [literal_path(str(self.log.root / s.path)) for s in choice.segments]
        frame = spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)
        together = choice.rows < SMALL if together is None else together
        name = self.leaves.add(frame.coalesce(1) if together else frame)
        names = choice.state.spec.schema.names
        others = [c for c in names if c != "_pane"]
        sql = f"SELECT {listed(others)}, UNIX_MICROS(_pane) AS _pane FROM {name} "
        sql += f"WHERE ({_inside(choice.panes)}) AND {choice.keys}"
        recipe = self.analysis(box).recipe_of(self.leaves, box)
        return Kept(Relation(sql, (*others, "_pane")), recipe.lowered, resets=self.resets(box, choice))

    def resets(self, box: Partials, choice: Choice) -> bool:
        """Whether rows can have gone from what partials are made of that do not subtract."""
        store = self.live.store_of(self.query, box)
        return RESET in choice.state.spec.schema.names and any(
            may_be_revised(self.live, leaf, store.terms) for leaf in leaves_of(box)
        )

    def fresh(self, box: Partials, choice: Choice, segments: Sequence[Segment]) -> Relation | None:
        """The panes and keys of partial results that a step has just written; None if there are none."""
        paths = [literal_path(str(self.log.root / s.path)) for s in segments]
        if not paths:
            return None
        names = ["_pane", *(key.name for key in box.keys)]
        schema = spark_schema(choice.state.spec.schema)
        frame = self.leaves.spark.read.schema(schema).parquet(*paths).select(*names).coalesce(1)
        others = [name for name in names if name != "_pane"]
        sql = f"SELECT {', '.join(['UNIX_MICROS(_pane) AS _pane', *others])} FROM {self.leaves.add(frame)}"
        return Relation(sql, tuple(names))

    def recipe(self, box: Aggregate, below: Relation) -> Recipe:
        analysis = Analysis(self.live, self.leaves.spark, self.query.settings)
        return analysis.gathered_recipe(self.leaves, box, below)

    def analysis(self, box: Partials) -> Analysis:
        return Analysis(self.live, self.leaves.spark, self.live.store_of(self.query, box).settings)


def may_be_revised(live: Live, leaf: Leaf, terms: Terms) -> bool:
    """Whether a leaf may give anything but insertions. What has never been revised can be, from a later step on."""
    query = live.query_of(leaf, terms)
    if query is not None:
        adds = all(map(_only_adds, boxes_of(query.plan)))
        return not adds or any(may_be_revised(live, below, query.terms) for below in query.leaves)
    assert isinstance(leaf, Source)
    stream = live.stream(leaf.stream)
    return not leaf.messages and stream.first_revision is not None


def _only_adds(box: Box) -> bool:
    """Whether a box gives insertions where it gets insertions, whenever they come."""
    match box:
        case Source():
            return not box.messages
        case Join():
            return not box.outer
    return isinstance(box, Filter | Keep | Map | Union | View)


def _inside(panes: Sequence[Interval]) -> str:
    """The condition on rows, for few intervals: many terms would take longer than the rows that they leave out."""
    panes = joined(panes, _TERMS)
    if any(low <= BEGINNING and high >= END for low, high in panes):
        return "TRUE"
    terms = []
    for low, high in panes:
        bounds = [f"_pane >= TIMESTAMP_MICROS({low}L)"] if low > BEGINNING else []
        bounds += [f"_pane <= TIMESTAMP_MICROS({high}L)"] if high < END else []
        terms.append(f"({' AND '.join(bounds)})")
    return " OR ".join(terms) or "FALSE"
