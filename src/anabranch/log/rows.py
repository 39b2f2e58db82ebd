"""From what people hold to what a stream stores: rows, pandas and Arrow become one Arrow table.

Only conversions that cannot change a value are made: wider numbers, decoded dictionaries, another unit
or zone of the same instant. Everything else is an error that names the column, and the row where that
is known; nothing is written. Timestamps without a zone are refused for TIMESTAMP columns unless the
caller says in which `time_zone` to read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.log.exact import REFUSED, exact_array, exact_cast, kind_of, require_fits
from anabranch.model.errors import AnabranchError
from anabranch.model.run import ChangeType
from anabranch.model.schema import Field, type_name
from anabranch.model.stream import CHANGE_TYPE as CHANGE_TYPE
from anabranch.model.stream import StreamSpec, check_columns
from anabranch.model.time import instant_us


def to_table(
    data: Any, spec: StreamSpec, *, columns: Sequence[str] | None = None, time_zone: str | None = None
) -> pa.Table:
    """The data as a table of exactly the stream's columns, plus `_change_type` where it was given.

    `columns` names the columns that must be there when not all of them are (deletion by key).
    """
    place = f"append to stream {spec.name!r}"
    zone = check_zone(time_zone, place)
    wanted = tuple(columns or spec.schema.names)
    table = _as_arrow(data, spec, wanted, place, zone)
    check_columns(table.column_names, wanted, place)
    arrays: dict[str, pa.ChunkedArray] = {}
    for field in spec.schema:
        if field.name in wanted:
            arrays[field.name] = _convert(table[field.name], field, place, zone)
        else:
            arrays[field.name] = pa.chunked_array([pa.nulls(table.num_rows, field.arrow.type)])
    result = pa.table(arrays, schema=pa.schema([pa.field(f.name, f.arrow.type) for f in spec.schema]))
    if CHANGE_TYPE in table.column_names:
        result = result.append_column(CHANGE_TYPE, _change_types(table[CHANGE_TYPE], place))
    return result


def check_zone(name: str | None, place: str) -> ZoneInfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise AnabranchError(
            "TIME_ZONE",
            place=f"{place}, time_zone=",
            need="the name of a time zone",
            got=repr(name),
            next_step="Use an IANA name such as 'UTC' or 'Europe/Paris'.",
        ) from None


def _as_arrow(data: Any, spec: StreamSpec, wanted: Sequence[str], place: str, zone: ZoneInfo | None) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    module = type(data).__module__.partition(".")[0]
    if module == "pandas" and type(data).__name__ == "DataFrame":
        return _from_pandas(data, place)
    if hasattr(data, "__arrow_c_stream__") and module != "pandas":
        try:
            return pa.table(data)
        except pa.ArrowException as error:
            raise _wrong(place, "a stream of Arrow record batches", str(error)) from error
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable) or module == "pandas":
        raise AnabranchError(
            "WRONG_TYPE",
            place=place,
            need="a list of rows (dicts or tuples), Arrow data, a pandas or a Spark DataFrame",
            got=f"a {type(data).__name__}",
            next_step="Wrap a single row in a list; read files with load().",
        )
    return _from_rows(list(data), spec, wanted, place, zone)


def _from_pandas(frame: Any, place: str) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _wrong(place, "columns of one type each", "; ".join(map(str, error.args))) from error


def _from_rows(rows: list[Any], spec: StreamSpec, wanted: Sequence[str], place: str, zone: ZoneInfo | None) -> pa.Table:
    columns = _columns_of(rows, wanted, place)
    arrays = {}
    for name, values in columns.items():
        if name == CHANGE_TYPE or name not in spec.schema.names:
            arrays[name] = pa.array([None if v is None else str(v) for v in values], pa.string())
        else:
            arrays[name] = _python_array(values, spec.schema[name], place, zone)
    return pa.table(arrays)


def _columns_of(rows: list[Any], wanted: Sequence[str], place: str) -> dict[str, list[Any]]:
    """Rows turned on their side. Dicts may leave a column out: it is null in that row."""
    names: list[str] = []
    records: list[Mapping[str, Any]] = []
    for number, row in enumerate(rows):
        if hasattr(row, "asDict"):
            row = row.asDict()
        elif isinstance(row, Sequence) and not isinstance(row, str | bytes):
            if len(row) != len(wanted):
                need = f"{len(wanted)} values, for {', '.join(wanted)}"
                raise _wrong(f"{place}, row {number}", need, f"{len(row)}: {row!r}")
            row = dict(zip(wanted, row, strict=True))
        if not isinstance(row, Mapping):
            raise _wrong(f"{place}, row {number}", "a dict or a tuple", f"a {type(row).__name__}")
        odd = [name for name in row if not isinstance(name, str)]
        if odd:
            raise _wrong(f"{place}, row {number}", "column names that are text", repr(odd[0]))
        records.append(row)
        names.extend(name for name in row if name not in names)
    if not records:
        names = list(wanted)
    return {name: [record.get(name) for record in records] for name in names}


def _python_array(values: list[Any], field: Field, place: str, zone: ZoneInfo | None) -> pa.Array:
    if field.type in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        values = [_moment(v, field, f"{place}, row {i}", zone) for i, v in enumerate(values)]
        return pa.array(values, field.arrow.type)
    try:
        return exact_array(values, field.arrow.type)
    except REFUSED:
        return _one_by_one(values, field, place)


def _one_by_one(values: list[Any], field: Field, place: str) -> pa.Array:
    """The slow way, for mixtures that Arrow cannot take at once, and to name the row that is wrong."""
    arrays = []
    for number, value in enumerate(values):
        try:
            arrays.append(exact_array([value], field.arrow.type))
        except REFUSED as error:
            at = f"{place}, row {number}, column {field.name!r}"
            raise _wrong(at, field.type, f"{value!r} ({type(value).__name__})") from error
    return pa.concat_arrays(arrays)


def _moment(value: Any, field: Field, place: str, zone: ZoneInfo | None) -> int | datetime | None:
    at = f"{place}, column {field.name!r}"
    if value is None or str(value) == "NaT":
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise _wrong(at, field.type, repr(value)) from None
    if not isinstance(value, datetime):
        raise _wrong(at, field.type, f"{value!r} ({type(value).__name__})")
    if getattr(value, "nanosecond", 0):
        raise _wrong(at, f"{field.type}, in whole microseconds", repr(value))
    if field.type == "TIMESTAMP_NTZ":
        if value.tzinfo is not None:
            raise _zone_error(at, "a wall-clock time without a zone", f"{value.isoformat()}")
        return value
    if value.tzinfo is None:
        if zone is None:
            raise _zone_error(at, "a timestamp with a time zone", f"{value.isoformat()}, which has none")
        value = value.replace(tzinfo=zone)
        if value.utcoffset() != value.replace(fold=1).utcoffset():
            got = f"{value.replace(tzinfo=None).isoformat()}, when the clocks change"
            raise _zone_error(at, f"a time that exists once in {zone.key}", got)
    return instant_us(value, at)


def _convert(column: pa.ChunkedArray, field: Field, place: str, zone: ZoneInfo | None) -> pa.ChunkedArray:
    at = f"{place}, column {field.name!r}"
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    target = field.arrow.type
    if column.type.equals(target):
        return column
    have, want = kind_of(column.type), kind_of(target)
    if want == "instant" and have == "wall clock":
        if zone is None:
            raise _zone_error(at, "timestamps with a time zone", f"{column.type}, which has none")
        column = _localise(column, zone, at)
    elif want == "wall clock" and have == "instant":
        raise _zone_error(at, "wall-clock times without a zone (TIMESTAMP_NTZ)", f"{column.type}")
    elif have == "instant":
        offset = column.type.tz[:1] in ("+", "-")
        check_zone(None if offset else column.type.tz, at)
    try:
        require_fits(column.type, target)
        return exact_cast(column, target)
    except REFUSED as error:
        raise _wrong(at, field.type, f"{type_name(column.type)}: {error.args[0]}") from error


def _localise(column: pa.ChunkedArray, zone: ZoneInfo, at: str) -> pa.ChunkedArray:
    try:
        return pc.assume_timezone(column, zone.key)
    except pa.ArrowException as error:
        got = f"wall-clock times that do not name one instant there: {error.args[0]}"
        raise _zone_error(at, f"times that exist once in {zone.key}", got) from error


def _change_types(column: pa.ChunkedArray, place: str) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if kind_of(column.type) not in ("string", "null"):
        raise wrong_change_column(place, type_name(column.type))
    column = known_changes(column)
    odd = odd_changes(column)
    if odd:
        raise unknown_change(place, odd[0])
    return column


def known_changes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Change types as text; a row that does not say is an insertion."""
    return pc.fill_null(pc.cast(column, pa.string()), ChangeType.INSERT.value)


def odd_changes(column: pa.ChunkedArray) -> list[str]:
    """The change types that nobody understands."""
    known = [str(change) for change in ChangeType]
    return sorted(word for word in pc.unique(column).to_pylist() if word not in known)


def unknown_change(place: str, word: str) -> AnabranchError:
    return _wrong(f"{place}, column {CHANGE_TYPE!r}", f"one of {', '.join(ChangeType)}, or null", repr(word))


def wrong_change_column(place: str, got: str) -> AnabranchError:
    return _wrong(f"{place}, column {CHANGE_TYPE!r}", "STRING", got)


def _wrong(place: str, need: str, got: str) -> AnabranchError:
    return AnabranchError(
        "WRONG_TYPE", place=place, need=need, got=got, next_step="Convert it first; nothing was written."
    )


def _zone_error(place: str, need: str, got: str) -> AnabranchError:
    return AnabranchError(
        "TIME_ZONE",
        place=place,
        need=need,
        got=got,
        next_step="Give the value a zone where one is needed (tzinfo=UTC, tz_localize('UTC'), or time_zone='UTC' "
        "in the call), or declare the column TIMESTAMP_NTZ.",
    )
