"""Queries and stores as the engine works with them: decoded from the catalog, each once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from anabranch.diagram import codec
from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.limits import KEPT, NO_LIMITS, Limits
from anabranch.diagram.progress import progress_into, progress_of, sources_of
from anabranch.diagram.query import OnError, Query
from anabranch.diagram.stages import Leaf, Reread, boxes_of, core, leaves_of
from anabranch.engine.groups import Recipe
from anabranch.engine.guard import Guard
from anabranch.log.log import Log, StreamState
from anabranch.log.queries import StoredPartials, StoredQuery, is_hidden

if TYPE_CHECKING:
    from anabranch.engine.columnar.answer import Answer

# A diagram, the streams that it reads, and the settings.
RecipeKey = tuple[Box, tuple[int, ...], tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Recipes:
    """How boxes are computed, which does not change while their streams are the same ones, nor the settings."""

    aggregates: dict[RecipeKey, Recipe] = field(default_factory=dict)
    answers: dict[RecipeKey, Answer | str] = field(default_factory=dict)  # in the columnar kernel, or why not there
    decoded: dict[tuple[type, int], Any] = field(default_factory=dict)  # queries and stores, as they were last seen


@dataclass(frozen=True)
class Terms:
    """Under which settings expressions are computed, what becomes of rows on which they fail, and the history bound."""

    settings: tuple[tuple[str, str], ...]
    on_error: OnError
    history: int | None = None
    upstream: bool = False  # of a stage: its answers are computed again
    rows: int | None = None  # the history bound as so many of the newest rows

    @classmethod
    def of(
        cls, settings: Mapping[str, str], on_error: OnError, history: int | None = None, rows: int | None = None
    ) -> Terms:
        return cls(tuple(sorted(settings.items())), on_error, history, rows=rows)


@dataclass(frozen=True)
class LiveQuery:
    """A query, its rewritten diagram, and how far it has come."""

    stored: StoredQuery
    asked: Box  # as the user wrote it
    plan: Box  # as it is computed
    settings: Mapping[str, str]
    on_error: OnError
    revise_every: int
    limits: Limits = NO_LIMITS

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def halted(self) -> bool:
        return self.stored.halted is not None

    def asks(self, query: Query) -> bool:
        """Whether another query asks the same, in the same way."""
        mine = (self.asked, self.stored.definition["archive"], self.revise_every, self.on_error, self.limits)
        return mine == (query.box, query.archive, query.revise_every, query.on_error, query.limits)

    @property
    def hidden(self) -> bool:
        """Whether it is a stage behind other queries, which nobody named."""
        return is_hidden(self.name)

    @property
    def terms(self) -> Terms:
        own = Terms.of(self.settings, self.on_error, self.limits.history, self.limits.rows)
        return replace(own, upstream=self.hidden and self.limits.upstream)

    @property
    def linear(self) -> bool:
        """Whether every row is answered by itself."""
        return not self.rereads and not any(isinstance(b, Aggregate | Consolidate) for b in boxes_of(self.plan))

    @property
    def rereads(self) -> bool:
        """Whether it looks at earlier rows when others come, as a Join does."""
        return isinstance(core(self.plan), Reread)

    @property
    def from_changes(self) -> bool:
        """Whether its table is what it has said, added up; otherwise it is computed from partial results."""
        return self.linear or self.rereads or self.limits.cut

    @property
    def dropped(self) -> int:
        """How many revisions it has not said because they matter too little."""
        return int(self.stored.definition.get("dropped", 0))

    @property
    def speculates(self) -> bool:
        """Whether it says what open units of work would change: only straight from base streams."""
        straight = all(isinstance(leaf, Source) and not leaf.messages for leaf in self.leaves)
        return straight and not self.hidden and not self.rereads and not self.limits.cut

    @property
    def columns(self) -> tuple[str, ...]:
        return self.plan.columns

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return leaves_of(self.plan)

    @property
    def sources(self) -> tuple[str, ...]:
        """The streams at the bottom of its diagram."""
        return sources_of(self.plan)

    @property
    def reads(self) -> set[str]:
        """The streams that it names, base and derived."""
        return {b.stream for b in self.asked.walk() if isinstance(b, Source)}

    @property
    def guard(self) -> Guard:
        return Guard(self.on_error)

    @property
    def gone(self) -> Mapping[int, int] | None:
        """Of streams from which rows were gone when it was created, the last of their event times."""
        return _gone(self.stored)

    @property
    def came(self) -> int:
        """The last bucket that it has said, or after which it was created."""
        return int(self.stored.bucket if self.stored.bucket is not None else self.stored.definition["after"])


@dataclass(frozen=True)
class LiveStore:
    """Partial results that are kept for one or more queries."""

    stored: StoredPartials
    box: Partials
    settings: Mapping[str, str]
    on_error: OnError
    history: int | None = None
    rows: int | None = None

    @property
    def terms(self) -> Terms:
        return Terms.of(self.settings, self.on_error, self.history, self.rows)

    @property
    def gone(self) -> Mapping[int, int] | None:
        return _gone(self.stored)

    @property
    def came(self) -> int:
        return int(self.stored.bucket if self.stored.bucket is not None else self.stored.definition["after"])


S = TypeVar("S", StoredQuery, StoredPartials)
L = TypeVar("L")


class Live:
    """What the register holds, at one moment."""

    def __init__(self, log: Log, recipes: Recipes | None = None) -> None:
        self.log = log
        self.recipes = Recipes() if recipes is None else recipes
        self.queries = {stored.name: self._seen(stored, _query) for stored in log.register.queries()}
        self.stores = {stored.id: self._seen(stored, _store) for stored in log.register.stores()}
        self.streams: dict[str, StreamState] = {}
        self._states: dict[int, StreamState] = {}
        self._progress: dict[tuple[str, int, bool], int | None] = {}
        self._by_box: dict[tuple[Box, Terms], LiveQuery] | None = None
        self._newest: dict[tuple[int, int, int], tuple[int, int] | None] = {}
        self._fed: set[str] | None = None  # the streams that sinks take

    def _seen(self, stored: S, decode: Callable[[S], L]) -> L:
        """A query or a store, decoded again only if its definition is another one."""
        key = (type(stored), stored.id)
        known = self.recipes.decoded.get(key)
        if known is None or known.stored.definition != stored.definition:
            known = decode(stored)
        elif known.stored != stored:
            known = replace(known, stored=stored)
        self.recipes.decoded[key] = known
        return cast(L, known)

    def stream(self, name: str) -> StreamState:
        if name not in self.streams:
            self.streams[name] = self.log.stream(name)
        return self.streams[name]

    def state(self, stream_id: int) -> StreamState:
        """A stream by its number, as it was when one was first asked for."""
        if not self._states:
            known = [query.stored.stream_id for query in self.queries.values()]
            known += [store.stored.stream_id for store in self.stores.values()]
            self._states = {state.id: state for state in self.log.streams_by_id(known)}
        if stream_id not in self._states:
            self._states[stream_id] = self.log.stream_by_id(stream_id)
        return self._states[stream_id]

    def query_of(self, leaf: Leaf, terms: Terms) -> LiveQuery | None:
        """The query whose answers a leaf reads; None where it reads a base stream."""
        if isinstance(leaf, Source):
            return self.queries.get(leaf.stream)
        return self._stages()[_kept(leaf, terms)]

    def name_of(self, leaf: Leaf, settings: Mapping[str, str]) -> str:
        """The stream that a leaf reads. Stages that treat errors otherwise have the same columns."""
        if isinstance(leaf, Source):
            return leaf.stream
        return next(q.name for q in self.queries.values() if q.hidden and q.asked == leaf.input
                    and dict(q.settings) == dict(settings))  # fmt: skip

    def stage(self, keep: Keep, terms: Terms) -> LiveQuery | None:
        """The stage that keeps an answer, if there is one already."""
        return self._stages().get(_kept(keep, terms))

    def plan_of(self, keep: Keep, terms: Terms) -> Box:
        return self._stages()[_kept(keep, terms)].plan

    def _stages(self) -> dict[tuple[Box, Terms], LiveQuery]:
        if self._by_box is None:
            self._by_box = {(q.asked, q.terms): q for q in self.queries.values() if q.hidden}
        return self._by_box

    def inputs_of(self, box: Box, terms: Terms) -> list[LiveQuery]:
        """The queries whose answers a stage reads."""
        found = (self.query_of(leaf, terms) for leaf in leaves_of(box))
        return [query for query in found if query is not None]

    def readers_of(self, query: LiveQuery) -> list[LiveQuery]:
        """The queries that read a query's answers, and those that read theirs."""
        found: list[LiveQuery] = []
        for other in self.queries.values():  # in the order in which they were made: inputs first
            inputs = self.inputs_of(other.plan, other.terms)
            if any(q is query or q in found for q in inputs):
                found.append(other)
        return found

    def stages_of(self, query: LiveQuery) -> list[LiveQuery]:
        """A query, and the stages behind it, which nobody can name."""
        behind = [stage for stage in self.inputs_of(query.plan, query.terms) if stage.hidden]
        found = {q.name: q for stage in behind for q in self.stages_of(stage)}
        return [query, *found.values()]

    def keeps(self, query: LiveQuery) -> bool:
        """Whether a query's answers go into a table that is to be kept right: its own, or that of one that reads it."""
        if self._fed is None:
            self._fed = {sink.stream for sink in self.log.sinks.all()}
        return any(q.stored.definition["archive"] or q.name in self._fed for q in [query, *self.readers_of(query)])

    def deferred(self, query: LiveQuery) -> bool:
        """Whether revisions of a query wait to be said, and may be."""
        waiting = (query.stored.released or 0) < (query.stored.bucket or 0)
        return waiting and (query.revise_every != KEPT or self.keeps(query))

    def progress_at(self, name: str, bucket: int, *, leap: bool = True) -> int | None:
        """The progress of a stream at the end of a bucket that is recorded; without a `leap`, what has passed."""
        if (name, bucket, leap) not in self._progress:
            query = self.queries.get(name)
            if query is None:
                found = self.log.register.bounds_at(self.stream(name).id, bucket).progress
            else:
                below = {s: self.progress_at(s, bucket, leap=leap) for s in query.sources}
                found = progress_of(query.plan, below, leap=leap)
            self._progress[name, bucket, leap] = found
        return self._progress[name, bucket, leap]

    def newest(self, stream: StreamState, rows: int, end: int) -> tuple[int, int] | None:
        """The event times between which the n-th newest row of a stream up to a position lies."""
        key = (stream.id, rows, end)
        if key not in self._newest:
            self._newest[key] = self.log.register.newest_between(stream.id, rows, end)
        return self._newest[key]

    def passed_into(self, box: Box, bucket: int) -> int | None:
        """How far event time had passed in the inputs of a box at the end of a bucket: history bounds count from it."""
        passed = {name: self.progress_at(name, bucket, leap=False) for name in sources_of(box)}
        return progress_into(box, passed, leap=False)

    def store_of(self, query: LiveQuery, box: Partials) -> LiveStore:
        """Where a query has its partials. Others may keep equal ones under other settings."""
        return next(store for store in self.stores_of(query) if store.box == box)

    def stores_of(self, query: LiveQuery) -> list[LiveStore]:
        return [self.stores[number] for number in query.stored.stores]

    def advances(self, store: LiveStore) -> bool:
        """Whether somebody who has not halted needs what a store will hold."""
        return any(not query.halted for query in self.users_of(store))

    def users_of(self, store: LiveStore) -> list[LiveQuery]:
        return [q for q in self.queries.values() if store.stored.id in q.stored.stores]


def _gone(stored: StoredQuery | StoredPartials) -> Mapping[int, int] | None:
    """As the definition has it, with text for numbers; of one that was made before this was noted it is not known."""
    noted = stored.definition.get("gone")
    return None if noted is None else {int(number): int(high) for number, high in noted.items()}


def _kept(keep: Keep, terms: Terms) -> tuple[Box, Terms]:
    """What tells stages apart: those whose answers are computed again are others than those that keep them."""
    return keep.input, replace(terms, upstream=keep.upstream)


def _query(stored: StoredQuery) -> LiveQuery:
    said = stored.definition
    return LiveQuery(
        stored,
        codec.from_json(said["asked"]),
        codec.from_json(said["plan"]),
        said["settings"],
        OnError(said["on_error"]),
        said["revise_every"],
        Limits.from_json(said.get("limits")),
    )


def _store(stored: StoredPartials) -> LiveStore:
    said = stored.definition
    return LiveStore(
        stored,
        codec.from_json(said["box"]),
        said["settings"],
        OnError(said["on_error"]),
        said.get("history"),
        said.get("rows"),
    )
