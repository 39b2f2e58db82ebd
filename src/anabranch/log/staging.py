"""Copied runs: taken with the stamp, entry point and sequence that they have elsewhere, in any order of arrival.

A run keeps its identity and its stamp wherever it is copied, and is taken once, also if its header was folded
long ago. Copies come in any order; what buckets emit must not depend on that. So a stream that takes copies gives no
position when a run is committed: the run is *staged*, durable and unread, until a bucket is recorded that ends after
its stamp. Recording gives positions in the order of (stime, entry point, sequence). What is appended to such a stream
here is staged as well, with a stamp and a number of this warehouse, so that it has the same place in every copy.

Law: warehouses that take the same runs, and record buckets with the same ends, have the same positions, buckets and
progress, and so the same tables and the same bytes in what they emit. The exception is what a stream held before it
took its first copy: that has positions already, and goes before all copies.

A run that is stamped below a recorded bucket goes into the next one, unless its taker says that this is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.headers import header_values
from anabranch.model.run import RunDraft, RunHeader, RunId, RunKind, Segment, Stability

_TABLE = tables.staged_runs
_FACTS = [c.name for c in _TABLE.c if c.name not in ("intent_id", "segments")]
# What a run does not have before its bucket is recorded.
_NOT_YET = {"position": 0, "first_position": 0, "bucket": None, "progress": None, "progress_before": None, "trimmed": 0}


def insert_staged(
    connection: sa.Connection, runs: Sequence[tuple[RunHeader, int, Sequence[Segment], str | None]]
) -> None:
    """Stage runs: the header, the stream's number, the segments, and the intent under which they were written."""
    values = []
    for header, stream_id, segments, intent_id in runs:
        facts = header_values(header, stream_id)
        files = [segment.to_json() for segment in segments]
        values.append({**{name: facts[name] for name in _FACTS}, "intent_id": intent_id, "segments": files})
    if values:
        connection.execute(_TABLE.insert(), values)


def find_staged(connection: sa.Connection, stream_id: int, run_id: RunId) -> Any:
    """The header's row of a run that is staged."""
    here = (_TABLE.c.stream_id == stream_id) & (_TABLE.c.entry_point == run_id.entry_point)
    row = connection.execute(sa.select(_TABLE).where(here, _TABLE.c.sequence == run_id.sequence)).first()
    if row is None:
        return None
    return SimpleNamespace(**{**row._mapping, **_NOT_YET, "stability": str(Stability.STABLE)})


def staged_before(connection: sa.Connection, stime: int | None) -> dict[int, list[Any]]:
    """By stream, the rows of the runs that are stamped before a stream time, in the order that their stamps give."""
    query = sa.select(_TABLE) if stime is None else sa.select(_TABLE).where(_TABLE.c.stime < stime)
    found: dict[int, list[Any]] = {}
    # Not sorted by the catalog: how it compares text is its own affair.
    for row in sorted(connection.execute(query), key=lambda row: (row.stime, row.entry_point, row.sequence)):
        found.setdefault(row.stream_id, []).append(row)
    return found


def oldest_staged(connection: sa.Connection) -> int | None:
    """The lowest stamp of the staged runs that need not wait for runs that have positions already."""
    streams = tables.streams
    first = sa.select(sa.func.min(_TABLE.c.stime)).join(streams, streams.c.id == _TABLE.c.stream_id)
    return connection.execute(first.where(streams.c.last_position == streams.c.bucket_position)).scalar()


def anything_staged(connection: sa.Connection) -> bool:
    return connection.execute(sa.select(_TABLE.c.stream_id).limit(1)).first() is not None


def unstage(connection: sa.Connection, rows: Sequence[Any]) -> list[tuple[int, RunDraft, str | None]]:
    """Take runs off the stage: each with its stream's number and its intent, to be committed with a position."""
    here = [_TABLE.c[name] == sa.bindparam(f"its_{name}") for name in ("stream_id", "entry_point", "sequence")]
    keys = [{f"its_{n}": getattr(row, n) for n in ("stream_id", "entry_point", "sequence")} for row in rows]
    if keys:
        connection.execute(_TABLE.delete().where(*here), keys)
    return [(row.stream_id, _draft(row), row.intent_id) for row in rows]


def _draft(row: Any) -> RunDraft:
    return RunDraft(
        RunKind(row.kind),
        tuple(Segment.from_json(text) for text in row.segments),
        source=row.source,
        run_id=RunId(row.entry_point, row.sequence),
        stime=row.stime,
        mark=row.mark,
        cause=row.cause,
        supersedes=tuple(RunId(*run_id) for run_id in row.supersedes),
    )


def staged_paths(connection: sa.Connection, condition: Any) -> list[str]:
    """The files of ours that staged runs refer to."""
    texts = connection.execute(sa.select(_TABLE.c.segments).where(condition)).scalars()
    segments = [Segment.from_json(text) for row in texts for text in row]
    return [segment.path for segment in segments if not segment.reference]


def files_of_intents(connection: sa.Connection, intent_ids: Sequence[str]) -> list[str]:
    return staged_paths(connection, _TABLE.c.intent_id.in_(intent_ids))


def files_of_stream(connection: sa.Connection, stream_id: int) -> list[str]:
    return staged_paths(connection, _TABLE.c.stream_id == stream_id)
