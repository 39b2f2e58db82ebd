"""Emptying streams in the catalog; what becomes of their files is for who asks."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from anabranch.log import tables

# What is in a stream, what is known of who put it there, and who reads it.
_CONTENT = (
    tables.segments, tables.states, tables.overlay, tables.trimmed, tables.runs, tables.folded_runs, tables.sequences,
)  # fmt: skip
_FACTS = (tables.sources, tables.staged_runs, tables.bucket_bounds, tables.bucket_marks, tables.positions)
_READERS = (tables.views, tables.sinks)
_NOTHING = {
    "last_position": 0,
    "progress": None,
    "runs": 0,
    "rows": 0,
    "quarantined": 0,
    "size": 0,
    "event_min": None,
    "event_max": None,
    "width_classes": 0,
    "trimmed": 0,
    "bucket_position": 0,
    "bucket_progress": None,
    "first_revision": None,
}


def empty_streams(connection: sa.Connection, stream_ids: Sequence[int]) -> None:
    """Leave streams as they were when they were created."""
    _delete(connection, _CONTENT, stream_ids)
    connection.execute(tables.streams.update().where(tables.streams.c.id.in_(stream_ids)).values(_NOTHING))


def erase_streams(connection: sa.Connection, stream_ids: Sequence[int]) -> None:
    """Forget streams, and views and sinks of them."""
    _delete(connection, (*_CONTENT, *_FACTS, *_READERS), stream_ids)
    connection.execute(tables.streams.delete().where(tables.streams.c.id.in_(stream_ids)))


def _delete(connection: sa.Connection, emptied: Sequence[sa.Table], stream_ids: Sequence[int]) -> None:
    for table in emptied:
        connection.execute(table.delete().where(table.c.stream_id.in_(stream_ids)))
