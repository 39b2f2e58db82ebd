"""Files into a log by reference.

A look at each file (in the driver for a few, in Spark tasks for many) gives its size, the hash of its
end and, from a Parquet footer, its figures. What a footer does not tell, and everything about text
files, takes one scan of the event-time and required columns, and of the change types. Then the files are segments
like any other, only not ours. Deletions by key, which have no event time, are a segment of their own over the same
file, so that whoever looks for a stretch of event time finds them.
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
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from anabranch.engine.paths import PATH_OF_ROW, literal_path
from anabranch.engine.read import admissible, deletes_by_key, scan_files
from anabranch.engine.reports import Report, collect_reports, raise_reported
from anabranch.engine.session import Session
from anabranch.log.intake import null_value, refused
from anabranch.log.references import CHANGES, TIMELESS, FileFacts, expand, format_of, inspect, unreadable
from anabranch.log.rows import CHANGE_TYPE, check_zone, unknown_change
from anabranch.log.units import UnitOfWork
from anabranch.model.errors import AnabranchError
from anabranch.model.run import ChangeType, Role, Segment
from anabranch.model.stream import LEFT_OUT, StreamSpec, check_columns

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
    if kind == "json":
        _check_names(session.spark, facts, spec)
    if not all(f.complete and _within(f, unit.bounds) for f in facts):
        facts = _scan(session.spark, facts, kind, spec, unit.bounds, place)
    _require_good(facts, unit, place)
    revisions = any(fact.changed for fact in facts)
    unit.add(_segments(facts, kind, unit), revisions=revisions, ordinals=sum(f.rows or 0 for f in facts))


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


def _check_names(spark: SparkSession, facts: Sequence[FileFacts], spec: StreamSpec) -> None:
    """Refuse JSON that has other columns than the stream in any of its lines, or lacks one in all of them."""
    wanted = spec.schema.names
    text = spark.read.text([literal_path(fact.path) for fact in facts])
    names = text.select(F.expr(PATH_OF_ROW).alias("file"), F.explode(F.json_object_keys("value")).alias("name"))
    known = F.col("name").isin(*wanted, CHANGE_TYPE, *LEFT_OUT)
    found = names.groupBy("file").agg(
        F.collect_set(F.when(known, F.col("name"))).alias("known"), F.min(F.when(~known, F.col("name"))).alias("odd")
    )
    for row in found.sort("file").collect():
        here = [*row.known, *([] if row.odd is None else [row.odd])]
        check_columns(here, wanted, f"load {row.file!r} into stream {spec.name!r}")


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
        changes = bool(options.get(CHANGES))
        change = F.col(CHANGE_TYPE) if changes else F.lit(ChangeType.INSERT.value)
        good = admissible(spec, bounds, changes=changes)
        micros = F.unix_micros(F.col(spec.event_time))
        aggregates = [
            F.count("*").alias("rows"),
            F.count_if(~good).alias("bad"),
            F.min(F.when(good, micros)).alias("event_min"),
            F.max(F.when(good, micros)).alias("event_max"),
            F.min(F.when(~good, F.struct(F.coalesce(micros.cast("string"), F.lit("null")), F.to_json(F.struct("*")))))
            .alias("sample"),
            F.count_if(change != ChangeType.INSERT.value).alias("changed"),
            F.min(F.when(~change.isin(*(known.value for known in ChangeType)), change)).alias("odd"),
            F.count_if(deletes_by_key(spec) if changes and spec.key else F.lit(False)).alias("timeless"),
            *(F.count_if(_lacks(name, spec, change)).alias(f"nulls_{name}") for name in sorted(spec.required)),
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


def _lacks(name: str, spec: StreamSpec, change: Column) -> Column:
    """Whether a row has no value where it needs one; a deletion by key needs its key alone."""
    by_key = bool(spec.key) and name not in spec.key
    return F.col(name).isNull() & (change != ChangeType.DELETE.value) if by_key else F.col(name).isNull()


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
    changes = {CHANGES: True} if row["changed"] else {}
    options = {**{name: value for name, value in facts.options.items() if name != CHANGES}, **changes}
    return replace(
        facts,
        bad=row["bad"],
        sample=row["sample"][1] if row["sample"] else None,
        changed=row["changed"],
        timeless=row["timeless"],
        odd=row["odd"],
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


def _require_good(facts: Sequence[FileFacts], unit: UnitOfWork, place: str) -> None:
    odd = sorted(fact.odd for fact in facts if fact.odd is not None)
    if odd:
        raise unknown_change(place, odd[0])
    total = sum(f.rows or 0 for f in facts)
    for name in sorted(unit.spec.required):
        nulls = sum((f.nulls or {}).get(name, 0) for f in facts)
        if nulls:
            raise null_value(unit.spec, name, nulls, total)
    bad = sum(f.bad for f in facts)
    if bad and unit.on_bad_rows == "refuse":
        sample = [f"{f.path}: {f.sample}" for f in facts if f.sample]
        raise refused(unit.spec, bad, total, sample[:3], unit.bounds)


def _segments(facts: Sequence[FileFacts], kind: str, unit: UnitOfWork) -> list[Segment]:
    segments = []
    ordinal = unit.next_ordinal
    for fact in facts:
        options = {**fact.options, **({"bounds": list(unit.bounds)} if fact.bad else {})}
        good = Segment(
            path=fact.path,
            rows=(fact.rows or 0) - fact.bad - fact.timeless,
            size=fact.size,
            event_min=fact.event_min,
            event_max=fact.event_max,
            key_min=fact.key_min,
            key_max=fact.key_max,
            format=kind,
            reference=True,
            footer=fact.footer,
            options=options | ({TIMELESS: "out"} if fact.timeless else {}),
            ordinal_base=ordinal,
        )
        ordinal += fact.rows or 0
        segments.append(good)
        again = replace(good, event_min=None, event_max=None, options=options)
        if fact.timeless:
            segments.append(replace(again, rows=fact.timeless, options=options | {TIMELESS: "only"}))
        if fact.bad:
            segments.append(replace(again, rows=fact.bad, role=Role.QUARANTINE))
    return segments
