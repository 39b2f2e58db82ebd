"""The register: which queries there are, what they keep, and how far each has come.

Everything here is a short transaction on the catalog. Call order for an engine that advances: take the
lease; `record_bucket`; process; `commit_step`. A crash between the two leaves a recorded bucket that
the next engine processes first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from anabranch.log import (
    buckets,
    gc,
    newest,
    positions,
    queries,
    recording,
    reduction,
    retention,
    staging,
    steps,
    tables,
)
from anabranch.log.catalog import Catalog
from anabranch.log.clock import Clock
from anabranch.log.commit import Output
from anabranch.log.erasing import erase_streams
from anabranch.log.intents import ENDED
from anabranch.log.leases import Lease, require_lease
from anabranch.log.queries import DERIVED, KEPT, PARTIALS, StoredPartials, StoredQuery, is_hidden
from anabranch.log.views import EVENT
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunHeader, Segment
from anabranch.model.schema import Schema
from anabranch.model.stream import StreamSpec


@dataclass(frozen=True)
class NewStore:
    """Partial results that a new query needs and that nobody keeps yet."""

    schema: Schema
    event_time: str
    definition: Mapping[str, Any]
    key: tuple[str, ...] = ()  # a column whose range the headers of its segments tell


@dataclass(frozen=True)
class NewQuery:
    """A query that is to be created, or a stage behind it, whose name has a dot; the stores that it uses, or needs."""

    spec: StreamSpec
    definition: Mapping[str, Any]
    stores: Sequence[int | NewStore] = ()
    archive: str | None = None


class Register:
    """Queries, stores and buckets of one warehouse."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self.catalog = catalog
        self.clock = clock

    def queries(self) -> list[StoredQuery]:
        with self.catalog.read() as connection:
            return queries.all_queries(connection)

    def stores(self) -> list[StoredPartials]:
        with self.catalog.read() as connection:
            return queries.all_stores(connection)

    def create_queries(self, wanted: Sequence[NewQuery]) -> None:
        """Create queries with their output streams, and the stores that they need and do not find, or nothing.

        A stage that is there already, because another engine has just made it, is shared.
        """
        with self.catalog.write() as connection:
            known = {query.name for query in queries.all_queries(connection)}
            made: dict[str, int] = {}  # the stores, by what they keep
            for query in wanted:
                if not (query.spec.name in known and is_hidden(query.spec.name)):
                    self._create(connection, query, made)
                    known.add(query.spec.name)

    def _create(self, connection: sa.Connection, query: NewQuery, made: dict[str, int]) -> None:
        spec = query.spec
        require_free(connection, spec.name)
        _require_there(connection, query)
        if query.archive is not None:
            require_free(connection, query.archive)
        used = []
        for store in query.stores:
            if isinstance(store, int):
                used.append(store)
                continue
            what = json.dumps(store.definition, sort_keys=True)
            if what not in made:
                made[what] = self._make_store(connection, store)
            used.append(made[what])
        # A dot keeps the name apart from all that people can choose.
        stream_id = insert_stream(connection, spec, KEPT if is_hidden(spec.name) else DERIVED)
        created = {**query.definition, "archive": query.archive, **_now(connection)}
        feed = replace(spec, name=f"tentative.{stream_id}")
        feed_id = insert_stream(connection, feed, queries.TENTATIVE)
        queries.insert_query(connection, spec.name, stream_id, feed_id, created, used)

    def _make_store(self, connection: sa.Connection, store: NewStore) -> int:
        last = connection.execute(sa.select(sa.func.max(tables.streams.c.id))).scalar() or 0
        # A dot keeps the name apart from all that people can choose.
        spec = StreamSpec(f"partials.{last + 1}", store.schema, store.event_time, store.key)
        stream_id = insert_stream(connection, spec, PARTIALS)
        definition = {**store.definition, **_now(connection)}
        return queries.insert_store(connection, stream_id, definition)

    def drop_query(self, query: StoredQuery) -> None:
        """Forget a query, what it has said, and the stages and partial results that only it has used."""
        now = self.clock()
        with self.catalog.write() as connection:
            held = positions.positions_of(connection, query.stream_id)
            readers = [f"query {name!r}" for name in readers_of(connection, query.name)]
            readers += [f"{p.kind} {p.name!r}" for p in held if p.kind != "query"]
            if readers:
                raise in_use(query.name, readers)
            self._forget(connection, query, now)
            for stage in reversed(queries.all_queries(connection)):  # readers before what they read
                if is_hidden(stage.name) and not _readers(connection, stage.name):
                    self._forget(connection, stage, now)

    def _forget(self, connection: sa.Connection, query: StoredQuery, now: int) -> None:
        gone = queries.delete_query(connection, query)
        for stream_id in [query.stream_id, query.feed_id, *(store.stream_id for store in gone)]:
            delete_stream(connection, stream_id, now)
        readers_gone = [reader_of(query), *(reader_of(store) for store in gone)]
        connection.execute(
            tables.positions.delete().where(
                tables.positions.c.kind == "query", tables.positions.c.name.in_(readers_gone)
            )
        )

    def halt(self, lease: Lease, query_ids: Sequence[int], error: AnabranchError) -> None:
        with self.catalog.write() as connection:
            require_lease(connection, lease)
            for query_id in query_ids:
                queries.halt_query(connection, query_id, error)

    def resume(self, query_id: int) -> None:
        with self.catalog.write() as connection:
            queries.halt_query(connection, query_id, None)

    def record_bucket(
        self,
        lease: Lease,
        *,
        end: recording.End = recording.EVERYTHING,
        force: bool = False,
        release: bool = True,
        early: bool = True,
    ) -> buckets.Bucket | None:
        now = self.clock()
        with self.catalog.write() as connection:
            require_lease(connection, lease)
            return recording.record_bucket(connection, now=now, end=end, force=force, release=release, early=early)

    def anything_waiting(self) -> bool:
        with self.catalog.read() as connection:
            return buckets.anything_waiting(connection)

    def buckets_after(self, number: int) -> list[buckets.Bucket]:
        with self.catalog.read() as connection:
            return buckets.buckets_after(connection, number)

    def turns(self, after: int, upto: int) -> list[int]:
        with self.catalog.read() as connection:
            return buckets.turns(connection, after, upto)

    def bounds_after(self, stream_id: int, after: int, upto: int) -> list[buckets.Bounds]:
        with self.catalog.read() as connection:
            return buckets.bounds_after(connection, stream_id, after, upto)

    def bounds_at(self, stream_id: int, bucket: int) -> buckets.Bounds:
        with self.catalog.read() as connection:
            return buckets.bounds_at(connection, stream_id, bucket)

    def newest_between(self, stream_id: int, rows: int, end: int) -> tuple[int, int] | None:
        with self.catalog.read() as connection:
            return newest.newest_between(connection, stream_id, rows, end)

    def plan_reduction(self, stream_id: int, horizon: int) -> reduction.ReductionPlan | None:
        with self.catalog.read() as connection:
            return reduction.plan_reduction(connection, stream_id, horizon)

    def commit_reduction(
        self, plan: reduction.ReductionPlan, written: Sequence[Segment], intent_id: str | None
    ) -> None:
        with self.catalog.write() as connection:
            reduction.commit_reduction(connection, plan, written, intent_id, self.clock())

    def trim(self, stream_id: int, bucket: int) -> None:
        """Let go of what a derived stream has said up to a bucket."""
        retention.trim(self.catalog, stream_id, bucket, self.clock())

    def commit_step(
        self,
        lease: Lease,
        moves: Sequence[steps.Move],
        readings: Sequence[steps.Reading],
        outputs: Sequence[Output],
        ended: steps.Ended = steps.NOTHING_ENDED,
    ) -> list[RunHeader]:
        return steps.commit_step(self.catalog, self.clock, lease, moves, readings, outputs, ended)


def reader_of(reader: StoredQuery | StoredPartials) -> str:
    """The name under which a query or a store holds its positions; two words, which people's names are not."""
    return f"query {reader.name}" if isinstance(reader, StoredQuery) else f"partials {reader.id}"


def _now(connection: sa.Connection) -> dict[str, Any]:
    """When a reader is made: after which bucket, and up to which event times rows of streams are gone by then."""
    table = tables.trimmed
    highest = sa.select(table.c.stream_id, sa.func.max(table.c.high)).where(table.c.axis == EVENT)
    gone = {str(number): high for number, high in connection.execute(highest.group_by(table.c.stream_id))}
    return {"after": buckets.last_recorded(connection), "gone": gone}


def insert_stream(connection: sa.Connection, spec: StreamSpec, role: str) -> int:
    made = connection.execute(
        tables.streams.insert().values(
            name=spec.name,
            spec=spec.to_json(),
            schema_version=1,
            last_position=0,
            runs=0,
            rows=0,
            quarantined=0,
            size=0,
            width_classes=0,
            trimmed=0,
            role=role,
            bucket_position=0,
        )
    ).inserted_primary_key
    assert made is not None
    return int(made[0])


def delete_stream(connection: sa.Connection, stream_id: int, now: int) -> None:
    """Forget a stream, its runs and its rows."""
    mine = tables.segments.c.stream_id == stream_id
    own = connection.execute(sa.select(tables.segments.c.path).where(mine, tables.segments.c.reference.is_(False)))
    gc.release_files(connection, [*own.scalars(), *staging.files_of_stream(connection, stream_id)], now)
    intents = tables.intents
    connection.execute(intents.update().where(intents.c.stream_id == stream_id).values(state=ENDED, swept=False))
    erase_streams(connection, [stream_id])


def _readers(connection: sa.Connection, name: str) -> list[StoredQuery]:
    """The queries that read a stream, base or derived, and the stages behind them."""
    return [q for q in queries.all_queries(connection) if name in q.definition.get("reads", {})]


def readers_of(connection: sa.Connection, name: str) -> list[str]:
    """The queries, as people named them, that read a stream."""
    found = _readers(connection, name)
    behind = [reader for stage in found if is_hidden(stage.name) for reader in readers_of(connection, stage.name)]
    return list(dict.fromkeys([*(q.name for q in found if "." not in q.name), *behind]))


def _require_there(connection: sa.Connection, query: NewQuery) -> None:
    """What a query was defined on may have been dropped, or made anew, by another engine meanwhile."""
    now = {row.name: row.id for row in connection.execute(sa.select(tables.streams.c.name, tables.streams.c.id))}
    gone = [name for name, number in query.definition.get("reads", {}).items() if number not in (None, now.get(name))]
    stores = {store.id for store in queries.all_stores(connection)}
    if gone or any(isinstance(store, int) and store not in stores for store in query.stores):
        raise AnabranchError(
            "POSITION_CONFLICT",
            place=f"query {query.spec.name!r}",
            need="the streams on which it was defined",
            got=f"others, since {', '.join(gone) or 'a query that it shares results with'} was dropped meanwhile",
            next_step="Create it again; nothing was created.",
        )


def require_free(connection: sa.Connection, name: str) -> None:
    """A name is a stream's, a query's or an archive's, never two things'."""
    same = sa.func.lower(tables.streams.c.name) == name.lower()
    if connection.execute(sa.select(tables.streams.c.id).where(same)).first():
        raise name_taken(name, "a stream")
    if any((q.definition.get("archive") or "").lower() == name.lower() for q in queries.all_queries(connection)):
        raise name_taken(name, "an archive")
    if connection.execute(
        sa.select(tables.sinks.c.id).where(sa.func.lower(tables.sinks.c.name) == name.lower())
    ).first():
        raise name_taken(name, "a sink")


def name_taken(name: str, by: str) -> AnabranchError:
    return AnabranchError(
        "STREAM_EXISTS",
        place=f"stream {name!r}",
        need="a name that is free",
        got=f"the name of {by}",
        next_step="Choose another name, drop the other one first, or write IF NOT EXISTS.",
    )


def in_use(name: str, readers: Sequence[str]) -> AnabranchError:
    return AnabranchError(
        "STREAM_IN_USE",
        place=f"stream {name!r}",
        need="no reader",
        got=", ".join(readers),
        next_step="Drop or release those first.",
    )
