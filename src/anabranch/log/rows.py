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

from anabranch.model.errors import AnabranchError
from anabranch.model.run import ChangeType
from anabranch.model.schema import Field, type_name
from anabranch.model.stream import StreamSpec, unknown_column
from anabranch.model.time import instant_us

CHANGE_TYPE = "_change_type"
# What Arrow raises for a value that it does not take.
_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError)
# Which kinds of Arrow type may become which, besides a kind becoming itself.
_WIDENING = {("int", "float"), ("int", "decimal"), ("null", "any")}


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
    _check_columns(table.column_names, wanted, spec, place)
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
        return pa.table(data)
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
        return _exact_array(values, field.arrow.type)
    except _REFUSED:
        return _one_by_one(values, field, place)


def _one_by_one(values: list[Any], field: Field, place: str) -> pa.Array:
    """The slow way, for mixtures that Arrow cannot take at once, and to name the row that is wrong."""
    arrays = []
    for number, value in enumerate(values):
        try:
            arrays.append(_exact_array([value], field.arrow.type))
        except _REFUSED as error:
            at = f"{place}, row {number}, column {field.name!r}"
            raise _wrong(at, field.type, f"{value!r} ({type(value).__name__})") from error
    return pa.concat_arrays(arrays)


def _exact_array(values: list[Any], arrow: pa.DataType) -> pa.Array:
    """Python values in an Arrow type, or an error: Arrow itself would cut 1.5 down to 1 on the way."""
    if pa.types.is_map(arrow):
        values = [list(v.items()) if isinstance(v, Mapping) else v for v in values]
        keys, items = _pair_types(values)
        _require_fits(keys, arrow.key_type)
        _require_fits(items, arrow.item_type)
        return pa.array(values, arrow)
    found = pa.array(values)
    _require_fits(found.type, arrow)
    return pa.array(values, arrow) if pa.types.is_nested(arrow) else _cast(found, arrow)


def _pair_types(values: list[Any]) -> tuple[pa.DataType, pa.DataType]:
    """The types that the keys and the values of maps have; Arrow does not infer maps by itself."""
    pairs = [pair for value in values if value is not None for pair in value]
    return pa.array([k for k, _ in pairs]).type, pa.array([v for _, v in pairs]).type


def _require_fits(have: pa.DataType, want: pa.DataType) -> None:
    """Whether values can go from one type to another unchanged, to the last nested field."""
    if pa.types.is_dictionary(have):
        have = have.value_type
    mine, theirs = _kind(have), _kind(want)
    if mine != theirs and not {(mine, theirs), (mine, "any")} & _WIDENING:
        raise TypeError(f"{type_name(have)} is not {type_name(want)}")
    if mine != theirs:
        return
    if mine == "list":
        _require_fits(have.value_type, want.value_type)
    elif mine == "map":
        _require_fits(have.key_type, want.key_type)
        _require_fits(have.item_type, want.item_type)
    elif mine == "struct":
        have_names, want_names = [f.name for f in have], [f.name for f in want]
        if sorted(have_names) != sorted(want_names):
            raise TypeError(f"fields {', '.join(have_names)} are not {', '.join(want_names)}")
        for name in want_names:
            _require_fits(have.field(name).type, want.field(name).type)


def _cast(column: Any, want: pa.DataType) -> Any:
    """A cast that raises where a value would change; doubles are rounded to FLOAT, but never to infinity."""
    if _kind(want) == "decimal" and pa.types.is_integer(column.type):
        column = pc.cast(column, pa.decimal128(38, 0))  # Arrow asks for room for any integer, not for these
    result = pc.cast(column, want)
    if pa.types.is_float32(want) and pa.types.is_float64(column.type):
        grew = pc.and_(pc.is_inf(result), pc.invert(pc.is_inf(column)))
        if pc.any(grew).as_py():
            raise OverflowError("a value is too large for FLOAT")
    return result


def _moment(value: Any, field: Field, place: str, zone: ZoneInfo | None) -> int | datetime | None:
    at = f"{place}, column {field.name!r}"
    if value is None or value != value:  # pandas' NaT is not equal to itself
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise _wrong(at, field.type, repr(value)) from None
    if not isinstance(value, datetime):
        raise _wrong(at, field.type, f"{value!r} ({type(value).__name__})")
    if field.type == "TIMESTAMP_NTZ":
        if value.tzinfo is not None:
            raise _zone_error(at, "a wall-clock time without a zone", f"{value.isoformat()}")
        return value
    if getattr(value, "nanosecond", 0):
        raise _wrong(at, f"{field.type}, in whole microseconds", repr(value))
    if value.tzinfo is None:
        if zone is None:
            raise _zone_error(at, "a timestamp with a time zone", f"{value.isoformat()}, which has none")
        value = value.replace(tzinfo=zone)
        if value.utcoffset() != value.replace(fold=1).utcoffset():
            got = f"{value.replace(tzinfo=None).isoformat()}, when the clocks change"
            raise _zone_error(at, f"a time that exists once in {zone.key}", got)
    return instant_us(value, at)


def _check_columns(found: Sequence[str], wanted: Sequence[str], spec: StreamSpec, place: str) -> None:
    for name in found:
        if name not in wanted and name != CHANGE_TYPE:
            raise unknown_column(place, name, wanted)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise AnabranchError(
            "UNKNOWN_COLUMN",
            place=place,
            need=f"columns {', '.join(wanted)}",
            got=f"none named {', '.join(missing)}",
            next_step="Add the columns, with nulls where there is no value.",
        )
    if len(set(found)) != len(found):
        raise _wrong(place, "columns with different names", ", ".join(found))


def _convert(column: pa.ChunkedArray, field: Field, place: str, zone: ZoneInfo | None) -> pa.ChunkedArray:
    at = f"{place}, column {field.name!r}"
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    target = field.arrow.type
    if column.type.equals(target):
        return column
    have, want = _kind(column.type), _kind(target)
    if want == "instant" and have == "wall clock":
        if zone is None:
            raise _zone_error(at, "timestamps with a time zone", f"{column.type}, which has none")
        column = _localise(column, zone, at)
    elif want == "wall clock" and have == "instant":
        raise _zone_error(at, "wall-clock times without a zone (TIMESTAMP_NTZ)", f"{column.type}")
    elif have == "instant":
        check_zone(column.type.tz if "/" in column.type.tz else None, at)
    try:
        _require_fits(column.type, target)
        return _cast(column, target)
    except _REFUSED as error:
        raise _wrong(at, field.type, f"{type_name(column.type)}: {error.args[0]}") from error


def _localise(column: pa.ChunkedArray, zone: ZoneInfo, at: str) -> pa.ChunkedArray:
    try:
        return pc.assume_timezone(column, zone.key)
    except pa.ArrowException as error:
        got = f"wall-clock times that do not name one instant there: {error.args[0]}"
        raise _zone_error(at, f"times that exist once in {zone.key}", got) from error


def _kind(arrow: pa.DataType) -> str:
    types = pa.types
    for name, test in (
        ("int", types.is_integer),
        ("float", types.is_floating),
        ("decimal", types.is_decimal),
        ("bool", types.is_boolean),
        ("null", types.is_null),
        ("date", types.is_date),
        ("map", types.is_map),
        ("struct", types.is_struct),
    ):
        if test(arrow):
            return name
    if types.is_timestamp(arrow):
        return "instant" if arrow.tz else "wall clock"
    if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
        return "string"
    if types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_binary_view(arrow):
        return "binary"
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        return "list"
    return str(arrow)


def _change_types(column: pa.ChunkedArray, place: str) -> pa.ChunkedArray:
    if not pa.types.is_string(column.type):
        column = pc.cast(column, pa.string())
    known = [str(c) for c in ChangeType]
    odd = [v for v in pc.unique(column).to_pylist() if v not in known]
    if odd:
        raise _wrong(f"{place}, column {CHANGE_TYPE!r}", f"one of {', '.join(known)}", repr(odd[0]))
    return column


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
