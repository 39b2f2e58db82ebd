"""Zero has no sign in what is written, however deep it lies."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.log.segments import write_segments
from anabranch.log.zeros import unsigned
from tests.unit.test_segments import layout, timed

NAN = float("nan")


def signed(value: Any) -> bool:
    """Whether there is a zero with a sign anywhere in a value."""
    if isinstance(value, dict):
        return any(map(signed, value.values()))
    if isinstance(value, list | tuple):
        return any(map(signed, value))
    return isinstance(value, float) and value == 0 and math.copysign(1, value) < 0


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [-0.0, 0.0, None, 1.5, -1e-300, float("inf")]),
        (pa.float32(), [-0.0, None, -2.5]),
        (pa.list_(pa.float64()), [[-0.0, 1.0], None, [], [None, -0.0], [3.5]]),
        (pa.large_list(pa.float32()), [[-0.0], None]),
        (pa.struct([("a", pa.float64()), ("b", pa.string())]), [{"a": -0.0, "b": "x"}, None, {"a": None, "b": None}]),
        (pa.map_(pa.string(), pa.float64()), [[("x", -0.0)], None, [("y", None), ("z", 2.0)], []]),
        (pa.map_(pa.float64(), pa.int32()), [[(-0.0, 1)], [(1.0, 2)]]),
        (pa.list_(pa.struct([("m", pa.list_(pa.float64()))])), [[{"m": [-0.0]}, None], [{"m": None}], None]),
        (pa.list_(pa.string()), [["-0.0"], None]),
    ],
    ids=str,
)
def test_every_value_stays_but_for_the_sign_of_zero(kind: pa.DataType, values: list[Any]) -> None:
    """Of whole columns, and of parts of them, which share what lies below."""
    array = pa.array([*values, *values, *values], kind)
    for column in (array, array.slice(1), array.slice(len(values), len(values)), array.slice(2, 0)):
        found = unsigned(pa.table({"v": pa.chunked_array([column, column])}))
        found.validate(full=True)
        assert found.schema == pa.schema([("v", kind)])
        assert found["v"].to_pylist() == [*column.to_pylist(), *column.to_pylist()], "-0.0 == 0.0"
        assert not signed(found["v"].to_pylist())


def test_no_number_is_lost() -> None:
    column = pa.array([NAN, 5e-324, -5e-324, 1.7e308], pa.float64())
    assert repr(unsigned(pa.table({"v": column}))["v"].to_pylist()) == repr(column.to_pylist())


def test_segments_have_no_signed_zero(tmp_path: Path) -> None:
    table = timed(1, 2, 3).append_column("d", pa.array([-0.0, 0.0, 2.0]))
    (written,) = write_segments(layout(tmp_path), table)
    assert not signed(pq.read_table(tmp_path / written.path)["d"].to_pylist())
