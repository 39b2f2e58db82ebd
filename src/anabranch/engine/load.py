"""Files into a log by reference.

A look at each file (in the driver for a few, in Spark tasks for many) gives its size, the hash of its
end and, from a Parquet footer, its figures. What a footer does not tell, and everything about text
files, takes one scan of the event-time and required columns. Then the files are segments like any
other, only not ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from anabranch.engine.paths import PATH_OF_ROW
from anabranch.engine.read import admissible, scan_files
from anabranch.engine.reports import Report, collect_reports, raise_reported
from anabranch.engine.session import Session
from anabranch.log.intake import null_value, refused
from anabranch.log.references import FileFacts, expand, format_of, inspect, unreadable
from anabranch.log.rows import check_zone
from anabranch.log.units import UnitOfWork
from anabranch.model.errors import AnabranchError
from anabranch.model.run import Role, Segment
from anabranch.model.stream import StreamSpec

_FEW = 64
_READ_OPTIONS = {"csv": ("sep", "quote", "escape", "encoding", "nullValue", "timestampFormat", "dateFormat"),
                 "json": ("encoding", "timestampFormat", "dateFormat"), "parquet": ()}  # fmt: skip


def load_files(
    session: Session,
    unit: UnitOfWork,
    paths: Any,
    *,
    file_format: str | None = None,
    time_zone: str | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Add files to a unit of work by reference: all of them or none."""
    spec = unit.spec
    place = f"load into stream {spec.name!r}"
    files = expand(paths, place)
    formats = {file_format or format_of(path, place) for path in files}
    if len(formats) > 1:
        raise _bad_argument(place, "files of one format in a call", ", ".join(sorted(formats)), "Load them separately.")
    kind = formats.pop()
    read_options = _checked_options(kind, options or {}, time_zone, place)
    facts = _inspect_all(session, files, kind, spec, read_options)
    if not all(f.complete and _within(f, unit.bounds) for f in facts):
        facts = _scan(session.spark, facts, kind, spec, unit.bounds, place)
    _require_good(facts, unit)
    unit.add(_segments(facts, kind, unit), ordinals=sum(f.rows or 0 for f in facts))


def _checked_options(kind: str, options: Mapping[str, str], time_zone: str | None, place: str) -> dict[str, Any]:
    if kind not in _READ_OPTIONS:
        raise _bad_argument(f"{place}, format=", "'parquet', 'json' or 'csv'", repr(kind), "Choose one of them.")
    unknown = [name for name in options if name not in _READ_OPTIONS[kind]]
    if unknown:
        raise _bad_argument(
            f"{place}, options=",
            f"options among {', '.join(_READ_OPTIONS[kind]) or 'none'} for {kind}",
            ", ".join(unknown),
            "Read the files with Spark and append() the DataFrame if they need other options.",
        )
    checked: dict[str, Any] = dict(options)
    if time_zone is not None:
        check_zone(time_zone, place)
        checked["time_zone"] = time_zone
    return checked


def _bad_argument(place: str, need: str, got: str, next_step: str) -> AnabranchError:
    return AnabranchError("BAD_ARGUMENT", place=place, need=need, got=got, next_step=next_step)


def _inspect_all(
    session: Session, files: Sequence[str], kind: str, spec: StreamSpec, options: Mapping[str, Any]
) -> list[FileFacts]:
    look = _Look(kind, spec, dict(options))
    if len(files) <= _FEW:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(look.at, files))
    frame = session.spark.createDataFrame([(i, path) for i, path in enumerate(files)], "n INT, path STRING")
    reports = collect_reports(frame.repartition(min(len(files) // _FEW + 1, 1000)), look.reports)
    raise_reported(reports)
    found = {report["n"]: report["facts"] for report in reports}
    return [FileFacts(**found[n]) for n in range(len(files))]


@dataclass(frozen=True)
class _Look:
    """A look at files; small, and sent to tasks."""

    kind: str
    spec: StreamSpec
    options: dict[str, Any]

    def at(self, path: str) -> FileFacts:
        return inspect(path, self.kind, self.spec, self.options)

    def reports(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Report]:
        for batch in batches:
            for number, path in zip(batch["n"].to_pylist(), batch["path"].to_pylist(), strict=True):
                yield {"n": number, "facts": asdict(self.at(path))}


def _within(facts: FileFacts, bounds: tuple[int, int]) -> bool:
    """Whether the footer alone shows that every event time can be meant."""
    if facts.rows == 0:
        return True
    if facts.event_min is None or facts.event_max is None:
        return False
    return bounds[0] <= facts.event_min and facts.event_max <= bounds[1] and not any((facts.nulls or {}).values())


def _scan(
    spark: SparkSession,
    facts: Sequence[FileFacts],
    kind: str,
    spec: StreamSpec,
    bounds: tuple[int, int],
    place: str,
) -> list[FileFacts]:
    """Count, and find ranges and bad rows, file by file: one aggregation over few columns."""
    figures: dict[str, dict[str, Any]] = {}
    for options, group in _by_options(facts):
        frame = scan_files(spark, spec, kind, options, [f.path for f in group])
        good = admissible(spec, bounds)
        micros = F.unix_micros(F.col(spec.event_time))
        aggregates = [
            F.count("*").alias("rows"),
            F.count_if(~good).alias("bad"),
            F.min(F.when(good, micros)).alias("event_min"),
            F.max(F.when(good, micros)).alias("event_max"),
            F.min(F.when(~good, F.struct(F.coalesce(micros.cast("string"), F.lit("null")), F.to_json(F.struct("*")))))
            .alias("sample"),
            *(F.count_if(F.col(name).isNull()).alias(f"nulls_{name}") for name in sorted(spec.required)),
        ]  # fmt: skip
        try:
            rows = frame.groupBy(F.expr(PATH_OF_ROW).alias("file")).agg(*aggregates).collect()
        except (PySparkException, Py4JError) as error:
            raise unreadable(place, f"{kind} files that fit the schema ({spec.schema})", _cause(error),
                             "Correct the files or the format; nothing was committed.") from error  # fmt: skip
        figures.update({row.file: row.asDict() for row in rows})
    strangers = set(figures) - {f.path for f in facts}
    assert not strangers, f"Spark spells the path of a file otherwise than we do: {strangers}"
    return [_with_figures(f, figures.get(f.path), spec) for f in facts]


def _by_options(facts: Sequence[FileFacts]) -> list[tuple[Mapping[str, Any], list[FileFacts]]]:
    groups: dict[str, list[FileFacts]] = {}
    for fact in facts:
        groups.setdefault(json.dumps(dict(fact.options), sort_keys=True), []).append(fact)
    return [(json.loads(options), group) for options, group in groups.items()]


def _with_figures(facts: FileFacts, row: dict[str, Any] | None, spec: StreamSpec) -> FileFacts:
    if row is None:  # a file without rows is in no group
        assert not facts.rows, f"{facts.path} has {facts.rows} rows, and Spark has read none"
        return replace(facts, rows=0, nulls={})
    nulls = {name: row[f"nulls_{name}"] for name in spec.required}
    options = {**facts.options, "bad": row["bad"], "sample": row["sample"][1] if row["sample"] else None}
    return replace(
        facts,
        rows=row["rows"],
        nulls=nulls,
        event_min=row["event_min"],
        event_max=row["event_max"],
        options=options,
    )


def _cause(error: Exception) -> str:
    """The line of Spark's message that says what was wrong with the file."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Caused by" in line or "[" in line[:2]]
    line = telling[-1] if telling else lines[0]
    # Without Java's class names and SQL states, which say nothing about the file.
    return re.sub(r"^(Caused by: )?([\w.$]+(Exception|Error): )*", "", line).partition(" SQLSTATE")[0][:400]


def _require_good(facts: Sequence[FileFacts], unit: UnitOfWork) -> None:
    total = sum(f.rows or 0 for f in facts)
    for name in sorted(unit.spec.required):
        nulls = sum((f.nulls or {}).get(name, 0) for f in facts)
        if nulls:
            raise null_value(unit.spec, name, nulls, total)
    bad = sum(f.options.get("bad", 0) for f in facts)
    if bad and unit.on_bad_rows == "refuse":
        sample = [f"{f.path}: {f.options['sample']}" for f in facts if f.options.get("sample")]
        raise refused(unit.spec, bad, total, sample[:3], unit.bounds)


def _segments(facts: Sequence[FileFacts], kind: str, unit: UnitOfWork) -> list[Segment]:
    segments = []
    ordinal = unit.next_ordinal
    for fact in facts:
        bad = fact.options.get("bad", 0)
        options = {name: value for name, value in fact.options.items() if name not in ("bad", "sample")}
        if bad:
            options["bounds"] = list(unit.bounds)
        good = Segment(
            path=fact.path,
            rows=(fact.rows or 0) - bad,
            size=fact.size,
            event_min=fact.event_min,
            event_max=fact.event_max,
            key_min=fact.key_min,
            key_max=fact.key_max,
            format=kind,
            reference=True,
            footer=fact.footer,
            options=options,
            ordinal_base=ordinal,
        )
        ordinal += fact.rows or 0
        segments.append(good)
        if bad:
            segments.append(replace(good, rows=bad, role=Role.QUARANTINE, event_min=None, event_max=None))
    return segments
