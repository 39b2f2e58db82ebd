"""Folding: the catalog keeps fewer marks of the past, the longer ago it was.

Of the last day one bucket a minute stays, before that one an hour: the last one of each minute or hour, which takes
in what the others held. So the catalog of a warehouse that makes a step every two minutes has some hundred
buckets of today and twenty-four of each day before, whatever the rate. The past can still be asked for
as it was at the end of a bucket that stays; between two of them it is an error, never an approximation.

Only buckets at or below a limit are folded, the last one that nobody needs by itself any more: what any query has
taken in, one that has halted too, and said its revisions of. Folding goes over the buckets once for each of the two
widths, in portions of a bounded size; who calls remembers how far it has come.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables

MINUTE_US, HOUR_US, DAY_US = 60_000_000, 3_600_000_000, 86_400_000_000
# So many rows are looked at in one transaction.
MOST = 500


@dataclass(frozen=True)
class Grid:
    """Stretches of stream time of one width, each of which keeps one mark, as far as they have ended `until` then."""

    width: int
    until: int

    def cell(self, stime: int) -> int:
        return stime // self.width

    def is_over(self, stime: int) -> bool:
        """Whether the stretch in which a stream time lies has ended."""
        return (self.cell(stime) + 1) * self.width <= self.until


def grids(now: int) -> tuple[Grid, Grid]:
    """The hours before the last day, and the minutes until now."""
    return Grid(HOUR_US, now - DAY_US), Grid(MINUTE_US, now)


@dataclass(frozen=True)
class Mark:
    """A row of the catalog that may be folded into a later one: its number, and what tells which ones go together."""

    number: int
    stime: int
    beside: Hashable = None


def groups_to_fold(marks: Iterable[Mark], grid: Grid, limit: int, *, whole: bool) -> list[list[int]]:
    """The numbers that become one each, in order, up to the first that cannot be decided yet.

    `whole` says that no marks come after these.
    """
    groups = [list(found) for _, found in groupby(marks, key=lambda m: (grid.cell(m.stime), m.beside))]
    decided: list[list[int]] = []
    for at, group in enumerate(groups):
        is_last = at == len(groups) - 1
        if not grid.is_over(group[-1].stime) or group[-1].number > limit or (is_last and not whole):
            break
        decided.append([mark.number for mark in group])
    if not decided and len(groups) == 1 and not whole and groups[0][-1].number <= limit:
        # A stretch that has more marks than are looked at: these become one, which takes part in the next portion.
        decided = [[mark.number for mark in groups[0]]] if grid.is_over(groups[0][-1].stime) else []
    return decided


def fold_buckets(connection: sa.Connection, grid: Grid, after: int, limit: int, most: int = MOST) -> int | None:
    """Fold some buckets after one; the last that was decided, or None if nothing can be for now."""
    buckets = tables.buckets
    found = sa.select(buckets.c.number, buckets.c.stime, buckets.c.first_number).where(buckets.c.number > after)
    rows = connection.execute(found.order_by(buckets.c.number).limit(most)).all()
    marks = [Mark(row.number, row.stime) for row in rows]
    groups = groups_to_fold(marks, grid, limit, whole=len(rows) < most)
    if not groups:
        return None
    many = [group for group in groups if len(group) > 1]
    if many:
        _fold_bounds(connection, many)
        _fold_marks(connection, many)
        gone = buckets.c.number.between(sa.bindparam("low"), sa.bindparam("high"))
        connection.execute(buckets.delete().where(gone), [{"low": g[0], "high": g[-1] - 1} for g in many])
        # Each tells for which it stands, so that one that is folded is told from one that never was.
        firsts = {row.number: row.number if row.first_number is None else row.first_number for row in rows}
        stands = buckets.update().where(buckets.c.number == sa.bindparam("stays"))
        stands = stands.values(first_number=sa.bindparam("first"))
        connection.execute(stands, [{"stays": group[-1], "first": firsts[group[0]]} for group in many])
    if len(rows) == most and len(groups) == 1 and groups[0][-1] == rows[-1].number:
        return groups[0][-1] - 1  # there may be more of its stretch: it is looked at again
    return groups[-1][-1]


def _fold_bounds(connection: sa.Connection, groups: Sequence[Sequence[int]]) -> None:
    """Of each stream the last bounds of every group take in the earlier ones, and belong to the bucket that stays."""
    bounds = tables.bucket_bounds
    rows = connection.execute(
        sa.select(bounds)
        .where(
            bounds.c.stream_id.in_(_bases()),
            bounds.c.bucket.between(groups[0][0], groups[-1][-1]),
        )
        .order_by(bounds.c.stream_id, bounds.c.bucket)
    ).all()
    stays = {number: group[-1] for group in groups for number in group}
    of_group = groupby((row for row in rows if row.bucket in stays), key=lambda r: (r.stream_id, stays[r.bucket]))
    gone: list[dict[str, Any]] = []
    kept: list[dict[str, Any]] = []
    for (stream_id, number), found in of_group:
        *earlier, last = found
        gone += [{"its_stream": stream_id, "its_bucket": row.bucket} for row in earlier]
        start = earlier[0].start_position if earlier else last.start_position
        kept.append({"its_stream": stream_id, "its_bucket": last.bucket, "stays": number, "start": start})
    its = (bounds.c.stream_id == sa.bindparam("its_stream")) & (bounds.c.bucket == sa.bindparam("its_bucket"))
    if gone:
        connection.execute(bounds.delete().where(its), gone)
    if kept:
        values: dict[str, Any] = {"bucket": sa.bindparam("stays"), "start_position": sa.bindparam("start")}
        connection.execute(bounds.update().where(its).values(values), kept)


def _fold_marks(connection: sa.Connection, groups: Sequence[Sequence[int]]) -> None:
    """Of each source the last mark of every group stays, and belongs to the bucket that stays."""
    marks = tables.bucket_marks
    first, last = groups[0][0], groups[-1][-1]
    rows = connection.execute(
        sa.select(marks)
        .where(marks.c.stream_id.in_(_bases()), marks.c.bucket.between(first, last))
        .order_by(marks.c.stream_id, marks.c.source, marks.c.bucket)
    ).all()
    stays = {number: group[-1] for group in groups for number in group}
    of_group = groupby(
        (row for row in rows if row.bucket in stays), key=lambda r: (r.stream_id, r.source, stays[r.bucket])
    )
    gone: list[dict[str, Any]] = []
    kept: list[dict[str, Any]] = []
    for (stream_id, source, number), found in of_group:
        at = [{"its_stream": stream_id, "its_source": source, "its_bucket": row.bucket} for row in found]
        gone += at[:-1]
        kept.append({**at[-1], "stays": number})
    its = (marks.c.stream_id == sa.bindparam("its_stream")) & (marks.c.source == sa.bindparam("its_source"))
    its &= marks.c.bucket == sa.bindparam("its_bucket")
    if gone:
        connection.execute(marks.delete().where(its), gone)
    if kept:
        connection.execute(marks.update().where(its).values(bucket=sa.bindparam("stays")), kept)


def _bases() -> Any:
    return sa.select(tables.streams.c.id).where(tables.streams.c.role == tables.BASE)


def first_within(connection: sa.Connection, grid: Grid) -> int:
    """The last bucket before the last day: those up to it are for the grid of hours."""
    buckets = tables.buckets
    before = sa.select(buckets.c.number).where(buckets.c.stime < grid.until - DAY_US - HOUR_US)
    return int(connection.execute(before.order_by(buckets.c.stime.desc()).limit(1)).scalar() or 0)
