"""Zero has no sign: what is written has 0.0 where -0.0 was.

The two are equal, so groups, joins, DISTINCT and EXCEPT of Spark cannot tell them apart, and which of them comes out
of one is not determined. So a log has one zero only, and no path through the engine can differ from another by
a sign. Every segment is written here; files that a log only refers to are read so (`engine/zeros.py`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def unsigned(table: pa.Table) -> pa.Table:
    """A table without -0.0, also within lists, structs and maps."""
    for at, field in enumerate(table.schema):
        if has_floats(field.type):
            chunks = [_unsigned(chunk) for chunk in table.column(at).chunks]
            table = table.set_column(at, field, pa.chunked_array(chunks, field.type))
    return table


def has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(has_floats(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _unsigned(values: pa.Array) -> pa.Array:
    kind = values.type
    if not has_floats(kind):
        return values
    if pa.types.is_floating(kind):
        return pc.add(values, pa.scalar(0, kind))  # -0.0 + 0.0 is 0.0; every other number stays what it is
    whole = values.take(pa.array(np.arange(len(values))))  # parts of an array share what lies below
    missing = pc.is_null(whole)
    if pa.types.is_struct(kind):
        parts = [_unsigned(whole.field(at)) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=missing)
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(
            whole.offsets, _unsigned(whole.keys), _unsigned(whole.items), type=kind, mask=missing
        )
    return type(whole).from_arrays(whole.offsets, _unsigned(whole.values), type=kind, mask=missing)
