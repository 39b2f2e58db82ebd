"""What may enter a stream, and in which form."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pytest

from anabranch.log.intake import admit
from anabranch.log.rows import to_table
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import StreamSpec
from tests.conftest import START_US, make_spec

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPEC = make_spec()
ROW = {"user": 1, "campaign": "a", "ts": NOON}


def arrow(**columns: Any) -> pa.Table:
    given = {"user": [1], "campaign": ["a"], "ts": pa.array([NOON], pa.timestamp("us", "UTC")), **columns}
    return pa.table({name: values for name, values in given.items() if values is not None})


@pytest.mark.parametrize(
    "data",
    [
        [ROW],
        [(1, "a", NOON)],
        [[1, "a", "2026-01-01T12:00:00Z"]],
        [{"user": 1, "campaign": "a", "ts": NOON.astimezone(ZoneInfo("Asia/Tokyo"))}],
        arrow(),
        arrow().to_batches()[0],
        pa.RecordBatchReader.from_batches(arrow().schema, arrow().to_batches()),
        arrow(campaign=pa.array(["a"], pa.large_string())),
        arrow(campaign=pa.array(["a"]).dictionary_encode()),
        arrow(campaign=pa.array(["a"], pa.large_string()).dictionary_encode()),
        arrow(campaign=pa.array(["a"], pa.string_view())),
        arrow(user=pa.array([1], pa.int64())),
        arrow(ts=pa.array([NOON], pa.timestamp("ns", "Europe/Paris"))),
        arrow(ts=pa.array([NOON], pa.timestamp("ms", "+02:00"))),
        pd.DataFrame({"ts": [pd.Timestamp(NOON)], "user": [1], "campaign": ["a"]}),
        pd.DataFrame({"user": [1], "campaign": pd.Categorical(["a"]), "ts": [pd.Timestamp(NOON)]}),
    ],
)
def test_every_form_of_the_same_row(data: Any) -> None:
    table = to_table(data, SPEC)
    assert table.schema.names == ["user", "campaign", "ts"]
    assert table.to_pylist() == [ROW]


def test_missing_values_in_dicts_are_null() -> None:
    table = to_table([ROW, {"user": 2, "ts": NOON}], SPEC)
    assert table["campaign"].to_pylist() == ["a", None]


def test_no_rows_are_no_rows() -> None:
    assert to_table([], SPEC).num_rows == 0


def test_local_times_need_a_zone_and_take_the_one_given() -> None:
    naive = [{**ROW, "ts": datetime(2026, 1, 1, 13)}]  # noqa: DTZ001
    frame = pd.DataFrame({"user": [1], "campaign": ["a"], "ts": [pd.Timestamp("2026-01-01 13:00")]})
    for data in (naive, frame):
        with pytest.raises(AnabranchError) as caught:
            to_table(data, SPEC)
        assert caught.value.id == "TIME_ZONE"
        assert "column 'ts'" in caught.value.place
        assert to_table(data, SPEC, time_zone="Europe/Paris").to_pylist() == [ROW]


def test_every_type_survives() -> None:
    wide = StreamSpec.declare(
        "wide",
        "a BOOLEAN, b TINYINT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(12, 2), j BINARY, k DATE, ts TIMESTAMP, "
        "m TIMESTAMP_NTZ, n ARRAY<INT>, o MAP<STRING, DOUBLE>, p STRUCT<x: INT>",
        event_time="ts",
    )
    row = {"a": True, "b": 3, "e": 2**60, "f": 1.5, "g": float("inf"), "h": Decimal("1.25"), "j": b"\x00",
           "k": NOON.date(), "ts": NOON, "m": datetime(2026, 1, 1), "n": [1, None], "o": [("k", 1.0)],  # noqa: DTZ001
           "p": {"x": None}}  # fmt: skip
    assert to_table([row], wide).to_pylist() == [row]
    assert to_table(pa.Table.from_pylist([row], schema=wide.schema.arrow), wide).to_pylist() == [row]


@pytest.mark.parametrize(
    ("data", "error", "place", "got"),
    [
        ([{**ROW, "prise": 1}], "UNKNOWN_COLUMN", "append", "'prise'"),
        ([{"user": 1, "ts": NOON}], "UNKNOWN_COLUMN", "append", "none named campaign"),
        ([(1, "a")], "WRONG_TYPE", "row 0", "2: (1, 'a')"),
        ([ROW, {**ROW, "user": "two"}], "WRONG_TYPE", "row 1, column 'user'", "'two' (str)"),
        ([{**ROW, "user": 2**40}], "WRONG_TYPE", "row 0, column 'user'", str(2**40)),
        ([{**ROW, "user": 1.5}], "WRONG_TYPE", "row 0, column 'user'", "1.5"),
        ([{**ROW, "campaign": 7}], "WRONG_TYPE", "row 0, column 'campaign'", "7 (int)"),
        ([{**ROW, "ts": "noon"}], "WRONG_TYPE", "row 0, column 'ts'", "'noon'"),
        ([{**ROW, "ts": 12}], "WRONG_TYPE", "row 0, column 'ts'", "12 (int)"),
        ([ROW, "row"], "WRONG_TYPE", "row 1", "a str"),
        ([{**ROW, "_change_type": "upsert"}], "WRONG_TYPE", "'_change_type'", "'upsert'"),
        (ROW, "WRONG_TYPE", "append", "a dict"),
        ("a,b", "WRONG_TYPE", "append", "a str"),
        (7, "WRONG_TYPE", "append", "a int"),
        (arrow(user=["1"]), "WRONG_TYPE", "column 'user'", "STRING"),
        (arrow(user=[2**40]), "WRONG_TYPE", "column 'user'", "BIGINT"),
        (arrow(user=[1.0]), "WRONG_TYPE", "column 'user'", "DOUBLE"),
        (arrow(campaign=[True]), "WRONG_TYPE", "column 'campaign'", "BOOLEAN"),
        (arrow(ts=pa.array([1], pa.timestamp("ns", "UTC"))), "WRONG_TYPE", "column 'ts'", "lose data"),
        (arrow(ts=pa.array([1], pa.timestamp("us"))), "TIME_ZONE", "column 'ts'", "which has none"),
        (arrow(ts=pa.array([1], pa.timestamp("us", "Mars/Olympus"))), "TIME_ZONE", "column 'ts'", "'Mars/Olympus'"),
        (arrow(extra=[1]), "UNKNOWN_COLUMN", "append", "'extra'"),
        ([{1: 2}], "WRONG_TYPE", "row 0", "1"),
        (arrow(_change_type=[["delete"]]), "WRONG_TYPE", "'_change_type'", "ARRAY<STRING>"),
        (arrow(ts=pa.array([1], pa.timestamp("us", "Moon"))), "TIME_ZONE", "column 'ts'", "'Moon'"),
        (pa.array([1, 2]), "WRONG_TYPE", "append", ""),
        (pd.Series([1], name="user"), "WRONG_TYPE", "append", "Series"),
        (pd.DataFrame({"user": [1, "x"], "campaign": ["a", "b"], "ts": [NOON, NOON]}), "WRONG_TYPE", "append", "user"),
    ],
)  # fmt: skip
def test_what_is_refused(data: Any, error: str, place: str, got: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        to_table(data, SPEC)
    assert caught.value.id == error
    assert place in caught.value.place
    assert got in caught.value.got


def test_unknown_zone_names_are_refused() -> None:
    with pytest.raises(AnabranchError) as caught:
        to_table([ROW], SPEC, time_zone="Moon/Base")
    assert caught.value.id == "TIME_ZONE"


def test_wrong_case_is_pointed_at() -> None:
    with pytest.raises(AnabranchError, match="Did you mean 'user'"):
        to_table([{"User": 1, "campaign": "a", "ts": NOON}], SPEC)


BOUNDS = (START_US - 10, START_US + 10)


def _timed(*micros: int | None) -> pa.Table:
    times = pa.array(micros, pa.timestamp("us", "UTC"))
    return pa.table({"user": list(range(len(micros))), "campaign": ["a"] * len(micros), "ts": times})


def test_bad_event_times_are_counted_and_shown() -> None:
    with pytest.raises(AnabranchError) as caught:
        admit(_timed(START_US, None, START_US + 11, 2**62), SPEC, BOUNDS, "refuse")
    assert caught.value.id == "BAD_EVENT_TIME"
    assert "3 of 4 rows" in caught.value.got
    assert "user=1, campaign='a', ts=null" in caught.value.got
    assert f"ts={2**62} us" in caught.value.got


def test_bad_event_times_can_be_set_aside() -> None:
    admitted = admit(_timed(START_US, None, START_US - 11, START_US + 10), SPEC, BOUNDS, "quarantine")
    assert admitted.good["user"].to_pylist() == [0, 3]
    assert admitted.quarantined is not None
    assert admitted.quarantined["_reason"].to_pylist() == ["no event time", "absurd event time"]


def test_nulls_where_none_may_be() -> None:
    keyed = make_spec(key="user")
    table = to_table([{**ROW, "user": None}, ROW], keyed)
    with pytest.raises(AnabranchError) as caught:
        admit(table, keyed, BOUNDS, "quarantine")
    assert caught.value.id == "NULL_VALUE"
    assert "a key column" in caught.value.need
    assert "1 nulls in 2 rows" in caught.value.got


def test_a_policy_is_one_of_two() -> None:
    with pytest.raises(AnabranchError) as caught:
        admit(_timed(START_US), SPEC, BOUNDS, "ignore")
    assert caught.value.id == "BAD_ARGUMENT"


NESTED = StreamSpec.declare(
    "nested",
    "f FLOAT, d DECIMAL(10, 2), s ARRAY<STRING>, i ARRAY<INT>, m MAP<STRING, INT>, t ARRAY<TIMESTAMP>, "
    "n ARRAY<TIMESTAMP_NTZ>, r STRUCT<x: INT, y: STRING>, a ARRAY<MAP<STRING, FLOAT>>, w TIMESTAMP_NTZ, ts TIMESTAMP",
    event_time="ts",
)
EMPTY = {
    "a": None,
    "w": None,
    "f": None,
    "d": None,
    "s": None,
    "i": None,
    "m": None,
    "t": None,
    "n": None,
    "r": None,
    "ts": NOON,
}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("f", 1e300),
        ("d", Decimal("1.234")),
        ("d", 10**9),
        ("s", [1, 2]),
        ("i", [True]),
        ("i", [1.5]),
        ("m", [("k", "1")]),
        ("t", [datetime(2026, 1, 1)]),  # noqa: DTZ001
        ("n", [NOON]),
        ("r", {"x": 1, "y": "a", "z": 2}),
        ("r", {"x": "1", "y": "a"}),
        ("ts", pd.Timestamp(1, unit="ns", tz="UTC")),
        ("ts", [1, 2]),
        ("w", pd.Timestamp(1, unit="ns")),
        ("t", [pd.Timestamp(1, unit="ns", tz="UTC")]),
        ("a", [{"k": 1e300}]),
        ("a", [{"k": "1"}]),
    ],
)
def test_no_value_changes_on_its_way(column: str, value: Any) -> None:
    with pytest.raises(AnabranchError) as caught:
        to_table([{**EMPTY, column: value}], NESTED)
    assert caught.value.id in ("WRONG_TYPE", "TIME_ZONE")
    assert f"column {column!r}" in caught.value.place


@pytest.mark.parametrize(
    ("column", "value", "stored"),
    [
        ("f", 0.5, 0.5),
        ("f", float("-inf"), float("-inf")),
        ("d", 5, Decimal("5.00")),
        ("d", Decimal("1.5"), Decimal("1.50")),
        ("m", {"k": 1}, [("k", 1)]),
        ("r", {"y": "a", "x": 1}, {"x": 1, "y": "a"}),
        ("r", {"x": 1}, {"x": 1, "y": None}),
        ("a", [{"k": 0.5}, None], [[("k", 0.5)], None]),
        ("t", [NOON], [NOON]),
    ],
)
def test_what_fits_goes_in(column: str, value: Any, stored: Any) -> None:
    table = to_table([{**EMPTY, column: value}, EMPTY], NESTED)
    assert table[column].to_pylist()[0] == stored


@pytest.mark.parametrize(
    "column",
    [
        {"s": pa.array([[1]], pa.list_(pa.int64()))},
        {"i": pa.array([[True]], pa.list_(pa.bool_()))},
        {"t": pa.array([[0]], pa.list_(pa.timestamp("us")))},
        {"n": pa.array([[0]], pa.list_(pa.timestamp("us", "UTC")))},
        {"m": pa.array([[("k", "1")]], pa.map_(pa.string(), pa.string()))},
        {"r": pa.array([{"x": 1, "y": "a", "z": 1}])},
        {"f": pa.array([1e300])},
        {"a": pa.array([[[("k", 1e300)]]], pa.list_(pa.map_(pa.string(), pa.float64())))},
    ],
)
def test_no_arrow_value_changes_on_its_way(column: dict[str, pa.Array]) -> None:
    table = pa.table({**{f.name: pa.nulls(1, f.arrow.type) for f in NESTED.schema}, **column})
    with pytest.raises(AnabranchError) as caught:
        to_table(table, NESTED)
    assert caught.value.id == "WRONG_TYPE"


@pytest.mark.parametrize("when", [datetime(2026, 3, 29, 2, 30), datetime(2026, 10, 25, 2, 30)])  # noqa: DTZ001
def test_local_times_that_are_none_or_two(when: datetime) -> None:
    rows = [{**ROW, "ts": when}]
    for data in (rows, pd.DataFrame(rows)):
        with pytest.raises(AnabranchError) as caught:
            to_table(data, SPEC, time_zone="Europe/Paris")
        assert caught.value.id == "TIME_ZONE"
