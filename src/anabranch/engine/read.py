"""From a read plan to a DataFrame.

All segments that we wrote are one scan, however they came to be: plain ones lack the columns that
compacted ones have, and Spark fills those with nulls. Referenced files are a scan per format and
options. The columns of the log itself (`_position`, `_ordinal`, `_stime`, `_entry_point`, `_sequence`,
`_source`, `_change_type`, `_stability`) are added only when asked for.

Ordinals order the rows of a run and never change. In referenced files they are the row's index in its
file, after the rows of the files before it. Spark knows the index in Parquet; in text files it is counted,
which takes an exchange, and only when it is asked for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from anabranch.diagram.expression import literal
from anabranch.engine.paths import PATH_OF_ROW, literal_path
from anabranch.engine.relation import quoted
from anabranch.engine.zeros import without_signs
from anabranch.log.intake import ABSURD_EVENT_TIME, NO_EVENT_TIME
from anabranch.log.reading import ReadPlan
from anabranch.log.references import CHANGES, TIMELESS
from anabranch.log.rewrite import CARRIED
from anabranch.log.rows import CHANGE_TYPE
from anabranch.model.run import ChangeType, LoggedSegment
from anabranch.model.schema import Schema
from anabranch.model.stream import LOG_COLUMNS, StreamSpec
from anabranch.model.time import to_datetime

# So many files are told apart in the text of a plan.
_FEW = 32


def spark_schema(schema: Schema) -> T.StructType:
    """A stream's columns as Spark declares them."""
    return from_arrow_schema(schema.arrow, prefer_timestamp_ntz=True)


def dataframe(spark: SparkSession, plan: ReadPlan, root: Path, *, log_columns: bool = False) -> DataFrame:
    """The rows of a plan."""
    own = [s for s in plan.segments if not s.segment.reference]
    frames = []
    for cut in dict.fromkeys(s.cut for s in own):
        frames.append(_own(spark, plan, [s for s in own if s.cut == cut], root, log_columns, cut))
    for group in _alike([s for s in plan.segments if s.segment.reference]):
        frames.append(_referenced(spark, plan.spec, group, log_columns))
    names = [*plan.spec.schema.names, *(LOG_COLUMNS if log_columns else ())]
    if not frames:
        return spark.createDataFrame([], _result_schema(plan.spec)).select(*names)
    united = reduce(DataFrame.unionByName, [frame.select(*names) for frame in frames])
    return united.where(_in_time(plan, log_columns)) if _bounded(plan) else united


def quarantined(spark: SparkSession, plan: ReadPlan, root: Path) -> DataFrame:
    """Rows that were set aside on entry, with the reason and their run, from a plan over the quarantine role."""
    schema = T.StructType([*spark_schema(plan.spec.schema), T.StructField("_reason", T.StringType())])
    own = {str(root / s.segment.path): s for s in plan.segments if not s.segment.reference}
    names = [*schema.names, "_position", "_source"]
    empty = spark.createDataFrame([], schema)
    frames = [
        empty.select("*", F.lit(None).cast("bigint").alias("_position"), F.lit(None).cast("string").alias("_source"))
    ]
    if own:
        frame = spark.read.schema(schema).parquet(*map(literal_path, own))
        frames.append(_with_facts(spark, frame, schema.names, own).select(*names))
    for group in _alike([s for s in plan.segments if s.segment.reference]):
        frame = _scan_references(spark, plan.spec, group)
        time = F.col(plan.spec.event_time)
        reason = F.when(time.isNull(), NO_EVENT_TIME).otherwise(ABSURD_EVENT_TIME)
        options = group[0].segment.options
        bad = frame.where(~admissible(plan.spec, options["bounds"], changes=bool(options.get(CHANGES))))
        located = _with_facts(spark, bad, plan.spec.schema.names, {s.segment.path: s for s in group})
        frames.append(located.withColumn("_reason", reason).select(*names))
    return reduce(DataFrame.unionByName, frames)


def admissible(spec: StreamSpec, bounds: Sequence[int], *, changes: bool) -> Column:
    """Whether a row of a referenced file has an event time that can be meant, or is a deletion by key."""
    micros = F.unix_micros(F.col(spec.event_time))
    inside = F.coalesce(micros.between(bounds[0], bounds[1]), F.lit(False))
    return inside | deletes_by_key(spec) if changes and spec.key else inside


def deletes_by_key(spec: StreamSpec) -> Column:
    return (F.col(CHANGE_TYPE) == ChangeType.DELETE.value) & F.col(spec.event_time).isNull()


def _chosen(frame: DataFrame, spec: StreamSpec, options: Mapping[str, Any]) -> DataFrame:
    """The rows of a file that a segment has: neither what was set aside, nor what another segment has of it."""
    if bounds := options.get("bounds"):
        frame = frame.where(admissible(spec, bounds, changes=bool(options.get(CHANGES))))
    if timeless := options.get(TIMELESS):
        time = F.col(spec.event_time)
        frame = frame.where(time.isNull() if timeless == "only" else time.isNotNull())
    return frame


def _result_schema(spec: StreamSpec) -> T.StructType:
    whole = dict.fromkeys(("_position", "_ordinal", "_sequence"), T.LongType())
    types: Mapping[str, T.DataType] = {**whole, "_stime": T.TimestampType()}
    extra = [T.StructField(name, types.get(name, T.StringType())) for name in LOG_COLUMNS]
    return T.StructType([*spark_schema(spec.schema), *extra])


def _bounded(plan: ReadPlan) -> bool:
    return plan.range.from_time is not None or plan.range.to_time is not None


def _in_time(plan: ReadPlan, log_columns: bool) -> Column:
    time = F.col(plan.spec.event_time)
    inside = F.lit(True)
    if plan.range.from_time is not None:
        inside = inside & (time >= F.lit(to_datetime(plan.range.from_time)))
    if plan.range.to_time is not None:
        inside = inside & (time < F.lit(to_datetime(plan.range.to_time)))
    # Deletions by key have no event time and may concern any stretch of it; who cannot tell them apart gets none.
    return inside | time.isNull() if plan.spec.key and log_columns else inside


def _own(
    spark: SparkSession,
    plan: ReadPlan,
    segments: Sequence[LoggedSegment],
    root: Path,
    log_columns: bool,
    cut: int | None,
) -> DataFrame:
    schema = T.StructType([*spark_schema(plan.spec.schema), *from_arrow_schema(CARRIED)])
    frame = spark.read.schema(schema).parquet(*(literal_path(str(root / s.segment.path)) for s in segments))
    if plan.filters_positions:
        last = "" if plan.range.last_position is None else f" AND _position <= {plan.range.last_position}"
        frame = frame.where(f"_position IS NULL OR (_position >= {plan.range.first_position or 1}{last})")
    if cut is not None:
        frame = frame.where(f"_position <= {cut}")
    if not log_columns:
        return frame
    located = _with_facts(spark, frame, schema.names, {str(root / s.segment.path): s for s in segments})
    # Derived runs number their rows by partition; the catalog knows what each one begins with.
    made = {
        "_ordinal": "_ordinal + _of_file_ordinal",
        "_change_type": f"COALESCE(_change_type, '{ChangeType.INSERT}')",
    }
    names = [*plan.spec.schema.names, *LOG_COLUMNS]
    return located.selectExpr(*(f"{made[n]} AS {n}" if n in made else quoted(n) for n in names))


def _with_facts(
    spark: SparkSession, frame: DataFrame, columns: Sequence[str], segments: Mapping[str, LoggedSegment]
) -> DataFrame:
    """Add what the catalog knows of each file, by the file's path."""
    found = frame.selectExpr("*", f"{PATH_OF_ROW} AS _file")
    if len(segments) <= _FEW:  # in the text itself: a join would be a job of its own
        known = ", ".join(f"{literal(path)}, {_fact(logged)}" for path, logged in segments.items())
        located = found.selectExpr("*", f"ELEMENT_AT(MAP({known}), _file) AS _fact")
    else:
        located = found.join(F.broadcast(_facts(spark, segments)), "_file", "left")
    made = {name: f"_fact.{name[1:]}" for name in _OF_RUN}
    made = {name: f"COALESCE({name}, {sql})" if name in columns else sql for name, sql in made.items()}
    made["_stime"] = f"TIMESTAMP_MICROS({made['_stime']})"
    # A file that is not found here would give rows without a place in the log: never quietly.
    made["_stability"] = "COALESCE(_fact.stability, RAISE_ERROR(CONCAT('no segment is known at ', _file)))"
    made["_of_file_ordinal"] = "_fact.ordinal"
    kept = [quoted(name) for name in columns if name not in made]
    return located.selectExpr(*kept, *(f"{sql} AS {name}" for name, sql in made.items()))


# What the catalog knows of a file: of its run, or nothing where its rows carry that themselves.
_FACTS = {
    "position": "BIGINT", "stime": "BIGINT", "entry_point": "STRING", "sequence": "BIGINT", "source": "STRING",
    "stability": "STRING", "ordinal": "BIGINT",
}  # fmt: skip
_OF_RUN = ("_position", "_stime", "_entry_point", "_sequence", "_source")


def _values(logged: LoggedSegment) -> tuple[Any, ...]:
    position = None if logged.compacted else logged.last_position
    entry_point, sequence = (None, None) if logged.run_id is None else logged.run_id
    stands = str(logged.stability), logged.segment.ordinal_base
    return position, logged.stime, entry_point, sequence, logged.source, *stands


def _fact(logged: LoggedSegment) -> str:
    """The same as SQL."""
    values = zip(_FACTS.items(), _values(logged), strict=True)
    found = ", ".join(f"'{name}', {_constant(value, kind)}" for (name, kind), value in values)
    return f"NAMED_STRUCT({found})"


def _constant(value: Any, kind: str) -> str:
    if value is None:
        return f"CAST(NULL AS {kind})"
    return literal(value) if kind == "STRING" else f"{value}L"


def _facts(spark: SparkSession, segments: Mapping[str, LoggedSegment]) -> DataFrame:
    """The same of many files, as a table."""
    fact = ", ".join(f"{name}: {kind}" for name, kind in _FACTS.items())
    rows = [(path, _values(logged)) for path, logged in segments.items()]
    return spark.createDataFrame(rows, f"_file STRING, _fact STRUCT<{fact}>")


def _alike(segments: Sequence[LoggedSegment]) -> list[list[LoggedSegment]]:
    """References that one scan can read: the same format, the same options, no file twice."""
    groups: dict[str, list[LoggedSegment]] = {}
    times_seen: Counter[str] = Counter()
    for logged in segments:
        segment = logged.segment
        options = json.dumps([segment.format, dict(segment.options), times_seen[segment.path]], sort_keys=True)
        times_seen[segment.path] += 1
        groups.setdefault(options, []).append(logged)
    return list(groups.values())


def scan_files(
    spark: SparkSession, spec: StreamSpec, file_format: str, options: Mapping[str, object], paths: Sequence[str]
) -> DataFrame:
    """Referenced files of one kind, as Spark reads them, strictly; with their change types where they have any."""
    frame = _scanned(spark, spec, file_format, options, paths)
    if not options.get(CHANGES):
        return frame
    return frame.withColumn(CHANGE_TYPE, F.coalesce(F.col(CHANGE_TYPE), F.lit(ChangeType.INSERT.value)))


def _scanned(
    spark: SparkSession, spec: StreamSpec, file_format: str, options: Mapping[str, object], paths: Sequence[str]
) -> DataFrame:
    reader = spark.read
    paths = [literal_path(path) for path in paths]
    zone = options.get("time_zone")
    schema = spark_schema(spec.schema)
    if options.get(CHANGES):
        schema = schema.add(CHANGE_TYPE, T.StringType())
    if file_format == "parquet":
        local = options.get("local_columns", ())
        assert isinstance(local, Sequence)
        wall_clock = T.TimestampNTZType()
        schema = T.StructType([T.StructField(f.name, wall_clock) if f.name in local else f for f in schema])
        frame = reader.schema(schema).parquet(*paths)
        for name in local:
            utc = F.convert_timezone(F.lit(str(zone)), F.lit("UTC"), F.col(name))
            frame = frame.withColumn(name, utc.cast("timestamp"))
        return frame
    reader = reader.option("mode", "FAILFAST")
    if zone:
        reader = reader.option("timeZone", str(zone))
    for name, value in options.items():
        if name not in ("columns", "bounds", "time_zone", CHANGES, TIMELESS):
            reader = reader.option(name, str(value))
    if file_format == "json":
        return reader.schema(schema).json(paths)
    columns = options["columns"]
    assert isinstance(columns, Sequence)
    known = {f.name: f for f in schema}
    ordered = T.StructType([known.get(c, T.StructField(c, T.StringType())) for c in columns])
    return reader.schema(ordered).option("header", "true").csv(paths)


def _scan_references(spark: SparkSession, spec: StreamSpec, group: Sequence[LoggedSegment]) -> DataFrame:
    first = group[0].segment
    frame = scan_files(spark, spec, first.format, first.options, [s.segment.path for s in group])
    return without_signs(frame, spark_schema(spec.schema))


def _referenced(spark: SparkSession, spec: StreamSpec, group: Sequence[LoggedSegment], log_columns: bool) -> DataFrame:
    frame = _scan_references(spark, spec, group)
    options = group[0].segment.options
    if not log_columns:
        return _chosen(frame, spec, options)
    # Rows are counted before any of them is left out.
    if group[0].segment.format == "parquet":
        frame = frame.select("*", "_metadata", F.col("_metadata.row_index").alias("_row"))
    else:
        # A task reads its splits in order: block by block, and row by row within one.
        frame = frame.select("*", "_metadata", F.monotonically_increasing_id().alias("_order"))
        in_file = Window.partitionBy("_metadata.file_path").orderBy("_metadata.file_block_start", "_order")
        frame = frame.withColumn("_row", F.row_number().over(in_file) - 1)
    frame = _chosen(frame, spec, options)
    if not options.get(CHANGES):
        frame = frame.withColumn(CHANGE_TYPE, F.lit(ChangeType.INSERT.value))
    columns = [*spec.schema.names, "_row", "_change_type"]
    located = _with_facts(spark, frame, columns, {s.segment.path: s for s in group})
    return located.withColumn("_ordinal", F.col("_of_file_ordinal") + F.col("_row"))
