"""How runs are cut into segments, and what the catalog learns of them."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.log import segments
from anabranch.log.segments import SegmentLayout, cut, write_segments
from anabranch.model.errors import AnabranchError

HOUR = 3_600_000_000


def layout(root: Path, **options: int | str) -> SegmentLayout:
    (root / "d").mkdir(exist_ok=True)
    return SegmentLayout(str(root), "d", "ts", **{"least_rows": 3, **options})  # type: ignore[arg-type]


def timed(*micros: int | None) -> pa.Table:
    return pa.table({"n": list(range(len(micros))), "ts": pa.array(micros, pa.timestamp("us", "UTC"))})


def pieces(table: pa.Table, place: SegmentLayout) -> list[list[int]]:
    return [piece["n"].to_pylist() for piece in cut(table, place)]


def test_a_short_run_is_one_segment(tmp_path: Path) -> None:
    assert pieces(timed(0, HOUR, 5), layout(tmp_path)) == [[0, 1, 2]]


def test_late_rows_get_segments_of_their_own(tmp_path: Path) -> None:
    table = timed(50 * HOUR, 2 * HOUR, 50 * HOUR + 1, 3 * HOUR, 50 * HOUR - 5)
    assert pieces(table, layout(tmp_path)) == [[1, 3], [0, 2, 4]]


def test_dense_old_hours_are_kept_apart(tmp_path: Path) -> None:
    table = timed(*[HOUR] * 3, *[5 * HOUR] * 4, 9 * HOUR, 10 * HOUR, 90 * HOUR)
    assert pieces(table, layout(tmp_path)) == [[0, 1, 2], [3, 4, 5, 6], [7, 8], [9]]


def test_times_before_1970_and_missing_ones(tmp_path: Path) -> None:
    assert pieces(timed(-9 * HOUR, None, 0), layout(tmp_path)) == [[1], [0], [2]]


def test_large_runs_are_cut_by_rows(tmp_path: Path) -> None:
    assert pieces(timed(1, 2, 3, 4, 5), layout(tmp_path, most_rows=2)) == [[0, 1], [2, 3], [4]]


def test_figures_come_from_the_file(tmp_path: Path) -> None:
    (written,) = write_segments(layout(tmp_path, key="n"), timed(7, 5, 3))
    assert (written.rows, written.event_min, written.event_max) == (3, 3, 7)
    assert (written.key_min, written.key_max) == ("0", "2")
    path = tmp_path / written.path
    assert written.size == path.stat().st_size
    assert pq.read_table(path)["n"].to_pylist() == [0, 1, 2]


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = segments.pq.write_table
    calls = []

    def fails_second(table: pa.Table, path: str, **options: object) -> None:
        calls.append(path)
        real(table, path, **options)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(segments.pq, "write_table", fails_second)
    with pytest.raises(AnabranchError) as caught:
        write_segments(layout(tmp_path, most_rows=1), timed(1, 2, 3))
    assert caught.value.id == "DISK_FULL"
    assert len(calls) == 2
    assert list((tmp_path / "d").iterdir()) == []
