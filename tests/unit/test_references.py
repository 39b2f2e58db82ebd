"""Files by reference, seen without Spark: what they are, whether they fit, whether they changed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.log.references import expand, format_of, inspect, verify
from anabranch.model.errors import AnabranchError
from anabranch.model.run import Segment
from anabranch.model.stream import StreamSpec
from tests.conftest import START_US, make_spec

SPEC = make_spec(key="user")


def parquet(path: Path, **columns: pa.Array) -> str:
    times = pa.array([START_US, START_US + 5, None], pa.timestamp("us", "UTC"))
    given = {"user": pa.array([3, 1, 2], pa.int32()), "campaign": ["a", "b", None], "ts": times, **columns}
    pq.write_table(pa.table({k: v for k, v in given.items() if v is not None}), path)
    return str(path)


def test_a_footer_tells_what_is_inside(tmp_path: Path) -> None:
    facts = inspect(parquet(tmp_path / "f.parquet", _bucket=pa.array([1, 2, 3])), "parquet", SPEC, {})
    assert facts.complete
    assert (facts.rows, facts.event_min, facts.event_max) == (3, START_US, START_US + 5)
    assert facts.nulls == {"user": 0, "ts": 1}
    assert (facts.key_min, facts.key_max) == ("1", "3")


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_units_of_time(tmp_path: Path, unit: str) -> None:
    times = pa.array([START_US // (1000 if unit == "ms" else 1)] * 3, pa.timestamp(unit, "UTC"))
    facts = inspect(parquet(tmp_path / "f.parquet", ts=times), "parquet", SPEC, {})
    assert facts.event_min == START_US


def test_old_timestamps_need_a_scan(tmp_path: Path) -> None:
    path = parquet(tmp_path / "f.parquet")
    pq.write_table(pq.read_table(path), path, use_deprecated_int96_timestamps=True)
    assert not inspect(path, "parquet", SPEC, {}).complete


@pytest.mark.parametrize(
    ("columns", "error", "got"),
    [
        ({"campaign": None}, "UNKNOWN_COLUMN", "none named campaign"),
        ({"extra": pa.array([1, 2, 3])}, "UNKNOWN_COLUMN", "'extra'"),
        ({"_change_type": pa.array([1, 2, 3])}, "WRONG_TYPE", "BIGINT"),
        ({"user": pa.array([1, 2, 3], pa.int64())}, "WRONG_TYPE", "BIGINT"),
        ({"campaign": pa.array([1, 2, 3])}, "WRONG_TYPE", "BIGINT"),
        ({"ts": pa.array([1, 2, 3], pa.timestamp("us"))}, "TIME_ZONE", "TIMESTAMP_NTZ"),
        ({"ts": pa.array([1, 2, 3], pa.timestamp("ns", "UTC"))}, "WRONG_TYPE", "nanoseconds"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, columns: dict[str, pa.Array], error: str, got: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        inspect(parquet(tmp_path / "f.parquet", **columns), "parquet", SPEC, {})
    assert caught.value.id == error
    assert got in caught.value.got
    assert "f.parquet" in caught.value.place


def test_a_truncated_file_is_unreadable(tmp_path: Path) -> None:
    path = Path(parquet(tmp_path / "f.parquet"))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(AnabranchError) as caught:
        inspect(str(path), "parquet", SPEC, {})
    assert caught.value.id == "FILE_UNREADABLE"


def test_csv_headers_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("ts,user,campain\n")
    with pytest.raises(AnabranchError) as caught:
        inspect(str(path), "csv", SPEC, {})
    assert caught.value.id == "UNKNOWN_COLUMN"
    path.write_text('ts, user ,"campaign",_ordinal\n')
    assert inspect(str(path), "csv", SPEC, {}).options["columns"] == ["ts", "user", "campaign", "_ordinal"]


@pytest.mark.parametrize("name", ["f.parquet", "f.csv"])
def test_a_changed_file_is_noticed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("csv"):
        path.write_text("ts,user,campaign\n2026-01-01T00:00:00Z,1,a\n")
    else:
        parquet(path)
    kind = format_of(name, "test")
    facts = inspect(str(path), kind, SPEC, {})
    segment = Segment(str(path), 3, facts.size, footer=facts.footer, reference=True, format=kind)
    verify(segment, "impsns")
    content = path.read_bytes()
    path.write_bytes(content.replace(b"1", b"2"))
    with pytest.raises(AnabranchError) as caught:
        verify(segment, "impsns")
    assert caught.value.id == "FILE_CHANGED"
    path.write_bytes(content)
    verify(segment, "impsns")
    path.unlink()
    with pytest.raises(AnabranchError) as caught:
        verify(segment, "impsns")
    assert caught.value.id == "FILE_UNREADABLE"


def test_patterns_and_directories(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "_SUCCESS", ".hidden", "c.json"):
        (tmp_path / name).write_text("")
    assert [Path(p).name for p in expand(str(tmp_path / "*.csv"), "test")] == ["a.csv", "b.csv"]
    assert [Path(p).name for p in expand(tmp_path, "test")] == ["a.csv", "b.csv", "c.json"]
    assert len(expand([tmp_path / "a.csv", f"file://{tmp_path}/a.csv"], "test")) == 1
    for bad in ("nothing*.csv", "s3://b/x.csv"):
        with pytest.raises(AnabranchError):
            expand(str(tmp_path / bad) if "://" not in bad else bad, "test")


def test_formats_by_name() -> None:
    assert [format_of(n, "t") for n in ("a.parquet", "a.jsonl.gz", "A.CSV", "x.ndjson")] == [
        "parquet",
        "json",
        "csv",
        "json",
    ]
    with pytest.raises(AnabranchError, match="format="):
        format_of("a.log", "t")


def test_long_first_lines_and_other_alphabets(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("ts,user,campaign\n" + "é" * 70_000 + "\n", encoding="utf-8")
    assert inspect(str(path), "csv", SPEC, {}).options["columns"] == ["ts", "user", "campaign"]
    spec = StreamSpec.declare("sizes", "ts TIMESTAMP, größe INT", event_time="ts")
    path.write_text("ts,größe\n", encoding="latin-1")
    assert inspect(str(path), "csv", spec, {"encoding": "ISO-8859-1"}).options["columns"] == ["ts", "größe"]
    path = tmp_path / "f.jsonl"
    path.write_text('{"user": 1, "campaign": "' + "x" * 70_000 + '", "ts": "2026-01-01T00:00:00Z"}\n')
    inspect(str(path), "json", SPEC, {})


def test_doubled_slashes(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    assert expand(f"/{tmp_path}/a.csv", "test") == [str(tmp_path / "a.csv")]
