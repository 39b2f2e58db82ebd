"""Conversions that change no value.

Arrow is generous: it cuts 1.5 down to 1, drops what is below a microsecond, reads text as numbers inside
a list. Here a value goes from one type to another only if it means the same there, to the last nested
field; everything else raises one of `REFUSED`. The one rounding that is allowed is that of doubles to a
FLOAT column, and even there a number never becomes infinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.model.schema import type_name

# What Arrow, or a check here, raises for a value that is not taken.
REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError)
# Which kinds of Arrow type may become which, besides a kind becoming itself.
_WIDENING = {("int", "float"), ("int", "decimal"), ("null", "any")}


def exact_array(values: list[Any], want: pa.DataType) -> pa.Array:
    """Python values in an Arrow type."""
    if pa.types.is_nested(want):
        result = pa.array([_shaped(value, want) for value in values], want)
        if not all(map(_unchanged, values, result.to_pylist(), [want] * len(values))):
            raise TypeError(f"a value does not fit {type_name(want)}")
        return result
    found = pa.array(values)
    require_fits(found.type, want)
    return exact_cast(found, want)


def _shaped(value: Any, want: pa.DataType) -> Any:
    """Maps as Arrow takes them, lists of pairs, at any depth."""
    if value is None:
        return None
    if pa.types.is_map(want):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(key, _shaped(item, want.item_type)) for key, item in pairs]
    if pa.types.is_struct(want) and isinstance(value, Mapping):
        known = {field.name: field.type for field in want}
        return {name: _shaped(item, known[name]) if name in known else item for name, item in value.items()}
    if pa.types.is_list(want):
        return [_shaped(item, want.value_type) for item in value]
    return value


def _unchanged(value: Any, stored: Any, want: pa.DataType) -> bool:
    """Whether what Arrow stored is what was given."""
    if value is None or stored is None:
        return value is stored
    if pa.types.is_map(want):
        pairs = list(value.items() if isinstance(value, Mapping) else value)
        return all(
            _unchanged(key, stored_key, want.key_type) and _unchanged(item, stored_item, want.item_type)
            for (key, item), (stored_key, stored_item) in zip(pairs, stored, strict=True)
        )
    if pa.types.is_list(want):
        return all(_unchanged(a, b, want.value_type) for a, b in zip(value, stored, strict=True))
    if pa.types.is_struct(want):
        given = value if isinstance(value, Mapping) else value.asDict()
        names = [field.name for field in want]
        return set(given) <= set(names) and all(
            _unchanged(given.get(name), stored[name], want.field(name).type) for name in names
        )
    if isinstance(value, bool) != pa.types.is_boolean(want):
        return False
    if pa.types.is_floating(want):
        return math.isinf(stored) == math.isinf(value)
    return bool(value == stored)


def require_fits(have: pa.DataType, want: pa.DataType) -> None:
    """Raise unless values can go from one Arrow type to another unchanged, to the last nested field."""
    if pa.types.is_dictionary(have):
        have = have.value_type
    mine, theirs = kind_of(have), kind_of(want)
    if mine != theirs and not {(mine, theirs), (mine, "any")} & _WIDENING:
        raise TypeError(f"{type_name(have)} is not {type_name(want)}")
    if mine != theirs:
        return
    if mine == "list":
        require_fits(have.value_type, want.value_type)
    elif mine == "map":
        require_fits(have.key_type, want.key_type)
        require_fits(have.item_type, want.item_type)
    elif mine == "struct":
        have_names, want_names = [f.name for f in have], [f.name for f in want]
        if sorted(have_names) != sorted(want_names):
            raise TypeError(f"fields {', '.join(have_names)} are not {', '.join(want_names)}")
        for name in want_names:
            require_fits(have.field(name).type, want.field(name).type)


def exact_cast(column: Any, want: pa.DataType) -> Any:
    """A cast between types that fit, which raises where a value would change."""
    if kind_of(want) == "decimal" and pa.types.is_integer(column.type):
        column = pc.cast(column, pa.decimal128(38, 0))  # Arrow asks for room for any integer, not for these
    result = pc.cast(column, want)
    if _infinities(result) != _infinities(column):
        raise OverflowError("a value is too large for FLOAT")
    return result


def _infinities(column: Any) -> int:
    """How many infinite numbers there are in a column, at any depth."""
    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        return sum(_infinities(chunk) for chunk in column.chunks)
    if pa.types.is_floating(kind):
        return pc.sum(pc.is_inf(column)).as_py() or 0
    if pa.types.is_map(kind):
        return _infinities(column.keys) + _infinities(column.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _infinities(column.flatten())
    if pa.types.is_struct(kind):
        return sum(_infinities(child) for child in column.flatten())
    return 0


def kind_of(arrow: pa.DataType) -> str:
    """The family of an Arrow type: what its values mean, not how they are kept."""
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
