"""Spark DataFrames into segments, written by the executors.

Each task takes its partition as Arrow, checks event times and nulls, writes and syncs its own segments
and returns one small report per segment; no row passes through the driver and nothing is exchanged. A
task that Spark tries twice leaves files that no report names: they are garbage of the unit's intent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anabranch.engine.read import spark_schema
from anabranch.engine.reports import Report, chunks, collect_reports, raise_reported
from anabranch.log.intake import bad_event_time, null_value, refused, samples, with_reason
from anabranch.log.rows import (
    CHANGE_TYPE,
    check_zone,
    known_changes,
    odd_changes,
    unknown_change,
    wrong_change_column,
)
from anabranch.log.segments import SegmentLayout, numbered, remove_files, write_segments
from anabranch.log.units import UnitOfWork
from anabranch.model.errors import AnabranchError
from anabranch.model.run import ChangeType, Role, Segment
from anabranch.model.schema import Schema, widens
from anabranch.model.stream import StreamSpec, check_columns

# Room for the rows of one partition in the ordinals of a run.
_PARTITION_SHIFT = 33


def write_dataframe(frame: DataFrame, unit: UnitOfWork, *, time_zone: str | None = None) -> None:
    """Append a DataFrame to a unit of work; times without a zone are read in `time_zone`."""
    check_zone(time_zone, f"append to stream {unit.spec.name!r}")
    prepared = _prepared(frame, unit.spec, time_zone)
    layout = replace(unit.layout(), threads=1)  # Spark has given the other cores to other tasks
    task = WriteTask(layout, unit.spec, unit.bounds, unit.on_bad_rows, unit.next_ordinal)
    add_written(collect_reports(prepared, task.reports), unit, revisions=CHANGE_TYPE in prepared.columns)


def add_written(reports: list[Report], unit: UnitOfWork, *, revisions: bool) -> None:
    """Add to a unit of work what tasks have written under its intent; rows that it does not take are refused."""
    segments = [Segment.from_json(report["segment"]) for report in reports if "segment" in report]
    try:
        raise_reported(reports)
        _refuse_bad(reports, unit)
        partitions = max((report["partition"] for report in reports), default=-1) + 1
        unit.add(segments, revisions=revisions, ordinals=partitions << _PARTITION_SHIFT)
    except BaseException:
        remove_files(unit.layout().root, segments)
        raise


def check_frame(frame: DataFrame, spec: StreamSpec, *, time_zone: str | None = None) -> None:
    """Refuse a DataFrame whose columns a stream does not take; nothing is read."""
    check_zone(time_zone, f"append to stream {spec.name!r}")
    check_types(frame.schema, spec, time_zone)


def revise_with(frame: DataFrame, unit: UnitOfWork, change: ChangeType) -> None:
    """Append a DataFrame of revisions by key: whole rows that replace, or keys to delete."""
    spec = unit.keyed(change)
    place = f"{change} on stream {spec.name!r}"
    wanted = spec.key if change is ChangeType.DELETE else spec.schema.names
    check_columns(frame.columns, wanted, place)
    targets = spark_schema(spec.schema)
    rest = [F.lit(None).cast(f.dataType).alias(f.name) for f in targets if f.name not in wanted]
    write_dataframe(frame.select(*wanted, *rest, F.lit(change.value).alias(CHANGE_TYPE)), unit)


def _refuse_bad(reports: list[Report], unit: UnitOfWork) -> None:
    total = sum(report.get("seen", 0) for report in reports)
    for column in sorted(unit.spec.required):
        nulls = sum(report.get("nulls", {}).get(column, 0) for report in reports)
        if nulls:
            raise null_value(unit.spec, column, nulls, total)
    bad = sum(report.get("bad", 0) for report in reports)
    if bad and unit.on_bad_rows == "refuse":
        sample = [line for report in reports for line in report.get("sample", [])]
        raise refused(unit.spec, bad, total, sample[:3], unit.bounds)
    odd = sorted({word for report in reports for word in report.get("odd_changes", [])})
    if odd:
        raise unknown_change(f"append to stream {unit.spec.name!r}", odd[0])


def check_types(given: T.StructType, spec: StreamSpec, time_zone: str | None = None) -> list[str]:
    """Refuse columns that a stream does not take, and types that would have to be guessed.

    The answer names the columns whose times are to be read in `time_zone`.
    """
    place = f"append to stream {spec.name!r}"
    check_columns(given.names, spec.schema.names, place)
    if CHANGE_TYPE in given.names and not isinstance(given[CHANGE_TYPE].dataType, T.StringType | T.NullType):
        raise wrong_change_column(place, given[CHANGE_TYPE].dataType.simpleString().upper())
    local = []
    for field in spec.schema:
        have = Schema.parse({"c": given[field.name].dataType.simpleString()}, f"{place}, column {field.name!r}")
        kind = have.fields[0].type
        if (kind, field.type) == ("TIMESTAMP_NTZ", "TIMESTAMP") and time_zone:
            local.append(field.name)
        elif kind != field.type and not widens(kind, field.type):
            zone = {kind, field.type} == {"TIMESTAMP", "TIMESTAMP_NTZ"}
            raise AnabranchError(
                "TIME_ZONE" if zone else "WRONG_TYPE",
                place=f"{place}, column {field.name!r}",
                need=field.type,
                got=kind,
                next_step="Pass time_zone= to say in which zone its times are."
                if zone
                else "Cast the column in the DataFrame first; nothing was written.",
            )
    return local


def _prepared(frame: DataFrame, spec: StreamSpec, time_zone: str | None) -> DataFrame:
    """Exactly the stream's columns, in its types."""
    local = check_types(frame.schema, spec, time_zone)
    columns = []
    for target in spark_schema(spec.schema):
        column = F.col(target.name)
        if target.name in local:
            # Moved to the session's zone, in which the cast then reads it: whatever that zone is.
            column = F.convert_timezone(F.lit(time_zone), F.current_timezone(), column)
        columns.append(column.cast(target.dataType).alias(target.name))
    if CHANGE_TYPE in frame.columns:
        columns.append(F.col(CHANGE_TYPE).cast("string"))
    return frame.select(*columns)


@dataclass(frozen=True)
class WriteTask:
    """What one executor task does; small, and sent to it."""

    layout: SegmentLayout
    spec: StreamSpec
    bounds: tuple[int, int]
    on_bad_rows: str
    first_ordinal: int

    def reports(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Report]:
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        ordinal = self.first_ordinal + (partition << _PARTITION_SHIFT)
        for chunk in chunks(batches, self.layout.most_rows):
            table = self._typed(chunk)
            for report in self._write(table, ordinal):
                yield {**report, "partition": partition}
            ordinal += table.num_rows

    def _typed(self, table: pa.Table) -> pa.Table:
        """The stream's own types: Arrow from Spark carries the session's time zone."""
        fields = [pa.field(f.name, f.arrow.type) for f in self.spec.schema]
        if CHANGE_TYPE in table.column_names:
            fields.append(pa.field(CHANGE_TYPE, pa.string()))
        typed = table.select([field.name for field in fields]).cast(pa.schema(fields))
        if CHANGE_TYPE in table.column_names:
            typed = typed.set_column(len(fields) - 1, fields[-1], known_changes(typed[CHANGE_TYPE]))
        return typed

    def _write(self, table: pa.Table, ordinal: int) -> list[Report]:
        report: Report = {"seen": table.num_rows, "nulls": self._nulls(table)}
        if CHANGE_TYPE in table.column_names:
            report["odd_changes"] = odd_changes(table[CHANGE_TYPE])
        table = numbered(table, ordinal)
        bad = bad_event_time(table, self.spec, self.bounds)
        report["bad"] = pc.sum(bad).as_py() or 0
        written = []
        if report["bad"]:
            aside = table.filter(bad).drop_columns(["_ordinal"])
            report["sample"] = samples(aside, self.spec)
            table = table.filter(pc.invert(bad))
            if self.on_bad_rows == "quarantine":
                written += write_segments(self.layout, with_reason(aside, self.spec), Role.QUARANTINE)
        written += write_segments(self.layout, table)
        return [report, *({"segment": segment.to_json()} for segment in written)]

    def _nulls(self, table: pa.Table) -> dict[str, int]:
        counts = {}
        for name in self.spec.required:
            nulls = pc.is_null(table[name])
            if self.spec.key and name not in self.spec.key and CHANGE_TYPE in table.column_names:
                nulls = pc.and_(nulls, pc.not_equal(table[CHANGE_TYPE], ChangeType.DELETE.value))
            counts[name] = pc.sum(nulls).as_py() or 0
        return counts
