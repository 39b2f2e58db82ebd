"""Spark's types as PostgreSQL has them."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from anabranch.engine.relation import EXACT_JSON
from anabranch.model.schema import Field

_PLAIN = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INT": "integer",
    "BIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "STRING": "text",
    "BINARY": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamp with time zone",
    "TIMESTAMP_NTZ": "timestamp without time zone",
}


def postgres_type(field: Field) -> str:
    """The type of a column; what is nested becomes JSON.

    >>> [postgres_type(Field("x", t)) for t in ("DOUBLE", "DECIMAL(10,2)", "ARRAY<INT>")]
    ['double precision', 'numeric(10,2)', 'jsonb']
    """
    if field.type.startswith("DECIMAL"):
        return field.type.replace("DECIMAL", "numeric").replace(" ", "")
    return _PLAIN.get(field.type, "jsonb")


def is_nested(field: Field) -> bool:
    return postgres_type(field) == "jsonb"


def as_sent(field: Field, column: Column) -> Column:
    """A value as it is copied: what is nested as JSON text, with its nulls."""
    return F.to_json(column, {"ignoreNullFields": "false", **EXACT_JSON}) if is_nested(field) else column
