"""Sinks, as the catalog keeps them: where the changes of a stream go, and how far they have come.

A sink's definition is the business of whoever writes to it. Its position is the last one that has
arrived; what comes after it is kept from retention and compaction. A sink that is halted has the parts
of its error here; one whose error is passing is tried again by itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import Catalog
from anabranch.log.leases import Lease, require_lease
from anabranch.log.positions import set_position
from anabranch.log.register import require_free
from anabranch.model.errors import AnabranchError

# Errors that pass by themselves: a server that is away comes back.
PASSING = ("SINK_UNREACHABLE", "CATALOG_UNREACHABLE", "POSITION_CONFLICT", "DISK_FULL")


@dataclass(frozen=True)
class StoredSink:
    id: str
    name: str
    stream_id: int
    stream: str
    definition: Mapping[str, Any]
    position: int
    last_position: int  # of the stream
    halted: Mapping[str, str] | None

    @property
    def waiting(self) -> int:
        """How many positions of the stream have not arrived yet."""
        return self.last_position - self.position

    @property
    def tries(self) -> bool:
        """Whether it goes on by itself: not halted, or by something that passes."""
        return self.halted is None or self.halted["error_id"] in PASSING


class SinkRegister:
    """The sinks of one warehouse; every method is a short transaction."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def all(self) -> list[StoredSink]:
        table, streams = tables.sinks, tables.streams
        query = sa.select(table, streams.c.name.label("stream"), streams.c.last_position).join(streams)
        with self.catalog.read() as connection:
            return [
                StoredSink(r.id, r.name, r.stream_id, r.stream, r.definition, r.position, r.last_position, r.halted)
                for r in connection.execute(query.order_by(table.c.name))
            ]

    def find(self, name: str) -> StoredSink:
        known = {sink.name: sink for sink in self.all()}
        if name not in known:
            raise AnabranchError(
                "UNKNOWN_SINK",
                place=f"sink {name!r}",
                need=f"one of {', '.join(known)}" if known else "a sink; there is none yet",
                got=repr(name),
                next_step="Check the spelling, or create the sink.",
            )
        return known[name]

    def require_new(self, name: str) -> None:
        """A sink's name is nobody else's: people resume sinks and queries by their names."""
        with self.catalog.read() as connection:
            require_free(connection, name)

    def create(self, name: str, stream_id: int, definition: Mapping[str, Any], sink_id: str) -> None:
        with self.catalog.write() as connection:
            require_free(connection, name)
            connection.execute(
                tables.sinks.insert().values(
                    id=sink_id, name=name, stream_id=stream_id, definition=dict(definition), position=0
                )
            )
            set_position(connection, stream_id, name, 0, "sink")

    def drop(self, sink: StoredSink) -> None:
        held = tables.positions
        with self.catalog.write() as connection:
            connection.execute(tables.sinks.delete().where(tables.sinks.c.id == sink.id))
            connection.execute(
                held.delete().where(held.c.stream_id == sink.stream_id, held.c.name == sink.name, held.c.kind == "sink")
            )

    def moved(self, lease: Lease, sink: StoredSink, position: int) -> None:
        """Everything up to a position has arrived, and the sink is well."""
        with self.catalog.write() as connection:
            require_lease(connection, lease)
            there = tables.sinks.c.id == sink.id
            found = connection.execute(tables.sinks.update().where(there).values(position=position, halted=None))
            if found.rowcount:  # it may have been dropped meanwhile
                set_position(connection, sink.stream_id, sink.name, position, "sink")

    def halt(self, lease: Lease, sink: StoredSink, error: AnabranchError) -> None:
        with self.catalog.write() as connection:
            require_lease(connection, lease)
            connection.execute(tables.sinks.update().where(tables.sinks.c.id == sink.id).values(halted=error.parts()))

    def resume(self, sink: StoredSink) -> None:
        with self.catalog.write() as connection:
            connection.execute(tables.sinks.update().where(tables.sinks.c.id == sink.id).values(halted=None))


def new_sink_id() -> str:
    return uuid.uuid4().hex
