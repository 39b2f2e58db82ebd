"""The marks of sources, bucket by bucket, and the progress that follows from them.

A bucket's progress is folded from the marks that were recorded with the bucket before and from the bucket's own runs:
each source's latest event time minus the slack, and punctuation. What has come since does not count, so a
bucket has the same progress whenever it is recorded. The cost is that of the bucket's runs: the marks of now are
columns of `sources`, the lowest and the highest of which an index has.

`bucket_marks` keeps, for each source, the buckets that have raised its mark, and so tells the marks as of every
recorded bucket: a branch at a past bucket goes on from them. Whoever folds old buckets keeps, for each bucket that
stays and each source, the last row at or before it: of a source's rows between two buckets that stay, the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.commit import NO_SOURCE
from anabranch.model.progress import evaluate
from anabranch.model.run import RunKind
from anabranch.model.stream import StreamSpec

_AT_ONCE = 1_000
_RUNS = tables.runs
_PUNCTUATION = _RUNS.c.kind == str(RunKind.PUNCTUATION)
_COMPACTED = _RUNS.c.kind == str(RunKind.COMPACTED)
# What the runs of a bucket say, by source. A folded header, of a warehouse whose buckets folded with the headers,
# has lost its sources, whose marks are known, and has the progress of its last run.
_LATEST = (
    sa.select(
        _RUNS.c.source,
        sa.func.max(sa.case((_PUNCTUATION | _COMPACTED, None), else_=_RUNS.c.event_max)).label("latest"),
        sa.func.max(sa.case((_PUNCTUATION, _RUNS.c.mark))).label("mark"),
        sa.func.max(sa.case((_COMPACTED, _RUNS.c.progress))).label("folded"),
        sa.func.max(_RUNS.c.stime).label("stime"),
        sa.func.sum(_RUNS.c.rows).label("rows"),
    )
    .where(_RUNS.c.stream_id == sa.bindparam("stream"))
    .where(_RUNS.c.position > sa.bindparam("start"), _RUNS.c.position <= sa.bindparam("end"))
    .group_by(_RUNS.c.source)
)
_RAISE = (
    tables.sources.update()
    .where(tables.sources.c.stream_id == sa.bindparam("its_stream"))
    .where(tables.sources.c.source == sa.bindparam("its_source"))
    .values(bucket_mark=sa.bindparam("its_mark"))
)


@dataclass(frozen=True)
class Folded:
    """What a bucket's runs of one stream amount to."""

    progress: int | None  # with them
    stime: int  # the latest of their stamps
    rows: int


def fold_runs(connection: sa.Connection, stream: Any, end: int, bucket: int) -> Folded:
    """Take the runs up to a position into the marks."""
    spec = StreamSpec.from_json(stream.spec)
    found = connection.execute(_LATEST, {"stream": stream.id, "start": stream.bucket_position, "end": end}).all()
    marks: dict[str, int] = {}
    promised = stream.bucket_progress
    for row in found:
        said = [] if row.latest is None else [row.latest - spec.slack]
        if row.source is None:
            promised = max((t for t in (promised, row.mark, row.folded) if t is not None), default=None)
        elif row.mark is not None:
            said.append(row.mark)
        if said:
            marks[row.source or NO_SOURCE] = max(said)
    _raise(connection, stream.id, marks, bucket)
    progress = evaluate(promised, *_extremes(connection, stream.id), spec.drift)
    return Folded(progress, max(row.stime for row in found), sum(int(row.rows) for row in found))


def _raise(connection: sa.Connection, stream_id: int, marks: Mapping[str, int], bucket: int) -> None:
    """Record the marks that a bucket raises."""
    table = tables.sources
    known: dict[str, int | None] = {}
    for names in _parts(marks):
        here = (table.c.stream_id == stream_id) & table.c.source.in_(names)
        known |= {row.source: row.bucket_mark for row in connection.execute(sa.select(table).where(here))}
    higher = {s: m for s, m in marks.items() if (before := known.get(s)) is None or m > before}
    if higher:
        connection.execute(
            _RAISE, [{"its_stream": stream_id, "its_source": s, "its_mark": m} for s, m in higher.items()]
        )
        rows = [{"stream_id": stream_id, "source": s, "bucket": bucket, "mark": m} for s, m in higher.items()]
        connection.execute(tables.bucket_marks.insert(), rows)


def _parts(names: Mapping[str, int]) -> Iterator[list[str]]:
    waiting = iter(names)
    while part := list(islice(waiting, _AT_ONCE)):
        yield part


def _extremes(connection: sa.Connection, stream_id: int) -> tuple[int | None, int | None]:
    """The lowest and the highest mark of a stream's sources, as of the last recorded bucket."""
    mark = tables.sources.c.bucket_mark
    mine = (tables.sources.c.stream_id == stream_id) & mark.is_not(None)
    # Two subqueries, each the end of an index; asked for together, SQLite would look at every source.
    lowest, highest = (sa.select(end(mark)).where(mine).scalar_subquery() for end in (sa.func.min, sa.func.max))
    row = connection.execute(sa.select(lowest, highest)).one()
    return row[0], row[1]


def marks_at(connection: sa.Connection, stream_id: int, bucket: int) -> dict[str, int]:
    """The mark of each source at the end of a recorded bucket."""
    table = tables.bucket_marks
    mine = (table.c.stream_id == stream_id) & (table.c.bucket <= bucket)
    # Marks only rise: the last one is the highest.
    query = sa.select(table.c.source, sa.func.max(table.c.mark)).where(mine).group_by(table.c.source)
    return {row[0]: row[1] for row in connection.execute(query)}
