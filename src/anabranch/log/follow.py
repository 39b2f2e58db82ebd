"""Following: a branch takes what its origin has got since, by reference, under the origin's positions and buckets.

The branch's base streams become what the origin's are now: the same runs at the same positions, with their stamps,
marks and buckets, over the same files. What was released since the fork is held (see `fork_order`), so every file
is there. Where the origin has compacted beyond where the branch stood, the branch takes the compacted segments in
place of those that they replace. Its queries stay where they are, and find the buckets waiting. A branch that has
stamped a run of its own, or recorded a bucket, has positions that mean something else, and cannot follow. Streams
that only one of the two has stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.buckets import BASE
from anabranch.log.catalog import Catalog
from anabranch.log.commit import find_run
from anabranch.log.views import POSITION
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunId

_ROWS = 1_000
# What a stream knows of itself that follows from its runs.
_STATE = (
    "schema_version", "last_position", "progress", "runs", "rows", "quarantined", "size", "event_min", "event_max",
    "trimmed", "bucket_position", "bucket_progress", "first_revision",
)  # fmt: skip


@dataclass(frozen=True)
class Followed:
    """What following brought."""

    streams: int = 0  # that have something new
    runs: int = 0
    buckets: int = 0


def follow(origin: Catalog, branch: Catalog, label: str) -> Followed:
    """Bring the base streams of a branch up to where those of its origin are."""
    with origin.read() as there, branch.write() as here:
        last = _require_following(here, there, label)
        shared = _shared(here, there)
        behind = [pair for pair in shared if pair[1].last_position > pair[0].last_position]
        runs = sum(_follow_stream(here, there, ours, label) for ours, _ in behind)
        for ours, theirs in shared:
            _follow_state(here, ours, theirs)
            _replace(here, there, tables.staged_runs, ours.id, sa.true())
        buckets = _follow_buckets(here, there, last, {ours.id: ours.bucket_position for ours, _ in shared})
        mark = there.execute(sa.select(tables.warehouse.c.last_stime, tables.warehouse.c.last_bucket)).one()
        here.execute(
            tables.warehouse.update().values(
                last_stime=mark.last_stime, parent_stime=mark.last_stime,
                last_bucket=mark.last_bucket, parent_bucket=mark.last_bucket,
            )
        )  # fmt: skip
    return Followed(len(behind), runs, buckets)


def _require_following(here: sa.Connection, there: sa.Connection, label: str) -> int:
    """The last bucket of the origin that a branch has; an error if it has gone its own way."""
    row = here.execute(sa.select(tables.warehouse)).one()
    own = [
        what
        for what, differs in (
            ("rows of its own", row.last_stime != row.parent_stime or _stages(here, there)),
            ("buckets of its own", row.last_bucket != row.parent_bucket),
        )
        if differs
    ]
    if own:
        raise AnabranchError(
            "BRANCH_DIVERGED",
            place=f"branch {label}",
            need="a branch that has only what main had",
            got=f"one that has {' and '.join(own)}",
            next_step="Fork another branch; it has all that main has now.",
        )
    return int(row.last_bucket)


def _stages(here: sa.Connection, there: sa.Connection) -> bool:
    """Whether a branch has taken in copies of runs, which have stamps from elsewhere, that its origin has not."""
    table = tables.staged_runs
    for row in here.execute(sa.select(table.c.stream_id, table.c.entry_point, table.c.sequence)):
        same = (table.c.stream_id == row.stream_id) & (table.c.entry_point == row.entry_point)
        known = there.execute(sa.select(table.c.sequence).where(same, table.c.sequence == row.sequence)).first()
        if known is None and find_run(there, row.stream_id, RunId(row.entry_point, row.sequence)) is None:
            return True
    return False


def _shared(here: sa.Connection, there: sa.Connection) -> list[tuple[Any, Any]]:
    """The base streams that both have, as each has them."""
    base = sa.select(tables.streams).where(tables.streams.c.role == BASE).order_by(tables.streams.c.id)
    theirs = {row.id: row for row in there.execute(base)}
    return [(row, theirs[row.id]) for row in here.execute(base) if row.id in theirs and theirs[row.id].name == row.name]


def _follow_state(here: sa.Connection, ours: Any, theirs: Any) -> None:
    values = {name: getattr(theirs, name) for name in _STATE}
    values["width_classes"] = ours.width_classes | theirs.width_classes  # of segments of either
    here.execute(tables.streams.update().where(tables.streams.c.id == ours.id).values(**values))


def _follow_stream(here: sa.Connection, there: sa.Connection, ours: Any, label: str) -> int:
    """Take the runs that one stream has got; how many headers these are."""
    _require_whole(there, ours, label)
    first = _seam(here, there, ours.id, ours.last_position + 1)
    _replace(here, there, tables.segments, ours.id, _from(tables.segments, first))
    for table in (tables.sources, tables.sequences, tables.folded_runs):
        _replace(here, there, table, ours.id, sa.true())
    return _replace(here, there, tables.runs, ours.id, tables.runs.c.position >= first)


def _require_whole(there: sa.Connection, ours: Any, label: str) -> None:
    """Rows that the branch has never had must not have been let go of in the meantime."""
    table = tables.trimmed
    gone = (table.c.stream_id == ours.id) & (table.c.axis == POSITION) & (table.c.high > ours.last_position)
    row = there.execute(sa.select(table).where(gone).limit(1)).first()
    if row is not None:
        raise AnabranchError(
            "HISTORY_GONE",
            place=f"branch {label}, stream {ours.name!r}",
            need=f"the rows that came after position {ours.last_position}",
            got=f"a stream of which retention has removed rows up to position {row.high}",
            next_step="Fork another branch; it has all that main has now. Nothing was changed.",
        )


def _seam(here: sa.Connection, there: sa.Connection, stream_id: int, first: int) -> int:
    """The position from which on both have whole runs and segments, so that one can take the place of the other."""
    while True:
        lowest = first
        for connection in (here, there):
            for table, last in (
                (tables.runs, tables.runs.c.position),
                (tables.segments, tables.segments.c.last_position),
            ):
                query = sa.select(sa.func.min(table.c.first_position))
                found = connection.execute(query.where(table.c.stream_id == stream_id, last >= first)).scalar()
                lowest = min(lowest, first if found is None else found)
        if lowest == first:
            return first
        first = lowest


def _from(segments: sa.Table, first: int) -> Any:
    return segments.c.overlay_id.is_(None) & (segments.c.last_position >= first)


def _replace(here: sa.Connection, there: sa.Connection, table: sa.Table, stream_id: int, which: Any) -> int:
    """Take some rows of a table of a stream in place of one's own."""
    mine = table.c.stream_id == stream_id
    here.execute(table.delete().where(mine, which))
    columns = [column for column in table.columns if column.name != "id"]  # numbers are each catalog's own
    return _copy(here, there.execute(sa.select(*columns).where(mine, which)), table)


def _follow_buckets(here: sa.Connection, there: sa.Connection, last: int, moved: dict[int, int]) -> int:
    """Take the buckets after one, and what they hold of some streams after the positions where these were."""
    bounds, buckets, marks = tables.bucket_bounds, tables.buckets, tables.bucket_marks
    wanted = sa.select(bounds).where(bounds.c.bucket > last, bounds.c.stream_id.in_(list(moved)))
    rows = there.execute(wanted).mappings().all()
    values = [{**row, "start_position": max(row["start_position"], moved[row["stream_id"]])} for row in rows]
    if values:
        here.execute(bounds.insert(), values)
    _copy(here, there.execute(sa.select(marks).where(marks.c.bucket > last, marks.c.stream_id.in_(list(moved)))), marks)
    return _copy(here, there.execute(sa.select(buckets).where(buckets.c.number > last)), buckets)


def _copy(here: sa.Connection, found: sa.Result[Any], table: sa.Table) -> int:
    copied = 0
    for part in found.mappings().partitions(_ROWS):
        here.execute(table.insert(), [dict(row) for row in part])
        copied += len(part)
    return copied
