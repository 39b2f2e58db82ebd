"""Files taken by reference: not copied, but held to what they were.

A reference is a file that is already immutable and replayable. The catalog keeps its size and a hash
of its end (the whole Parquet footer, or the last bytes of a text file); both are checked on each read.

What a file may have in its columns is what rows may have that are appended (`model.stream.check_columns`). A file whose
`_change_type` tells of anything but insertions is marked as such, and read with it from then on.
"""

from __future__ import annotations

import csv
import glob
import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.log.parquet_facts import key_range, null_count, nulls_and_range
from anabranch.log.rows import CHANGE_TYPE, wrong_change_column
from anabranch.log.storage import plain_path
from anabranch.model.errors import AnabranchError
from anabranch.model.run import LoggedSegment, Segment
from anabranch.model.schema import type_name, widens
from anabranch.model.stream import StreamSpec, check_columns

_MAGIC = b"PAR1"
_TEXT_END = 65_536
_TEXT_HEAD = 65_536
_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
}
_COMPRESSED = (".gz", ".bz2", ".zst")
# What a sink has written of one bucket, or of one run: a sub-directory each, which must be read in their order.
_UNIT = re.compile(r"_(?:bucket|position)=(\d+)")
# How a segment of references is read, beside the options of the reader: marked here, and never passed to Spark.
CHANGES, TIMELESS = "changes", "timeless"


@dataclass(frozen=True)
class FileFacts:
    """What one look at a file tells. What only a scan can tell is None."""

    path: str
    size: int
    footer: str
    rows: int | None = None
    nulls: Mapping[str, int] | None = None
    event_min: int | None = None
    event_max: int | None = None
    key_min: str | None = None
    key_max: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    bad: int = 0  # rows whose event time cannot be meant
    sample: str | None = None  # one of them
    changed: int = 0  # rows that are anything but insertions
    timeless: int = 0  # of those, deletions by key, which have no event time
    odd: str | None = None  # a change type that nobody understands

    @property
    def complete(self) -> bool:
        return self.rows is not None and self.nulls is not None


def expand(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], place: str) -> list[str]:
    """The files that paths, directories and patterns stand for, in a fixed order."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[str] = []
    for item in given:
        text = os.fspath(item).removeprefix("file://")
        if "://" in text:
            raise AnabranchError(
                "NOT_SUPPORTED",
                place=place,
                need="files on a file system that this machine mounts",
                got=repr(text),
                next_step="Read it with Spark and append() the DataFrame.",
            )
        here = Path(text).expanduser()
        if here.is_dir():
            matches = [str(p) for p in here.iterdir()]
            matches += [str(p) for unit in here.iterdir() if _UNIT.fullmatch(unit.name) for p in unit.iterdir()]
        else:
            matches = [str(here)] if here.is_file() else glob.glob(str(here))
        matches.sort(key=in_order)
        files = [plain_path(m) for m in matches if os.path.isfile(m) and not os.path.basename(m).startswith((".", "_"))]
        if not files:
            raise unreadable(place, "at least one file", f"nothing at {text!r}")
        odd = [file for file in files if ":" in file]
        if odd:
            raise unreadable(place, "file names without a colon, which Spark cannot read", repr(odd[0]), "Rename it.")
        found += files
    return list(dict.fromkeys(found))


def in_order(path: str) -> str:
    """By what paths are sorted: by name, but bucket 9 of a sink comes before its bucket 10."""
    return _UNIT.sub(lambda unit: f"{unit[1]:0>20}", path)


def unit_of(name: str) -> bool:
    """Whether a directory is what a sink has written of one bucket, or of one run."""
    return _UNIT.fullmatch(name) is not None


def format_of(path: str, place: str) -> str:
    name = path
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    known = _FORMATS.get(os.path.splitext(name)[1].lower())
    if known is None:
        need = "a name ending in .parquet, .json, .jsonl, .ndjson or .csv, perhaps compressed"
        raise unreadable(place, need, repr(path), "Say what it is with format='parquet', 'json' or 'csv'.")
    return known


def inspect(path: str, file_format: str, spec: StreamSpec, options: Mapping[str, Any]) -> FileFacts:
    """Look at one file. Runs in the driver for a few files, in Spark tasks for many."""
    place = f"load {path!r} into stream {spec.name!r}"
    try:
        if file_format == "parquet":
            return _inspect_parquet(path, spec, place, options)
        return _inspect_text(path, file_format, spec, place, options)
    except OSError as error:
        raise unreadable(place, f"a readable {file_format} file", str(error)) from error


def _inspect_parquet(path: str, spec: StreamSpec, place: str, options: Mapping[str, Any]) -> FileFacts:
    size, digest = fingerprint(path, "parquet")
    try:
        footer = pq.read_metadata(path)
        schema = footer.schema.to_arrow_schema()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(place, "a whole Parquet file", str(error)) from error
    read_options = dict(options)
    _check_parquet_columns(footer, schema, spec, place, read_options)
    facts = nulls_and_range(footer, spec.event_time)
    required = {name: null_count(footer, name) for name in spec.required}
    nulls = None
    known = facts is not None and None not in required.values()
    if facts is not None and known and "time_zone" not in read_options and CHANGES not in read_options:
        nulls = {**{n: c for n, c in required.items() if c is not None}, spec.event_time: facts[0]}
    keys = key_range(footer, spec.key[0]) if spec.key else (None, None)
    return FileFacts(
        path=path,
        size=size,
        footer=digest,
        rows=footer.num_rows,
        nulls=nulls,
        event_min=facts[1] if facts else None,
        event_max=facts[2] if facts else None,
        key_min=keys[0],
        key_max=keys[1],
        options=read_options,
    )


def _check_parquet_columns(
    footer: pq.FileMetaData, schema: pa.Schema, spec: StreamSpec, place: str, options: dict[str, Any]
) -> None:
    _require_columns(schema.names, spec, place)
    if CHANGE_TYPE in schema.names:
        have = _spark_name(schema.field(CHANGE_TYPE).type)
        if have not in ("STRING", "VOID"):
            raise wrong_change_column(place, have)
        options[CHANGES] = True
    old_timestamps = {
        footer.schema.column(i).path for i in range(footer.num_columns)
        if footer.schema.column(i).physical_type == "INT96"
    }  # fmt: skip
    local_times = []
    for column in spec.schema:
        have = "TIMESTAMP" if column.name in old_timestamps else _spark_name(schema.field(column.name).type)
        if have == "TIMESTAMP_NTZ" and column.type == "TIMESTAMP" and options.get("time_zone"):
            local_times.append(column.name)
            continue
        if have != column.type and not widens(have, column.type):
            zone = {have, column.type} == {"TIMESTAMP", "TIMESTAMP_NTZ"}
            raise AnabranchError(
                "TIME_ZONE" if zone else "WRONG_TYPE",
                place=f"{place}, column {column.name!r}",
                need=column.type,
                got=have,
                next_step="Say which zone its times are in with time_zone='UTC'." if zone
                else "Read the file with Spark, cast the column, and append() the DataFrame.",
            )  # fmt: skip
    if local_times:
        options["local_columns"] = local_times
    else:
        options.pop("time_zone", None)


def _spark_name(arrow: pa.DataType) -> str:
    if pa.types.is_dictionary(arrow):
        return _spark_name(arrow.value_type)
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return "STRING"
    if pa.types.is_large_binary(arrow):
        return "BINARY"
    if pa.types.is_timestamp(arrow) and arrow.unit == "ns":
        return f"{type_name(arrow)} in nanoseconds, which Spark does not read"
    return type_name(arrow)


def _inspect_text(path: str, file_format: str, spec: StreamSpec, place: str, options: Mapping[str, Any]) -> FileFacts:
    size, digest = fingerprint(path, file_format)
    read_options = dict(options)
    head = _head(path)
    if file_format == "csv":
        header = _csv_header(head, options, place)
        _require_columns(header, spec, place)
        read_options["columns"] = header
    else:
        _check_json(head, place)
    if file_format == "json" or CHANGE_TYPE in read_options["columns"]:
        read_options[CHANGES] = True  # any line of JSON may have it
    return FileFacts(path=path, size=size, footer=digest, options=read_options)


def _head(path: str) -> bytes:
    with pa.input_stream(path, compression="detect") as stream:
        return bytes(stream.read(_TEXT_HEAD))


def _check_json(head: bytes, place: str) -> None:
    """Tell the first line that is not JSON by its number, where that is near the beginning."""
    lines = head.splitlines()
    whole = lines[:-1] if len(head) == _TEXT_HEAD else lines  # the last one may be cut
    for number, line in enumerate(whole, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            # Its own line number counts from this line, and would tell another one.
            got = (
                f"{error.msg} at character {error.pos + 1} of it"
                if isinstance(error, json.JSONDecodeError)
                else str(error)
            )
            raise unreadable(f"{place}, line {number}", "a JSON object on each line", got) from error
        if not isinstance(row, dict):
            raise unreadable(f"{place}, line {number}", "a JSON object on each line", f"a {type(row).__name__}")


def _csv_header(head: bytes, options: Mapping[str, Any], place: str) -> list[str]:
    try:
        text = head.decode(str(options.get("encoding", "utf-8")), errors="ignore").lstrip("\ufeff")
        quote, separator = str(options.get("quote", '"')), str(options.get("sep", ","))
        line = next(csv.reader(io.StringIO(text), delimiter=separator, quotechar=quote), [])
    except (LookupError, TypeError, csv.Error) as error:
        raise unreadable(place, "CSV text with a header line", str(error)) from error
    return [name.strip() for name in line]


def _require_columns(found: Sequence[str], spec: StreamSpec, place: str) -> None:
    missing = [name for name in spec.schema.names if name not in found]
    if not found:
        raise unreadable(place, "a file that names its columns", "an empty one")
    if missing and len(found) == 1 and len(missing) > 1 and any(mark in found[0] for mark in ";\t|"):
        mark = next(mark for mark in ";\t|" if mark in found[0])
        got, next_step = f"one column, {found[0]!r}", f"Say how they are separated with options={{'sep': {mark!r}}}."
        raise unreadable(place, f"columns {', '.join(spec.schema.names)}", got, next_step)
    check_columns(found, spec.schema.names, place)


def fingerprint(path: str, file_format: str) -> tuple[int, str]:
    """A file's size, and a hash of its end."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        tail = min(size, _TEXT_END)
        if file_format == "parquet" and size >= 12:
            file.seek(size - 8)
            length, magic = file.read(4), file.read(4)
            if magic == _MAGIC:
                tail = min(size, int.from_bytes(length, "little") + 8)
        file.seek(size - tail)
        return size, hashlib.blake2b(file.read(tail), digest_size=16).hexdigest()


def verify(segment: Segment, stream: str) -> None:
    """Before a read: the file is still the one that was loaded."""
    place = f"stream {stream!r}, referenced file {segment.path!r}"
    try:
        size, footer = fingerprint(segment.path, segment.format)
    except OSError as error:
        raise unreadable(place, "the file that was loaded", str(error), "Put the file back.") from error
    if (size, footer) != (segment.size, segment.footer):
        raise AnabranchError(
            "FILE_CHANGED",
            place=place,
            need=f"the file that was loaded, {segment.size} bytes, ending in hash {segment.footer}",
            got=f"{size} bytes, ending in hash {footer}",
            next_step="Restore the file; a referenced file must never change. append() copies, load() refers.",
        )


class Unchanged:
    """Referenced files that were verified, and how they looked: one that looks the same is not opened again.

    Whatever is written into a file changes when it was last touched, which nobody can set. So a step that reads a
    reference again asks the file system once, however large the file's footer is.
    """

    def __init__(self, most: int = 100_000) -> None:
        self.most = most
        self._seen: dict[tuple[str, str | None], tuple[int, ...]] = {}

    def check(self, segments: Iterable[LoggedSegment], stream: str) -> None:
        """Before a read: the files that are referred to are still the ones that were loaded."""
        for logged in segments:
            if logged.segment.reference:
                self._check(logged.segment, stream)

    def _check(self, segment: Segment, stream: str) -> None:
        try:
            facts = os.stat(segment.path)
        except OSError:
            verify(segment, stream)  # which says what is wrong
            return
        now = (facts.st_ino, facts.st_dev, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        known = (segment.path, segment.footer)
        if self._seen.get(known) == now:
            return
        verify(segment, stream)
        if len(self._seen) >= self.most:
            self._seen.clear()
        self._seen[known] = now


def unreadable(place: str, need: str, got: str, next_step: str = "Check the path and the file.") -> AnabranchError:
    return AnabranchError("FILE_UNREADABLE", place=place, need=need, got=got, next_step=next_step)
