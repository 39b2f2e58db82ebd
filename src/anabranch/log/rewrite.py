"""Rewriting many small segments into one: what a single compaction task does.

The catalog knows every segment's event-time range, so the driver can put segments of neighbouring times
into groups of bounded size without looking at a row. Each group is then read, sorted and written by one
task on its own: no exchange between tasks, however many there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.log.segments import LEAST_ROWS, SegmentLayout, write_segments
from anabranch.log.tiers import Cells
from anabranch.model.run import ChangeType, LoggedSegment, Segment
from anabranch.model.schema import Schema

GROUP_ROWS = 1_000_000
ROW_GROUP = 50_000
_ANY_SPAN = 1 << 62

# The columns of a compacted segment beside the stream's own.
CARRIED = pa.schema(
    [
        pa.field("_ordinal", pa.int64()),
        pa.field("_change_type", pa.string()),
        pa.field("_position", pa.int64()),
        pa.field("_stime", pa.int64()),
        pa.field("_entry_point", pa.string()),
        pa.field("_sequence", pa.int64()),
        pa.field("_source", pa.string()),
    ]
)


@dataclass(frozen=True)
class Piece:
    """A segment to be rewritten; small, and sent to Spark tasks."""

    path: str
    position: int | None  # None: the rows carry their own
    stime: int | None
    source: str | None
    entry_point: str | None = None
    sequence: int | None = None
    ordinal_base: int = 0  # what the numbers of its rows are counted from


def group_segments(
    segments: Iterable[LoggedSegment], span: int | None = None, group_rows: int = GROUP_ROWS
) -> list[list[LoggedSegment]]:
    """Segments of neighbouring event times together, until a group has enough rows or covers a `span`.

    One of which only some rows count is left as it is: how many they are nobody knows.

    Segments without event times, the deletions by key, have groups of their own: every reader opens them.
    """
    ordered = sorted(
        (segment for segment in segments if segment.cut is None),
        key=lambda s: (s.segment.event_min is None, s.segment.event_min, s.last_position or 0, s.segment.path),
    )
    groups: list[list[LoggedSegment]] = []
    rows = 0
    for logged in ordered:
        if not groups or rows + logged.segment.rows > group_rows or not _belongs(groups[-1][0], logged, span):
            groups.append([])
            rows = 0
        rows += logged.segment.rows
        groups[-1].append(logged)
    return groups


def _belongs(first: LoggedSegment, other: LoggedSegment, span: int | None) -> bool:
    low, high = first.segment.event_min, other.segment.event_max
    if low is None or high is None:
        return low is high
    return span is None or high - low <= span


def piece_of(logged: LoggedSegment) -> Piece:
    position = None if logged.compacted else logged.last_position
    entry_point, sequence = (None, None) if logged.run_id is None else logged.run_id
    return Piece(
        logged.segment.path, position, logged.stime, logged.source, entry_point, sequence, logged.segment.ordinal_base
    )


def rewrite(
    layout: SegmentLayout, schema: Schema, pieces: Sequence[Piece], cells: Cells | None = None
) -> list[Segment]:
    """Read the pieces of one group and write them as one segment sorted by event time.

    A sorted segment needs no cutting: its row groups have narrow ranges, which readers skip by. With `cells`, rows that
    are many are cut by them all the same.
    """
    whole = pa.unify_schemas([schema.arrow, CARRIED])
    table = pa.concat_tables([_read(layout, piece, whole) for piece in pieces])
    order = [(layout.event_time, "ascending"), ("_position", "ascending"), ("_ordinal", "ascending")]
    whole_group = replace(layout, span=_ANY_SPAN, most_rows=max(table.num_rows, 1), row_group=ROW_GROUP)
    ordered = table.sort_by(order)
    apart = [ordered] if cells is None or ordered.num_rows < LEAST_ROWS else _by_cell(ordered, layout, cells)
    return [segment for some in apart for segment in write_segments(whole_group, some)]


def _by_cell(ordered: pa.Table, layout: SegmentLayout, cells: Cells) -> list[pa.Table]:
    starts = cells.starts_of(pc.cast(ordered[layout.event_time], pa.int64()).to_numpy())
    edges = [0, *(np.flatnonzero(np.diff(starts)) + 1).tolist(), ordered.num_rows]
    return [ordered.slice(low, high - low) for low, high in itertools.pairwise(edges)]


def _read(layout: SegmentLayout, piece: Piece, whole: pa.Schema) -> pa.Table:
    table = pq.read_table(f"{layout.root}/{piece.path}", partitioning=None)
    constants = {
        "_position": piece.position,
        "_stime": piece.stime,
        "_entry_point": piece.entry_point,
        "_sequence": piece.sequence,
        "_source": piece.source,
    }
    columns = []
    for field in whole:
        if piece.position is not None and field.name in constants:
            columns.append(_constant(constants[field.name], field.type, table.num_rows))
        elif field.name == "_ordinal" and piece.ordinal_base:
            columns.append(pc.add(table[field.name], piece.ordinal_base))
        elif field.name in table.column_names:
            columns.append(table[field.name])
        else:
            default = ChangeType.INSERT.value if field.name == "_change_type" else None
            columns.append(_constant(default, field.type, table.num_rows))
    return pa.table(columns, schema=pa.schema([pa.field(f.name, f.type) for f in whole]))


def _constant(value: object, arrow: pa.DataType, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, arrow), rows)
