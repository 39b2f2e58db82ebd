"""The register: which queries there are, what they keep, and how far each has come.

Everything here is a short transaction on the catalog. Call order for an engine that advances: take the
lease; `record_bucket`; process; `commit_step`. A crash between the two leaves a recorded bucket that
the next engine processes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from anabranch.log import buckets, gc, positions, queries, reduction, steps, tables
from anabranch.log.catalog import Catalog
from anabranch.log.clock import Clock
from anabranch.log.intents import ENDED
from anabranch.log.leases import Lease, require_lease
from anabranch.log.queries import DERIVED, PARTIALS, StoredPartials, StoredQuery
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

    def create_query(
        self,
        spec: StreamSpec,
        definition: Mapping[str, Any],
        stores: Sequence[int | NewStore],
        archive: str | None = None,
    ) -> None:
        """Create a query with its output stream, and the stores that it needs and does not find."""
        with self.catalog.write() as connection:
            require_free(connection, spec.name)
            if archive is not None:
                require_free(connection, archive)
            used = []
            for store in stores:
                used.append(store if isinstance(store, int) else self._make_store(connection, store))
            stream_id = insert_stream(connection, spec, DERIVED)
            created = {**definition, "after": buckets.last_recorded(connection)}
            # A dot keeps the name apart from all that people can choose.
            feed = replace(spec, name=f"tentative.{stream_id}")
            feed_id = insert_stream(connection, feed, queries.TENTATIVE)
            queries.insert_query(connection, spec.name, stream_id, feed_id, created, used)

    def _make_store(self, connection: sa.Connection, store: NewStore) -> int:
        last = connection.execute(sa.select(sa.func.max(tables.streams.c.id))).scalar() or 0
        # A dot keeps the name apart from all that people can choose.
        spec = StreamSpec(f"partials.{last + 1}", store.schema, store.event_time)
        stream_id = insert_stream(connection, spec, PARTIALS)
        definition = {**store.definition, "after": buckets.last_recorded(connection)}
        return queries.insert_store(connection, stream_id, definition)

    def drop_query(self, query: StoredQuery) -> None:
        """Forget a query, what it has said, and the partial results that only it has used."""
        now = self.clock()
        with self.catalog.write() as connection:
            readers = [
                f"{p.kind} {p.name!r}" for p in positions.positions_of(connection, query.stream_id) if p.kind != "query"
            ]
            if readers:
                raise in_use(query.name, readers)
            gone = queries.delete_query(connection, query)
            for stream_id in [query.stream_id, query.feed_id, *(store.stream_id for store in gone)]:
                delete_stream(connection, stream_id, now)
            readers_gone = [query.name, *(reader_of(store) for store in gone)]
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

    def record_bucket(self, lease: Lease, *, force: bool = False, release: bool = True) -> buckets.Bucket | None:
        with self.catalog.write() as connection:
            require_lease(connection, lease)
            return buckets.record_bucket(connection, force=force, release=release)

    def anything_waiting(self) -> bool:
        with self.catalog.read() as connection:
            return buckets.anything_waiting(connection)

    def buckets_after(self, number: int) -> list[buckets.Bucket]:
        with self.catalog.read() as connection:
            return buckets.buckets_after(connection, number)

    def bounds_after(self, stream_id: int, after: int, upto: int) -> list[buckets.Bounds]:
        with self.catalog.read() as connection:
            return buckets.bounds_after(connection, stream_id, after, upto)

    def bounds_at(self, stream_id: int, bucket: int) -> buckets.Bounds:
        with self.catalog.read() as connection:
            return buckets.bounds_at(connection, stream_id, bucket)

    def plan_reduction(self, stream_id: int, horizon: int) -> reduction.ReductionPlan | None:
        with self.catalog.read() as connection:
            return reduction.plan_reduction(connection, stream_id, horizon)

    def commit_reduction(
        self, plan: reduction.ReductionPlan, written: Sequence[Segment], intent_id: str | None
    ) -> None:
        with self.catalog.write() as connection:
            reduction.commit_reduction(connection, plan, written, intent_id, self.clock())

    def commit_step(
        self,
        lease: Lease,
        moves: Sequence[steps.Move],
        readings: Sequence[steps.Reading],
        outputs: Sequence[steps.Output],
    ) -> list[RunHeader]:
        return steps.commit_step(self.catalog, self.clock, lease, moves, readings, outputs)


def reader_of(store: StoredPartials) -> str:
    """The name under which a store holds its positions."""
    return f"partials {store.id}"


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
    gc.release_files(connection, list(own.scalars()), now)
    for table in (
        tables.segments,
        tables.overlay,
        tables.trimmed,
        tables.runs,
        tables.folded_runs,
        tables.sequences,
        tables.sources,
        tables.bucket_bounds,
        tables.positions,
    ):
        connection.execute(table.delete().where(table.c.stream_id == stream_id))
    intents = tables.intents
    connection.execute(intents.update().where(intents.c.stream_id == stream_id).values(state=ENDED, swept=False))
    connection.execute(tables.streams.delete().where(tables.streams.c.id == stream_id))


def require_free(connection: sa.Connection, name: str) -> None:
    """A name is a stream's, a query's or an archive's, never two things'."""
    if connection.execute(sa.select(tables.streams.c.id).where(tables.streams.c.name == name)).first():
        raise name_taken(name, "a stream")
    if any(q.definition.get("archive") == name for q in queries.all_queries(connection)):
        raise name_taken(name, "an archive")


def name_taken(name: str, by: str) -> AnabranchError:
    return AnabranchError(
        "STREAM_EXISTS",
        place=f"stream {name!r}",
        need="a name that is free",
        got=f"the name of {by}",
        next_step="Choose another name, or drop the other one first.",
    )


def in_use(name: str, readers: Sequence[str]) -> AnabranchError:
    return AnabranchError(
        "STREAM_IN_USE",
        place=f"stream {name!r}",
        need="no reader",
        got=", ".join(readers),
        next_step="Drop or release those first.",
    )
