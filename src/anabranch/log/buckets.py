"""Buckets: the units of processing, decided once and recorded (`recording`).

A bucket holds, of each base stream, the positions after the last bucket's end up to its own, and has the progress of
every stream that moved, evaluated once from the whole of it (`marks`). What a bucket emits depends on the log up to
its end and on nothing else, so a bucket that is processed again, or together with others, emits the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.staging import anything_staged

BASE = tables.BASE


@dataclass(frozen=True)
class Bucket:
    number: int
    stime: int
    release: bool


@dataclass(frozen=True)
class Bounds:
    """What a bucket holds of one stream, positions after `start` up to and with `end`, and the progress with it."""

    bucket: int
    start: int
    end: int
    progress: int | None


def buckets_after(connection: sa.Connection, number: int) -> list[Bucket]:
    """The recorded buckets after one, in order."""
    table = tables.buckets
    rows = connection.execute(sa.select(table).where(table.c.number > number).order_by(table.c.number))
    return [Bucket(row.number, row.stime, row.release) for row in rows]


def bounds_after(connection: sa.Connection, stream_id: int, after: int, upto: int) -> list[Bounds]:
    """What the buckets after one, up to another, hold of a stream."""
    table = tables.bucket_bounds
    rows = connection.execute(
        sa.select(table)
        .where(table.c.stream_id == stream_id, table.c.bucket > after, table.c.bucket <= upto)
        .order_by(table.c.bucket)
    )
    return [Bounds(row.bucket, row.start_position, row.end_position, row.progress) for row in rows]


def bounds_at(connection: sa.Connection, stream_id: int, bucket: int) -> Bounds:
    """Where a stream stood at the end of a bucket."""
    table = tables.bucket_bounds
    row = connection.execute(
        sa.select(table)
        .where(table.c.stream_id == stream_id, table.c.bucket <= bucket)
        .order_by(table.c.bucket.desc())
        .limit(1)
    ).first()
    return Bounds(0, 0, 0, None) if row is None else Bounds(bucket, 0, row.end_position, row.progress)


def turns(connection: sa.Connection, after: int, upto: int) -> list[int]:
    """The buckets in a range with which some stream begins to hold anything but insertions."""
    table, streams = tables.bucket_bounds, tables.streams
    here = (table.c.bucket > after) & (table.c.bucket <= upto)
    first = (table.c.start_position < streams.c.first_revision) & (streams.c.first_revision <= table.c.end_position)
    found = sa.select(table.c.bucket).join(streams, streams.c.id == table.c.stream_id).where(here, first)
    return sorted(set(connection.execute(found).scalars()))


def anything_waiting(connection: sa.Connection) -> bool:
    streams = tables.streams
    waiting = sa.select(streams.c.id).where(streams.c.role == BASE, streams.c.last_position > streams.c.bucket_position)
    return connection.execute(waiting.limit(1)).first() is not None or anything_staged(connection)


def last_recorded(connection: sa.Connection) -> int:
    return int(connection.execute(sa.select(tables.warehouse.c.last_bucket)).scalar_one())
