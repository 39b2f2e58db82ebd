"""A branch at a past bucket: a copy of the catalog that is cut back to where the bucket ended.

Base streams keep what the bucket and those before it hold, by reference: headers and segments above its positions are
dropped from the copy, and a compacted segment that reaches beyond them is read up to there (`LoggedSegment.cut`).
Marks and progress are those that were recorded with the bucket. Queries that existed then stay, with the definitions
of today, and have taken nothing in: the next step computes them again. What was created later is left out, and so is
what is in no bucket.

An answer does not depend on how rows were cut into buckets, so one step takes all up to the bucket. Some queries do
depend on it: what a lookup without revision found, what was revised when, what lay beyond a history bound. Where there
are any of those, all buckets since the first of the queries was created are taken in turn, as they were recorded; it
is an error if some of them are folded. So it is to ask for a bucket that was folded into another, or one whose rows
retention has removed: each names the nearest bucket that can be had.

Which runs a folded header covers is known as a whole. A branch at a position inside of one takes the identities of all
of them for known, as they are in what it was forked from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import queries, tables
from anabranch.log.buckets import BASE, bounds_at
from anabranch.log.erasing import empty_streams, erase_streams
from anabranch.log.marks import marks_at
from anabranch.log.views import POSITION
from anabranch.model.errors import AnabranchError
from anabranch.model.run import Role, RunKind
from anabranch.model.time import instant_text

_BUCKETS, _RUNS, _SEGMENTS, _STREAMS = tables.buckets, tables.runs, tables.segments, tables.streams
_NOW = "fork without at=, which is the present"


@dataclass(frozen=True)
class Past:
    """Which past is asked for: a bucket by its number, or the last one that had ended at a stream time."""

    bucket: int | None = None
    stime: int | None = None
    in_turn: Collection[str] = ()  # the queries, and stages, whose answers depend on how buckets were cut

    def __str__(self) -> str:
        return f"bucket {self.bucket}" if self.stime is None else instant_text(self.stime)


def cut_back(connection: sa.Connection, past: Past) -> int:
    """Inside a transaction of a copy that nobody uses yet: leave what there was at a bucket; its number."""
    number = _bucket_of(connection, past)
    stay = [query for query in queries.all_queries(connection) if query.definition["after"] <= number]
    _require_rows(connection, past, number, stay)
    since = _begin(connection, past, number, stay)
    _drop_later(connection, {query.id for query in stay})
    _start_again(connection, since)
    for stream in connection.execute(sa.select(_STREAMS).where(_STREAMS.c.role == BASE)).all():
        _cut_stream(connection, stream, number)
    for table in (tables.bucket_bounds, tables.bucket_marks):
        connection.execute(table.delete().where(table.c.bucket > number))
    connection.execute(_BUCKETS.delete().where(_BUCKETS.c.number > number))
    connection.execute(tables.staged_runs.delete())
    connection.execute(tables.warehouse.update().values(last_bucket=number, parent_bucket=number))
    return number


# Which bucket.


def _bucket_of(connection: sa.Connection, past: Past) -> int:
    """The recorded bucket that is meant; an error if it is folded, or there is none."""
    number, stime = _BUCKETS.c.number, _BUCKETS.c.stime
    wanted = number <= past.bucket if past.stime is None else stime <= past.stime
    before = connection.execute(sa.select(_BUCKETS).where(wanted).order_by(number.desc()).limit(1)).first()
    after = connection.execute(sa.select(_BUCKETS).where(~wanted).order_by(number).limit(1)).first()
    warehouse = connection.execute(sa.select(tables.warehouse)).one()
    if past.bucket is not None and past.bucket > warehouse.last_bucket:
        raise _no_bucket(past, f"one of the buckets up to {warehouse.last_bucket}", "one that is not recorded yet")
    if after is not None and _covers(after) and (past.stime is not None or past.bucket >= after.first_number):
        raise _folded(past, [row for row in (before, after) if row is not None])
    if before is None:
        need = "a bucket" if after is None else f"bucket {after.number}, the first one, or a later one"
        raise _no_bucket(
            past, need, "a time before any bucket had ended" if past.stime else "one that was not recorded"
        )
    if before.number < warehouse.marks_since:
        need = f"bucket {warehouse.marks_since} or a later one"
        raise _no_bucket(past, need, f"bucket {before.number}, when the marks of sources were not recorded")
    return int(before.number)


def _covers(bucket: Any) -> bool:
    """Whether earlier buckets are folded into one."""
    return bucket.first_number is not None and bucket.first_number < bucket.number


def _folded(past: Past, near: Iterable[Any]) -> AnabranchError:
    known = " or ".join(f"bucket {row.number}, which ended at {instant_text(row.stime)}" for row in near)
    return AnabranchError(
        "BUCKET_FOLDED",
        place=f"at {past}",
        need=known,
        got="one that is folded into a later one",
        next_step="Ask for one of the buckets that are there: the longer ago, the fewer they are.",
    )


def _no_bucket(past: Past, need: str, got: str) -> AnabranchError:
    return AnabranchError(
        "BAD_ARGUMENT", place=f"at {past}", need=need, got=got, next_step="Ask for one of those, or fork the present."
    )


# What must be there.


def _require_rows(connection: sa.Connection, past: Past, number: int, stay: list[queries.StoredQuery]) -> None:
    """Nothing of what the bucket, and those before it, hold was removed from a stream that a query reads."""
    reads = {name for query in stay for name in query.definition.get("reads", {})}
    for stream in connection.execute(sa.select(_STREAMS).where(_STREAMS.c.role == BASE, _STREAMS.c.name.in_(reads))):
        first = _first_trimmed(connection, stream.id)
        if first is None or first > bounds_at(connection, stream.id, number).end:
            continue
        bounds = tables.bucket_bounds
        whole = sa.select(sa.func.max(bounds.c.bucket)).where(
            bounds.c.stream_id == stream.id, bounds.c.end_position < first
        )
        nearest = connection.execute(whole).scalar()
        raise AnabranchError(
            "HISTORY_GONE",
            place=f"at {past}",
            need=f"all rows of {stream.name!r} up to the end of bucket {number}",
            got="rows that retention has removed",
            next_step=f"The nearest that can be had is {_NOW}."
            if nearest is None
            else f"The nearest that can be had is bucket {nearest}; or {_NOW}.",
        )


def _first_trimmed(connection: sa.Connection, stream_id: int) -> int | None:
    table = tables.trimmed
    mine = (table.c.stream_id == stream_id) & (table.c.axis == POSITION)
    return connection.execute(sa.select(sa.func.min(table.c.low)).where(mine)).scalar()


def _begin(connection: sa.Connection, past: Past, number: int, stay: list[queries.StoredQuery]) -> int | None:
    """The bucket after which all queries begin again; None: each where it was created, as some need."""
    in_turn = [query for query in stay if query.name in past.in_turn]
    if not in_turn:
        return number - 1
    first = min(query.definition["after"] for query in stay)
    folded = sa.select(_BUCKETS.c.number).where(
        _BUCKETS.c.number > first, _BUCKETS.c.number <= number, _BUCKETS.c.first_number < _BUCKETS.c.number
    )
    if connection.execute(folded.limit(1)).first() is None:
        return None
    names = ", ".join(dict.fromkeys(query.name.partition(".")[0] for query in in_turn))
    raise AnabranchError(
        "BUCKET_FOLDED",
        place=f"at {past}",
        need=f"every bucket after {first} as it was recorded, since the answers of {names} depend on them",
        got="some that are folded into later ones",
        next_step=f"The nearest that can be had is to {_NOW}.",
    )


# What goes.


def _drop_later(connection: sa.Connection, stay: set[int]) -> None:
    """Forget the queries that were created later, and the stores that only they use."""
    gone: list[int] = []
    for query in queries.all_queries(connection):
        if query.id not in stay:
            stores = queries.delete_query(connection, query)
            gone += [query.stream_id, query.feed_id, *(store.stream_id for store in stores)]
    erase_streams(connection, gone)


def _start_again(connection: sa.Connection, since: int | None) -> None:
    """Let every query, and every store, have taken in nothing yet."""
    empty_streams(
        connection, connection.execute(sa.select(_STREAMS.c.id).where(_STREAMS.c.role != BASE)).scalars().all()
    )
    for table, more in ((tables.queries, {"released": None, "halted": None, "tentative": None, "reach": None}),
                        (tables.stores, {})):  # fmt: skip
        for row in connection.execute(sa.select(table.c.id, table.c.definition)).all():
            definition = {name: value for name, value in row.definition.items() if name != "dropped"}
            if since is not None:
                definition["after"] = since
            connection.execute(
                table.update().where(table.c.id == row.id).values(bucket=None, definition=definition, **more)
            )
    # What streams amount to beside their logs is of the present.
    connection.execute(tables.states.delete())
    connection.execute(_SEGMENTS.delete().where(_SEGMENTS.c.role == str(Role.STATE)))
    positions = tables.positions
    derived = sa.select(_STREAMS.c.id).where(_STREAMS.c.role != BASE)
    connection.execute(positions.delete().where((positions.c.kind == "query") | positions.c.stream_id.in_(derived)))
    connection.execute(tables.sinks.update().values(position=0))


def _cut_stream(connection: sa.Connection, stream: Any, number: int) -> None:
    """Leave what a base stream held at the end of a bucket."""
    bounds = bounds_at(connection, stream.id, number)
    end = bounds.end
    _cut_headers(connection, stream.id, end, _rows_at(connection, stream.id, number))
    mine = _SEGMENTS.c.stream_id == stream.id
    connection.execute(_SEGMENTS.delete().where(mine, _SEGMENTS.c.first_position > end))
    connection.execute(_SEGMENTS.update().where(mine, _SEGMENTS.c.last_position > end).values(last_position=end))
    positions = tables.positions
    ahead = (positions.c.stream_id == stream.id) & (positions.c.position > end)
    connection.execute(positions.update().where(ahead).values(position=end, ordinal=None))
    sources = tables.sources
    connection.execute(sources.delete().where(sources.c.stream_id == stream.id))
    marks = [
        {"stream_id": stream.id, "source": source, "mark": mark, "bucket_mark": mark}
        for source, mark in marks_at(connection, stream.id, number).items()
    ]
    if marks:
        connection.execute(sources.insert(), marks)
    sums = [sa.func.coalesce(sa.func.sum(_RUNS.c[name]), 0).label(name) for name in ("rows", "quarantined", "size")]
    ends = [sa.func.min(_RUNS.c.event_min).label("event_min"), sa.func.max(_RUNS.c.event_max).label("event_max")]
    total = sa.select(sa.func.count().label("runs"), *sums, *ends).where(_RUNS.c.stream_id == stream.id)
    found = {n: None if v is None else int(v) for n, v in connection.execute(total).one()._mapping.items()}
    first = stream.first_revision
    found["first_revision"] = None if first is None or first > end else first
    reached = {"last_position": end, "bucket_position": end}
    progress = {"progress": bounds.progress, "bucket_progress": bounds.progress}
    here = _STREAMS.c.id == stream.id
    connection.execute(_STREAMS.update().where(here).values(**found, **reached, **progress))


def _cut_headers(connection: sa.Connection, stream_id: int, end: int, rows: int | None) -> None:
    """Drop the headers above a position; one that reaches beyond it covers what is left of its positions."""
    mine = _RUNS.c.stream_id == stream_id
    connection.execute(_RUNS.delete().where(mine, _RUNS.c.first_position > end))
    beyond = connection.execute(sa.select(_RUNS).where(mine, _RUNS.c.position > end)).first()
    if beyond is None:
        return
    before = connection.execute(
        sa.select(sa.func.coalesce(sa.func.sum(_RUNS.c.rows), 0)).where(mine, _RUNS.c.position <= end)
    )
    left = beyond.rows if rows is None else rows - int(before.scalar_one())
    # Its newest run is not here: nobody has committed anything under the name that it gets.
    values = {"position": end, "entry_point": "cut", "sequence": end, "rows": left, "kind": str(RunKind.COMPACTED)}
    connection.execute(_RUNS.update().where(mine, _RUNS.c.position == beyond.position).values(values))


def _rows_at(connection: sa.Connection, stream_id: int, number: int) -> int | None:
    """How many rows a stream had at the end of a bucket, if that was recorded."""
    table = tables.bucket_bounds
    query = sa.select(table.c.rows).where(table.c.stream_id == stream_id, table.c.bucket <= number)
    return connection.execute(query.order_by(table.c.bucket.desc()).limit(1)).scalar()
