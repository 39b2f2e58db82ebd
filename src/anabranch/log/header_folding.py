"""Folding headers: many runs of a stream get one header between them.

The rows stay as they are, with their positions: only the header of each run goes. The newest of those that are
folded lends its identity, stamp, bucket and progress, and covers the positions of all; the identities of the
others stay known as ranges, so that a retry of any of them is still a no-op. Runs are folded like buckets
(`folding`), one header for each stretch of stream time and bucket that stays, so whatever
bucket stays, a header ends with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.folding import MOST, Grid, Mark, groups_to_fold
from anabranch.log.intervals import merge_ranges
from anabranch.model.run import RunKind

_SUMMED = ("rows", "quarantined", "size", "trimmed")
# What a header for several runs does not say.
_UNSAID: dict[str, Any] = {
    "kind": str(RunKind.COMPACTED),
    "source": None,
    "key_min": None,
    "key_max": None,
    "mark": None,
    "progress_before": None,
    "supersedes": [],
}


def fold_runs(
    connection: sa.Connection, stream_id: int, grid: Grid, after: int, up_to: int, most: int = MOST
) -> int | None:
    """Fold some headers after a position, none above another; the last that was decided, or None if nothing can be."""
    runs = tables.runs
    rows = connection.execute(
        sa.select(runs)
        .where(runs.c.stream_id == stream_id, runs.c.position > after)
        .order_by(runs.c.position)
        .limit(most)
    ).all()
    if not rows:
        return None
    ends = _bucket_ends(connection, stream_id, rows[0].position, rows[-1].position)
    marks = [Mark(row.position, row.stime, bisect_left(ends, row.position)) for row in rows]
    groups = groups_to_fold(marks, grid, up_to, whole=len(rows) < most)
    if not groups:
        return None
    at = {row.position: row for row in rows}
    _fold(connection, stream_id, [[at[position] for position in group] for group in groups if len(group) > 1])
    if len(rows) == most and len(groups) == 1 and groups[0][-1] == rows[-1].position:
        return groups[0][-1] - 1  # there may be more of its stretch: it is looked at again
    return groups[-1][-1]


def fold_all(connection: sa.Connection, stream_id: int, up_to: int) -> None:
    """One header for everything up to a position."""
    runs = tables.runs
    rows = connection.execute(
        sa.select(runs).where(runs.c.stream_id == stream_id, runs.c.position <= up_to).order_by(runs.c.position)
    ).all()
    if len(rows) > 1:
        _fold(connection, stream_id, [rows])


def _bucket_ends(connection: sa.Connection, stream_id: int, first: int, last: int) -> list[int]:
    """Where the buckets end that a base stream's positions are in."""
    bounds = tables.bucket_bounds
    ends = sa.select(bounds.c.end_position).where(
        bounds.c.stream_id == stream_id, bounds.c.end_position.between(first, last)
    )
    return sorted(connection.execute(ends).scalars())


def _fold(connection: sa.Connection, stream_id: int, groups: Sequence[Sequence[Any]]) -> None:
    if not groups:
        return
    runs = tables.runs
    _fold_identities(connection, stream_id, (row for group in groups for row in group[:-1]))
    its = (runs.c.stream_id == stream_id) & (runs.c.position == sa.bindparam("its_position"))
    gone = [{"its_position": row.position} for group in groups for row in group[:-1]]
    connection.execute(runs.delete().where(its), gone)
    own = ("first_position", "event_min", "event_max", "cause", *_SUMMED)
    named: dict[str, Any] = {name: sa.bindparam(f"its_{name}") for name in own}
    connection.execute(runs.update().where(its).values({**_UNSAID, **named}), [_together(group) for group in groups])


def _together(group: Sequence[Any]) -> dict[str, Any]:
    lows = [row.event_min for row in group if row.event_min is not None]
    highs = [row.event_max for row in group if row.event_max is not None]
    return {
        "its_position": group[-1].position,
        "its_first_position": group[0].first_position,
        "its_event_min": min(lows, default=None),
        "its_event_max": max(highs, default=None),
        "its_cause": {"first_stime": first_stime(group[0])},
        **{f"its_{name}": sum(getattr(row, name) for row in group) for name in _SUMMED},
    }


def first_stime(header: Any) -> int:
    """The earliest stamp of the runs that a header covers; of those folded before this was noted, the beginning."""
    if header.first_position == header.position:
        return int(header.stime)
    return int((header.cause or {}).get("first_stime", 0))


def _fold_identities(connection: sa.Connection, stream_id: int, gone: Iterable[Any]) -> None:
    """Remember the folded identities as ranges: entry points number densely, so the ranges stay few."""
    folded = tables.folded_runs
    ranges: dict[str, list[tuple[int, int]]] = {}
    for row in gone:
        ranges.setdefault(row.entry_point, []).append((row.sequence, row.sequence))
    mine = (folded.c.stream_id == stream_id) & folded.c.entry_point.in_(ranges)
    for row in connection.execute(sa.select(folded).where(mine)):
        ranges[row.entry_point].append((row.first_sequence, row.last_sequence))
    connection.execute(folded.delete().where(mine))
    merged = [
        {"stream_id": stream_id, "entry_point": entry_point, "first_sequence": first, "last_sequence": last}
        for entry_point, found in ranges.items()
        for first, last in merge_ranges(found)
    ]
    connection.execute(folded.insert(), merged)
