"""Recording a bucket: what it ends with, which number it has, and what it holds.

An end is a stream time, exclusive, or a position for each stream; without one a bucket takes everything that waits.
Runs beyond the end go on waiting. Staged runs get their positions now (`staging`), and progress is folded from what
the bucket holds (`marks`), so the same runs and the same ends give the same buckets, whenever they are recorded.

Numbers are one rising sequence. In a warehouse with a bucket size, bucket k is all runs stamped in
`[k size, (k+1) size)`, with those that came too late for an earlier one, and ends with its interval: no run of this
warehouse's own is stamped below the end of a recorded bucket. Where no end is given it takes the oldest interval with
anything waiting in it; if that is not over yet, it ends now, and stream time goes on behind it, unless the caller
would rather wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.buckets import BASE, Bucket
from anabranch.log.commit import Output, commit_runs
from anabranch.log.marks import Folded, fold_runs
from anabranch.log.staging import anything_staged, oldest_staged, staged_before, unstage
from anabranch.model.errors import AnabranchError

_STREAMS, _RUNS = tables.streams, tables.runs


@dataclass(frozen=True)
class End:
    """Where a bucket ends: before a stream time, or with a position of each of some streams; with neither, with all."""

    stime: int | None = None
    positions: Mapping[int, int] | None = None  # by the stream's number


EVERYTHING = End()


@dataclass(frozen=True)
class _Frame:
    """The next bucket: its number, and the stream time before which its runs are stamped, if that is how it ends."""

    number: int
    before: int | None


@dataclass(frozen=True)
class _Place:
    """Where a warehouse is: its last bucket, and the size of buckets, if they have one."""

    number: int
    stime: int  # of the last bucket: what is stamped up to it comes too late for it
    size: int | None
    now: int


def record_bucket(
    connection: sa.Connection,
    *,
    now: int,
    end: End = EVERYTHING,
    force: bool = False,
    release: bool = True,
    early: bool = True,
) -> Bucket | None:
    """Record the next bucket; None if there is nothing for it, unless it is forced.

    Where buckets have a size, and no end is given, `early` says that an interval may end before its time.
    """
    place = _place(connection, now)
    frame = _frame(connection, place, end, force)
    if frame is None or (not early and frame.before is not None and end.stime is None and frame.before > now):
        return None
    _give_positions(connection, frame, end, now)
    moved = _moved(connection, frame, end)
    if not moved and not force:
        return None
    stimes = [place.stime if frame.before is None else max(place.stime, frame.before - 1)]
    for stream, position in moved:
        folded = fold_runs(connection, stream, position, frame.number)
        stimes.append(folded.stime if frame.before is None else place.stime)
        _end_at(connection, stream, position, frame.number, folded)
    bucket = Bucket(frame.number, max(stimes), release)
    connection.execute(
        tables.buckets.insert(), {"number": bucket.number, "stime": bucket.stime, "release": bucket.release}
    )
    warehouse = tables.warehouse
    last = sa.case((warehouse.c.last_stime > bucket.stime, warehouse.c.last_stime), else_=bucket.stime)
    connection.execute(warehouse.update().values(last_bucket=bucket.number, last_stime=last))
    return bucket


def _end_at(connection: sa.Connection, stream: Any, position: int, number: int, folded: Folded) -> None:
    table, progress = tables.bucket_bounds, folded.progress
    last = sa.select(table.c.rows).where(table.c.stream_id == stream.id).order_by(table.c.bucket.desc()).limit(1)
    before = 0 if stream.bucket_position == 0 else connection.execute(last).scalar()
    connection.execute(
        table.insert(),
        {
            "stream_id": stream.id,
            "bucket": number,
            "start_position": stream.bucket_position,
            "end_position": position,
            "progress": progress,
            "rows": None if before is None else before + folded.rows,
        },
    )
    connection.execute(
        _STREAMS.update().where(_STREAMS.c.id == stream.id).values(bucket_position=position, bucket_progress=progress)
    )


def _place(connection: sa.Connection, now: int) -> _Place:
    warehouse = connection.execute(sa.select(tables.warehouse)).one()
    buckets = tables.buckets
    stime = connection.execute(sa.select(buckets.c.stime).order_by(buckets.c.number.desc()).limit(1)).scalar()
    return _Place(warehouse.last_bucket, stime or 0, warehouse.bucket_size, now)


def _frame(connection: sa.Connection, place: _Place, end: End, force: bool) -> _Frame | None:
    if end.stime is not None and end.stime <= place.stime:
        raise _bad_end(f"a stream time after {place.stime}, where bucket {place.number} ended", str(end.stime))
    if place.size is None:
        return _Frame(place.number + 1, end.stime)
    if end.positions is not None or (end.stime is not None and end.stime % place.size):
        got = "positions" if end.stime is None else str(end.stime)
        raise _bad_end(f"a multiple of the warehouse's bucket size, {place.size}", got)
    waiting = _oldest_waiting(connection)
    late = None if waiting is None else max(waiting // place.size, place.number + 1)
    if end.stime is not None:
        number = end.stime // place.size - 1
        if late is not None and late < number:
            raise _bad_end(f"bucket {late} first, for which runs are waiting", f"bucket {number}")
    elif late is not None:
        number = late
    elif force:
        number = max(place.number + 1, place.now // place.size - 1)
    else:
        return None
    return _Frame(number, (number + 1) * place.size)


def _oldest_waiting(connection: sa.Connection) -> int | None:
    """The lowest stamp of what is in no bucket yet."""
    waiting = sa.select(sa.func.min(_RUNS.c.stime)).join(_STREAMS, _STREAMS.c.id == _RUNS.c.stream_id)
    waiting = waiting.where(_STREAMS.c.role == BASE, _RUNS.c.position > _STREAMS.c.bucket_position)
    found = (connection.execute(waiting).scalar(), oldest_staged(connection))
    return min((stime for stime in found if stime is not None), default=None)


def _give_positions(connection: sa.Connection, frame: _Frame, end: End, now: int) -> None:
    """Commit the staged runs of the bucket, each stream's in the order of their stamps."""
    if end.positions is not None:
        return
    waiting = staged_before(connection, frame.before)
    if not waiting:
        return
    streams = connection.execute(sa.select(_STREAMS).where(_STREAMS.c.id.in_(waiting))).all()
    # Runs that had positions before the stream took copies go first, and may reach beyond this bucket.
    ready = [stream.id for stream in streams if _last_before(connection, stream, frame.before) == stream.last_position]
    taken = unstage(connection, [row for stream_id in sorted(ready) for row in waiting[stream_id]])
    if taken:
        commit_runs(connection, [Output(*run) for run in taken], clock=now, recording=True)


def _moved(connection: sa.Connection, frame: _Frame, end: End) -> list[tuple[Any, int]]:
    """The streams of which the bucket holds anything, each with its last position in it."""
    waiting = _STREAMS.c.last_position > _STREAMS.c.bucket_position
    streams = connection.execute(sa.select(_STREAMS).where(_STREAMS.c.role == BASE, waiting).order_by(_STREAMS.c.id))
    moved = []
    for stream in streams.all():
        if end.positions is None:
            position = _last_before(connection, stream, frame.before)
        else:
            position = end.positions.get(stream.id, stream.bucket_position)
            if not stream.bucket_position <= position <= stream.last_position:
                need = f"a position of {stream.name!r} from {stream.bucket_position} to {stream.last_position}"
                raise _bad_end(need, str(position))
        if position > stream.bucket_position:
            moved.append((stream, position))
    return moved


def _last_before(connection: sa.Connection, stream: Any, before: int | None) -> int:
    """The last position up to which all that waits is stamped before a stream time."""
    if before is None:
        return int(stream.last_position)
    mine = (_RUNS.c.stream_id == stream.id) & (_RUNS.c.position > stream.bucket_position)
    query = sa.select(_RUNS.c.first_position).where(mine, _RUNS.c.stime >= before).order_by(_RUNS.c.position)
    beyond = connection.execute(query.limit(1)).scalar()
    return int(stream.last_position) if beyond is None else max(int(beyond) - 1, int(stream.bucket_position))


def record_for_folding(connection: sa.Connection, now: int) -> None:
    """Put what waits into a bucket, so that its headers may fold, where nobody else will: without a query."""
    size = connection.execute(sa.select(tables.warehouse.c.bucket_size)).scalar()
    asked = connection.execute(sa.select(tables.queries.c.id).limit(1)).first()
    if size is None and asked is None and not anything_staged(connection):
        record_bucket(connection, now=now)


def _bad_end(need: str, got: str) -> AnabranchError:
    return AnabranchError(
        "BAD_ARGUMENT", place="the end of a bucket", need=need, got=got, next_step="Record it with another end."
    )
