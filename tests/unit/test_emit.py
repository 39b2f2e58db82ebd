"""Rows of several buckets, written by one task."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.engine.emit import BucketWriter
from anabranch.model.run import Segment
from anabranch.model.schema import Schema
from tests.unit.test_segments import layout


@pytest.mark.parametrize("buckets", [[7, 7, 7], [3, 3, 5], [5, 3, 5], [5, 3, 4, 3, 5]])
def test_buckets_are_written_apart_in_whatever_order_their_rows_come(tmp_path: Path, buckets: list[int]) -> None:
    schema = Schema.parse("n INT, ts TIMESTAMP, _bucket BIGINT", "a test")
    many = len(buckets)
    times = pa.array(range(many), pa.timestamp("us", "UTC"))
    table = pa.table({"n": pa.array(range(many), pa.int32()), "ts": times, "_bucket": pa.array(buckets, pa.int64())})
    found: dict[int, list[int]] = {}
    for report in BucketWriter(layout(tmp_path), schema).written(table):
        assert report["bucket"] not in found
        paths = [tmp_path / Segment.from_json(text).path for text in report["segments"]]
        found[report["bucket"]] = [n for path in paths for n in pq.read_table(path)["n"].to_pylist()]
        assert report["rows"] == len(found[report["bucket"]])
    assert found == {bucket: [n for n in range(many) if buckets[n] == bucket] for bucket in sorted(set(buckets))}
