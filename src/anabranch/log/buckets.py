"""Buckets: the units of processing, decided once and recorded.

A bucket is what was waiting in the base streams when it was recorded: for each stream the positions
after the last bucket's end, up to the newest. Recording it also evaluates the progress of every stream
that moved, from the whole bucket. What a bucket emits depends on the log up to its end and on nothing
else, so a bucket that is processed again, or together with others, emits the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.commit import extreme_marks
from anabranch.model.progress import evaluate
from anabranch.model.run import RunKind
from anabranch.model.stream import StreamSpec

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


def record_bucket(connection: sa.Connection, *, force: bool = False, release: bool = True) -> Bucket | None:
    """Record everything that is waiting as the next bucket; None if nothing is, unless it is forced."""
    streams, warehouse, buckets = tables.streams, tables.warehouse, tables.buckets
    moved = connection.execute(
        sa.select(streams).where(streams.c.role == BASE, streams.c.last_position > streams.c.bucket_position)
    ).all()
    if not moved and not force:
        return None
    number = connection.execute(sa.select(warehouse.c.last_bucket)).scalar_one() + 1
    connection.execute(warehouse.update().values(last_bucket=number))
    last = connection.execute(sa.select(buckets.c.stime).order_by(buckets.c.number.desc()).limit(1)).scalar()
    stime = max([last or 0, *(_stime_at(connection, row.id, row.last_position) for row in moved)])
    connection.execute(buckets.insert(), {"number": number, "stime": stime, "release": release})
    for row in moved:
        progress = _progress(connection, row)
        connection.execute(
            tables.bucket_bounds.insert(),
            {
                "stream_id": row.id,
                "bucket": number,
                "start_position": row.bucket_position,
                "end_position": row.last_position,
                "progress": progress,
            },
        )
        connection.execute(
            streams.update()
            .where(streams.c.id == row.id)
            .values(bucket_position=row.last_position, bucket_progress=progress)
        )
    return Bucket(number, stime, release)


def _stime_at(connection: sa.Connection, stream_id: int, position: int) -> int:
    runs = tables.runs
    here = (runs.c.stream_id == stream_id) & (runs.c.position == position)
    return int(connection.execute(sa.select(runs.c.stime).where(here)).scalar_one())


def _progress(connection: sa.Connection, stream: Any) -> int | None:
    """Progress with everything that the stream holds now, evaluated once for the whole bucket.

    The marks of the sources are those of this moment: the transaction runs alone, and the bucket takes all.
    """
    runs = tables.runs
    promised = connection.execute(
        sa.select(sa.func.max(sa.case((runs.c.kind == str(RunKind.COMPACTED), runs.c.progress), else_=runs.c.mark)))
        .where(runs.c.stream_id == stream.id, runs.c.position > stream.bucket_position)
        .where(
            sa.or_(
                sa.and_(runs.c.kind == str(RunKind.PUNCTUATION), runs.c.source.is_(None)),
                runs.c.kind == str(RunKind.COMPACTED),
            )
        )
    ).scalar()
    previous = evaluate(stream.bucket_progress, promised, None, None)
    return evaluate(previous, *extreme_marks(connection, stream.id), StreamSpec.from_json(stream.spec).drift)


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
    return connection.execute(waiting.limit(1)).first() is not None


def last_recorded(connection: sa.Connection) -> int:
    return int(connection.execute(sa.select(tables.warehouse.c.last_bucket)).scalar_one())
