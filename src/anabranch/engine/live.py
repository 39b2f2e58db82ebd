"""Queries and stores as the engine works with them: decoded from the catalog, each once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.diagram import codec
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.progress import sources_of, top_aggregate
from anabranch.diagram.query import OnError
from anabranch.engine.groups import Recipe
from anabranch.engine.guard import Guard
from anabranch.log.log import Log, StreamState
from anabranch.log.queries import StoredPartials, StoredQuery

# How aggregates are computed does not change while the streams that they read are the same ones, nor the settings.
Recipes = dict[tuple[Box, tuple[int, ...], tuple[tuple[str, str], ...]], Recipe]


@dataclass(frozen=True)
class LiveQuery:
    """A query, its rewritten diagram, and how far it has come."""

    stored: StoredQuery
    asked: Box  # as the user wrote it
    plan: Box  # as it is computed
    settings: Mapping[str, str]
    on_error: OnError
    revise_every: int

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def halted(self) -> bool:
        return self.stored.halted is not None

    @property
    def linear(self) -> bool:
        return top_aggregate(self.plan) is None and not any(isinstance(b, Consolidate) for b in self.plan.walk())

    @property
    def columns(self) -> tuple[str, ...]:
        return self.plan.columns

    @property
    def sources(self) -> tuple[str, ...]:
        return sources_of(self.plan)

    @property
    def reads(self) -> set[str]:
        """The streams that it names, base and derived."""
        return {b.stream for b in self.asked.walk() if isinstance(b, Source)}

    @property
    def guard(self) -> Guard:
        return Guard(self.on_error)

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

    @property
    def came(self) -> int:
        return int(self.stored.bucket if self.stored.bucket is not None else self.stored.definition["after"])


class Live:
    """What the register holds, at one moment."""

    def __init__(self, log: Log, recipes: Recipes | None = None) -> None:
        self.log = log
        self.recipes = {} if recipes is None else recipes
        self.queries = {stored.name: _query(stored) for stored in log.register.queries()}
        self.stores = {stored.id: _store(stored) for stored in log.register.stores()}
        self.streams: dict[str, StreamState] = {}

    def stream(self, name: str) -> StreamState:
        if name not in self.streams:
            self.streams[name] = self.log.stream(name)
        return self.streams[name]

    def store_of(self, query: LiveQuery, box: Partials) -> LiveStore:
        """Where a query has its partials. Others may keep equal ones under other settings."""
        return next(store for store in self.stores_of(query) if store.box == box)

    def stores_of(self, query: LiveQuery) -> list[LiveStore]:
        return [self.stores[number] for number in query.stored.stores]

    def users_of(self, store: LiveStore) -> list[LiveQuery]:
        return [q for q in self.queries.values() if store.stored.id in q.stored.stores]


def _query(stored: StoredQuery) -> LiveQuery:
    said = stored.definition
    return LiveQuery(
        stored,
        codec.from_json(said["asked"]),
        codec.from_json(said["plan"]),
        said["settings"],
        OnError(said["on_error"]),
        said["revise_every"],
    )


def _store(stored: StoredPartials) -> LiveStore:
    said = stored.definition
    return LiveStore(stored, codec.from_json(said["box"]), said["settings"], OnError(said["on_error"]))
