from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.model.errors import AnabranchError
from anabranch.model.schema import Schema, type_name, widens
from anabranch.model.stream import StreamSpec

WIDE = (
    "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(12, 2), i STRING, j BINARY, "
    "k DATE, l TIMESTAMP, m TIMESTAMP_NTZ, n ARRAY<INT>, o MAP<STRING, DOUBLE>, p STRUCT<x: INT, y: ARRAY<STRING>>"
)


def test_every_type_reads_back() -> None:
    schema = Schema.parse(WIDE, "test")
    assert str(schema) == WIDE
    assert Schema.from_json(schema.to_json()) == schema
    assert [type_name(f.type) for f in schema.arrow] == [f.type for f in schema]


def test_spellings() -> None:
    schema = Schema.parse("a integer not null, b long, `odd name` string, d dec(5)", "test")
    assert str(schema) == "a INT NOT NULL, b BIGINT, odd name STRING, d DECIMAL(5, 0)"
    assert schema.arrow.field("a").type == pa.int32()
    assert Schema.parse({"a": "INT"}, "test").names == ("a",)


@pytest.mark.parametrize(
    "text",
    ["", "a", "a INT b INT", "a WIDGET", "a ARRAY<INT", "a DECIMAL(50, 2)", "a INT, A INT", "a INTERVAL"],
)
def test_bad_schemas(text: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        Schema.parse(text, "stream 's'")
    assert caught.value.id == "BAD_SCHEMA"
    assert caught.value.place.startswith("stream 's'")


def test_widening_is_one_way() -> None:
    assert widens("INT", "BIGINT")
    assert not widens("BIGINT", "INT")
    assert widens("FLOAT", "DOUBLE")
    assert not widens("INT", "DOUBLE")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"event_time": "when"}, "UNKNOWN_COLUMN"),
        ({"event_time": "user"}, "BAD_SCHEMA"),
        ({"key": "nobody"}, "UNKNOWN_COLUMN"),
        ({"key": "price"}, "BAD_SCHEMA"),
        ({"slack": "soon"}, "BAD_DURATION"),
        ({"history": "1 year"}, "BAD_DURATION"),
        ({"name": "two words"}, "BAD_NAME"),
        ({"name": "_hidden"}, "BAD_NAME"),
        ({"schema": "_file INT, ts TIMESTAMP"}, "BAD_SCHEMA"),
        ({"schema": "_POSITION INT, ts TIMESTAMP"}, "BAD_SCHEMA"),
        ({"schema": "`a.b` INT, ts TIMESTAMP"}, "BAD_SCHEMA"),
    ],
)
def test_bad_declarations(options: dict[str, str], error: str) -> None:
    given = {"name": "s", "schema": "user INT, price DOUBLE, ts TIMESTAMP", "event_time": "ts", **options}
    with pytest.raises(AnabranchError) as caught:
        StreamSpec.declare(given.pop("name"), given.pop("schema"), **given)  # type: ignore[arg-type]
    assert caught.value.id == error


def test_declarations_read_back_and_differ() -> None:
    spec = StreamSpec.declare(
        "s", "user INT, ts TIMESTAMP", event_time="ts", key="user", slack="1 minute", history="1 day"
    )
    assert StreamSpec.from_json(spec.to_json()) == spec
    other = StreamSpec.declare("s", "user BIGINT, ts TIMESTAMP", event_time="ts", key="user", history="1 day")
    assert spec.differences(spec) == []
    assert other.differences(spec) == [
        "columns (user BIGINT, ts TIMESTAMP) instead of (user INT, ts TIMESTAMP)",
        "slack 0 seconds instead of 1 minute",
    ]
