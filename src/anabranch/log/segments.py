"""Writing rows into segments, cut by event-time range.

How a run is cut: if its event times lie within one `span`, it is one segment. Otherwise the newest
`span` of it is kept apart from what is older, so late rows get segments of their own, and the older
part is laid out by aligned intervals of one `span`, neighbours together until they have `least_rows`.
A segment so spans little time or has few rows, and its range in the catalog tells readers to leave it
alone. Deletions by key have no event time: they get segments of their own too, which every reader opens.

The same code runs in the driver, for Arrow data, and inside Spark tasks, for DataFrames.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.log.parquet_facts import int_range, key_range, time_range
from anabranch.log.storage import no_space_is_an_error, sync_directory, sync_file
from anabranch.log.zeros import unsigned
from anabranch.model.run import Role, Segment

SPAN_US = 3_600_000_000
LEAST_ROWS = 10_000
MOST_ROWS = 1_000_000
# Ordinals and positions rise slowly: their deltas pack into almost nothing.
_DELTA_COLUMNS = ("_ordinal", "_position", "_stime")


@dataclass(frozen=True)
class SegmentLayout:
    """Where segments go and how they are cut; small, and sent to Spark tasks."""

    root: str
    directory: str
    event_time: str
    key: str | None = None
    span: int = SPAN_US
    least_rows: int = LEAST_ROWS
    most_rows: int = MOST_ROWS
    row_group: int = MOST_ROWS
    threads: int = 1
    spread: tuple[str, ...] = ()  # the keys by whose hash segments are found, if they are
    cut_parts: bool = True  # whether many rows are cut by that hash


def numbered(table: pa.Table, first: int) -> pa.Table:
    """A table with the place of each row in its run."""
    return table.append_column("_ordinal", pa.array(np.arange(first, first + table.num_rows)))


def write_segments(layout: SegmentLayout, table: pa.Table, role: Role = Role.ROWS) -> list[Segment]:
    """Write a table as synced segments. On an error, no file is left."""
    pieces = cut(unsigned(table), layout)
    if not pieces:
        return []
    written: list[Segment] = []
    try:
        if layout.threads > 1 and len(pieces) > 1:
            with ThreadPoolExecutor(min(layout.threads, len(pieces))) as pool:
                waiting = [pool.submit(_write_one, layout, piece, role) for piece in pieces]
            errors = [done.exception() for done in waiting]
            written += [done.result() for done, error in zip(waiting, errors, strict=True) if error is None]
            failed = next((error for error in errors if error is not None), None)
            if failed is not None:
                raise failed
        else:
            for piece in pieces:
                written.append(_write_one(layout, piece, role))
        sync_directory(os.path.join(layout.root, layout.directory))
    except BaseException:
        remove_files(layout.root, written)
        raise
    return written


def remove_files(root: str, segments: Iterable[Segment]) -> None:
    for segment in segments:
        if not segment.reference:
            try:
                os.unlink(os.path.join(root, segment.path))
            except FileNotFoundError:
                pass


def cut(table: pa.Table, layout: SegmentLayout) -> list[pa.Table]:
    """The pieces into which a table is cut, by event time and then by row count."""
    if table.num_rows == 0:
        return []
    pieces = _cut_by_time(table, layout) if layout.event_time in table.column_names else [table]
    return [
        piece.slice(start, layout.most_rows) for piece in pieces for start in range(0, piece.num_rows, layout.most_rows)
    ]


def _cut_by_time(table: pa.Table, layout: SegmentLayout) -> list[pa.Table]:
    times = pc.cast(table[layout.event_time], pa.int64())
    if times.null_count:
        timeless = pc.is_null(times)
        timed = table.filter(pc.invert(timeless))
        return [table.filter(timeless), *(_cut_by_time(timed, layout) if timed.num_rows else [])]
    ends = pc.min_max(times)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None or high - low <= layout.span:
        return [table]
    is_new = pc.greater(times, high - layout.span)
    return [*_cut_old(table.filter(pc.invert(is_new)), layout), table.filter(is_new)]


def _cut_old(table: pa.Table, layout: SegmentLayout) -> list[pa.Table]:
    """Sorted by interval once, then sliced: the cost does not depend on how many pieces there are."""
    micros = pc.cast(table[layout.event_time], pa.int64()).to_numpy()
    interval = np.floor_divide(micros, layout.span)
    order = np.argsort(interval, kind="stable")
    ordered = table.take(pa.array(order))
    starts = np.flatnonzero(np.diff(interval[order], prepend=interval[order[:1]] - 1))
    pieces: list[pa.Table] = []
    begin = 0
    for end in [*starts[1:].tolist(), table.num_rows]:
        if end - begin >= layout.least_rows or end == table.num_rows:
            pieces.append(ordered.slice(begin, end - begin))
            begin = end
    return pieces


def _write_one(layout: SegmentLayout, table: pa.Table, role: Role) -> Segment:
    name = f"{layout.directory}/{uuid.uuid4().hex}.parquet"
    path = os.path.join(layout.root, name)
    deltas = [c for c in _DELTA_COLUMNS if c in table.column_names]
    try:
        with no_space_is_an_error(path):
            pq.write_table(
                table,
                path,
                use_dictionary=[c for c in table.column_names if c not in deltas] if deltas else True,
                column_encoding=dict.fromkeys(deltas, "DELTA_BINARY_PACKED") or None,
                row_group_size=layout.row_group,
            )
            sync_file(path)
            footer = pq.read_metadata(path)
    except BaseException:
        if os.path.exists(path):
            os.unlink(path)
        raise
    # The header's figures come from the file that was written, not from what we meant to write.
    event_min, event_max = time_range(footer, layout.event_time)
    key_min, key_max = key_range(footer, layout.key) if layout.key else (None, None)
    options = {"positions": int_range(footer, "_position")} if "_position" in table.column_names else {}
    return Segment(
        path=name,
        rows=footer.num_rows,
        size=os.path.getsize(path),
        event_min=event_min,
        event_max=event_max,
        key_min=key_min,
        key_max=key_max,
        role=role,
        options=options,
    )
