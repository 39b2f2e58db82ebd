"""Zero has no sign, in Spark's words: for rows of files that are not ours, and results that are read as they are made.

See `log/zeros.py` for what this is for.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from anabranch.engine.relation import quoted


def unsigned(value: str, kind: T.DataType) -> str:
    """SQL of a value without -0.0, also within arrays, structs and maps."""
    if not has_floats(kind):
        return value
    if isinstance(kind, T.ArrayType):
        return f"TRANSFORM({value}, x -> {unsigned('x', kind.elementType)})"
    if isinstance(kind, T.MapType):
        entry = f"STRUCT({unsigned('e.key', kind.keyType)} AS key, {unsigned('e.value', kind.valueType)} AS value)"
        return f"MAP_FROM_ENTRIES(TRANSFORM(MAP_ENTRIES({value}), e -> {entry}))"
    if isinstance(kind, T.StructType):
        fields = (f"{unsigned(f'({value}).{quoted(f.name)}', f.dataType)} AS {quoted(f.name)}" for f in kind)
        return f"CASE WHEN ({value}) IS NOT NULL THEN STRUCT({', '.join(fields)}) END"
    return f"CASE WHEN {value} = 0 THEN CAST(0 AS {kind.simpleString()}) ELSE {value} END"


def has_floats(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return has_floats(kind.elementType)
    if isinstance(kind, T.MapType):
        return has_floats(kind.keyType) or has_floats(kind.valueType)
    if isinstance(kind, T.StructType):
        return any(has_floats(field.dataType) for field in kind)
    return isinstance(kind, T.FloatType | T.DoubleType)


def without_signs(frame: DataFrame, schema: T.StructType) -> DataFrame:
    """A frame whose columns of a schema have no -0.0."""
    made = {f.name: f"{unsigned(quoted(f.name), f.dataType)} AS {quoted(f.name)}" for f in schema}
    if not any(has_floats(field.dataType) for field in schema):
        return frame
    return frame.selectExpr(*(made.get(name, quoted(name)) for name in frame.columns))
