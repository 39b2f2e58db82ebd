"""Queries and the stores of partial results that they share, as the catalog keeps them.

A query has an output stream, in which it says its changes, and a definition, which is the diagram's
business. A store has a stream of partial results. A store that no query uses any more is dropped with
the last one that did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.model.errors import AnabranchError

DERIVED, KEPT, PARTIALS, TENTATIVE = "derived", "kept", "partials", "tentative"


def is_hidden(name: str) -> bool:
    """Whether it is a stage behind other queries: a dot keeps their names apart from all that people can choose."""
    return "." in name


@dataclass(frozen=True)
class StoredQuery:
    id: int
    name: str
    stream_id: int
    definition: Mapping[str, Any]
    bucket: int | None
    released: int | None
    halted: Mapping[str, str] | None
    feed_id: int
    tentative: Mapping[str, Any] | None
    reach: tuple[int, int] | None
    stores: tuple[int, ...]


@dataclass(frozen=True)
class StoredPartials:
    id: int
    stream_id: int
    definition: Mapping[str, Any]
    bucket: int | None


def all_queries(connection: sa.Connection) -> list[StoredQuery]:
    table, links = tables.queries, tables.query_stores
    used: dict[int, list[int]] = {}
    for row in connection.execute(sa.select(links).order_by(links.c.store_id)):
        used.setdefault(row.query_id, []).append(row.store_id)
    rows = connection.execute(sa.select(table).order_by(table.c.id))
    return [
        StoredQuery(
            row.id, row.name, row.stream_id, row.definition, row.bucket, row.released, row.halted,
            row.feed_id, row.tentative, None if row.reach is None else (row.reach[0], row.reach[1]),
            tuple(used.get(row.id, ())),
        )
        for row in rows
    ]  # fmt: skip


def all_stores(connection: sa.Connection) -> list[StoredPartials]:
    table = tables.stores
    rows = connection.execute(sa.select(table).order_by(table.c.id))
    return [StoredPartials(row.id, row.stream_id, row.definition, row.bucket) for row in rows]


def insert_store(connection: sa.Connection, stream_id: int, definition: Mapping[str, Any]) -> int:
    made = connection.execute(
        tables.stores.insert().values(stream_id=stream_id, definition=dict(definition), bucket=None)
    ).inserted_primary_key
    assert made is not None
    return int(made[0])


def insert_query(
    connection: sa.Connection,
    name: str,
    stream_id: int,
    feed_id: int,
    definition: Mapping[str, Any],
    stores: Sequence[int],
) -> int:
    values = {"name": name, "stream_id": stream_id, "feed_id": feed_id, "definition": dict(definition)}
    made = connection.execute(tables.queries.insert().values(**values)).inserted_primary_key
    assert made is not None
    links = [{"query_id": made[0], "store_id": store} for store in dict.fromkeys(stores)]
    if links:
        connection.execute(tables.query_stores.insert(), links)
    return int(made[0])


def delete_query(connection: sa.Connection, query: StoredQuery) -> list[StoredPartials]:
    """Forget a query; what is returned are the stores that only it has used, to be dropped as well."""
    links, stores = tables.query_stores, tables.stores
    connection.execute(links.delete().where(links.c.query_id == query.id))
    connection.execute(tables.queries.delete().where(tables.queries.c.id == query.id))
    still_used = set(connection.execute(sa.select(links.c.store_id)).scalars())
    orphans = [s for s in all_stores(connection) if s.id in query.stores and s.id not in still_used]
    connection.execute(stores.delete().where(stores.c.id.in_([s.id for s in orphans])))
    return orphans


def halt_query(connection: sa.Connection, query_id: int, error: AnabranchError | None) -> None:
    """Stop a query at its position, or, without an error, let it go on."""
    parts = None if error is None else error.parts()
    connection.execute(tables.queries.update().where(tables.queries.c.id == query_id).values(halted=parts))
