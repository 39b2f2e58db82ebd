"""One segment of a log, read by one task: rows in Arrow, with their place in the log if it is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from anabranch.log.reading import ReadPlan
from anabranch.log.references import CHANGES, TIMELESS
from anabranch.log.zeros import unsigned
from anabranch.model.errors import AnabranchError
from anabranch.model.run import ChangeType, LoggedSegment
from anabranch.model.schema import INSTANT
from anabranch.model.stream import CHANGE_TYPE, LEFT_OUT

BATCH_ROWS = 50_000


@dataclass
class Part(InputPartition):  # type: ignore[misc]
    """A segment that a task is to read; small, and sent to it."""

    path: str
    position: int | None  # None: the rows carry their own
    stime: int | None
    entry_point: str | None
    sequence: int | None
    ordinal_base: int
    reference: bool
    first: int  # positions that are wanted, both inclusive
    last: int
    event_time: str = ""
    bounds: tuple[int, int] | None = None
    changes: bool = False  # of a reference: whether its rows have change types
    timeless: str | None = (
        None  # of a reference: "only" the deletions by key, which have no event time, or all but them
    )
    keyed: bool = False


def parts_of(plan: ReadPlan, root: str, first: int, last: int) -> list[Part]:
    """The segments of a plan, each for a task of its own."""
    return [_part(logged, plan, root, first, last) for logged in plan.segments]


def _part(logged: LoggedSegment, plan: ReadPlan, root: str, first: int, last: int) -> Part:
    segment = logged.segment
    local = segment.options.get("local_columns")
    if segment.format != "parquet" or local:
        raise AnabranchError(
            "NOT_SUPPORTED",
            place=f"format('anabranch'), stream {plan.spec.name!r}",
            need="rows in segments, or in Parquet files whose times have a zone",
            got=f"{segment.path}, which was loaded by reference",
            next_step="Read this stream with engine.stream(name).read().",
        )
    bounds = segment.options.get("bounds")
    entry_point, sequence = (None, None) if logged.run_id is None else logged.run_id
    return Part(
        path=segment.path if segment.reference else f"{root}/{segment.path}",
        position=None if logged.compacted else logged.last_position,
        stime=logged.stime,
        entry_point=entry_point,
        sequence=sequence,
        ordinal_base=segment.ordinal_base,
        reference=segment.reference,
        first=first,
        last=last if logged.cut is None else min(last, logged.cut),
        event_time=plan.spec.event_time,
        bounds=None if bounds is None else (bounds[0], bounds[1]),
        changes=not segment.reference or bool(segment.options.get(CHANGES)),
        timeless=segment.options.get(TIMELESS),
        keyed=bool(plan.spec.key),
    )


def read_part(part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a segment, with these columns; those of the log have a name with an underscore."""
    file = pq.ParquetFile(part.path)
    there = set(file.schema_arrow.names)
    if part.reference:  # what somebody's file says of places in a log is not of this one
        there -= LEFT_OUT if part.changes else LEFT_OUT | {CHANGE_TYPE}
    wanted = [name for name in (*names, "_position", "_ordinal", CHANGE_TYPE, part.event_time) if name in there]
    row = 0
    for batch in file.iter_batches(BATCH_ROWS, columns=list(dict.fromkeys(wanted))):
        table = pa.Table.from_batches([batch])
        made = {name: _column(part, table, name, row) for name in names}
        chosen = _chosen(part, table)
        row += table.num_rows
        rows = pa.table(made) if chosen is None else pa.table(made).filter(chosen)
        rows = unsigned(rows) if part.reference else rows
        yield from rows.combine_chunks().to_batches()


def _column(part: Part, table: pa.Table, name: str, row: int) -> Any:
    many = table.num_rows
    if name == "_ordinal":
        within = table[name] if name in table.column_names else pa.array(range(row, row + many), pa.int64())
        return pc.add(pc.cast(within, pa.int64()), part.ordinal_base)
    if name == "_stability":
        return _constant("stable", pa.string(), many)
    if name == "_position" and part.position is not None:
        return _constant(part.position, pa.int64(), many)
    if name in ("_entry_point", "_sequence") and name not in table.column_names:
        kind = pa.string() if name == "_entry_point" else pa.int64()
        return _constant(part.entry_point if name == "_entry_point" else part.sequence, kind, many)
    if name == "_stime":
        known = table[name] if name in table.column_names else _constant(part.stime, pa.int64(), many)
        return pc.cast(pc.cast(known, pa.int64()), pa.timestamp("us")).cast(INSTANT)
    if name in table.column_names:
        column = table[name]
        return pc.fill_null(column, ChangeType.INSERT.value) if name == "_change_type" else column
    default = ChangeType.INSERT.value if name == "_change_type" else None
    return _constant(default, pa.string() if name == "_change_type" else pa.null(), many)


def _chosen(part: Part, table: pa.Table) -> Any:
    """Which rows are wanted; None if all are."""
    if part.bounds is not None or part.timeless is not None:
        return _of_segment(part, table)
    if part.position is None:
        positions = table["_position"]
        return pc.and_(pc.greater_equal(positions, part.first), pc.less_equal(positions, part.last))
    return None


def _of_segment(part: Part, table: pa.Table) -> Any:
    """Which rows of a file belong to a segment of it, and not to another one or to what was set aside."""
    times = pc.cast(pc.cast(table[part.event_time], INSTANT), pa.int64())
    chosen = _constant(True, pa.bool_(), table.num_rows)
    if part.bounds is not None:
        low, high = part.bounds
        chosen = pc.fill_null(pc.and_(pc.greater_equal(times, low), pc.less_equal(times, high)), False)
        if part.changes and part.keyed:
            deletes = pc.fill_null(pc.equal(table[CHANGE_TYPE], ChangeType.DELETE.value), False)
            chosen = pc.or_(chosen, pc.and_(deletes, pc.is_null(times)))
    if part.timeless is not None:
        chosen = pc.and_(chosen, pc.is_null(times) if part.timeless == "only" else pc.is_valid(times))
    return chosen


def _constant(value: object, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows)


def shaped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in exactly the types that Spark has been promised."""
    return pa.RecordBatch.from_arrays([batch.column(f.name).cast(f.type) for f in schema], schema=schema)
