"""Laws that hold for any input: progress, ranges, types, stamps."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from anabranch.log.intervals import class_mask, merge_ranges, starts_to_search, width_class
from anabranch.log.segments import SegmentLayout, cut, write_segments
from anabranch.model.progress import Progress
from anabranch.model.stamp import next_stime
from anabranch.model.time import duration_text, duration_us

MICROS = st.integers(-(2**55), 2**55)
SOURCES = st.sampled_from(["a", "b", "c"])
BUCKET = st.dictionaries(SOURCES, st.integers(0, 100), max_size=3)


@given(st.lists(BUCKET), st.integers(0, 20), st.none() | st.integers(0, 20))
def test_progress_only_rises_and_follows_its_definition(
    buckets: list[dict[str, int]], slack: int, drift: int | None
) -> None:
    progress = Progress(slack, drift)
    seen: dict[str, int] = {}
    before: int | None = None
    for bucket in buckets:
        value = progress.advance(bucket)
        for source, time in bucket.items():
            seen[source] = max(time - slack, seen.get(source, time - slack))
        terms = [t for t in (before,) if t is not None]
        if seen:
            terms.append(min(seen.values()))
            if drift is not None:
                terms.append(max(seen.values()) - drift)
        assert value == max(terms, default=None)
        assert before is None or (value is not None and value >= before)
        before = value


@given(st.lists(st.tuples(SOURCES, st.integers(0, 100))), st.randoms(use_true_random=False))
def test_within_a_bucket_order_does_not_matter(rows: list[tuple[str, int]], chance: object) -> None:
    shuffled = list(rows)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    results = []
    for order in (rows, shuffled):
        latest: dict[str, int] = {}
        for source, time in order:
            latest[source] = max(time, latest.get(source, time))
        results.append(Progress(slack=3, drift=5).advance(latest))
    assert results[0] == results[1]


@given(st.lists(st.tuples(MICROS, MICROS)), MICROS, MICROS)
def test_width_classes_find_every_overlap(ends: list[tuple[int, int]], low: int, high: int) -> None:
    ranges = [(min(pair), max(pair)) for pair in ends]
    mask = class_mask(width_class(a, b) for a, b in ranges)
    search = dict(starts_to_search(mask, low))
    for a, b in ranges:
        overlaps = b >= low and a < high
        found = a >= search[width_class(a, b)] and b >= low and a < high
        assert overlaps == found


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)).map(lambda p: (p[0], p[0] + p[1]))))
def test_merged_ranges_cover_the_same_numbers(ranges: list[tuple[int, int]]) -> None:
    merged = merge_ranges(list(ranges))
    numbers = {n for a, b in ranges for n in range(a, b + 1)}
    assert {n for a, b in merged for n in range(a, b + 1)} == numbers
    assert all(a2 > b1 + 1 for (_, b1), (a2, _) in itertools.pairwise(merged))


@given(st.lists(st.integers(0, 1000)))
def test_stamps_strictly_rise_whatever_the_clock_does(clock: list[int]) -> None:
    last = 0
    for now in clock:
        stamp = next_stime(last, now)
        assert stamp > last
        assert stamp >= now
        last = stamp


@given(st.integers(0, 2**52))
def test_durations_read_back(micros: int) -> None:
    assert duration_us(duration_text(micros), "law") == micros


TIMES = st.lists(st.none() | st.integers(-(10**12), 10**12), max_size=60)


@given(TIMES, st.integers(1, 10**10), st.integers(1, 8), st.integers(1, 20))
def test_cutting_keeps_every_row_once(times: list[int | None], span: int, least: int, most: int) -> None:
    table = pa.table({"n": pa.array(range(len(times)), pa.int64()), "ts": pa.array(times, pa.timestamp("us", "UTC"))})
    layout = SegmentLayout("", "", "ts", span=span, least_rows=least, most_rows=most)
    pieces = cut(table, layout)
    assert sorted(n for piece in pieces for n in piece["n"].to_pylist()) == list(range(len(times)))
    known = [t for t in times if t is not None]
    for piece in pieces:
        assert 0 < piece.num_rows <= most
        here = [t for t in pa.compute.cast(piece["ts"], pa.int64()).to_pylist() if t is not None]
        if here and max(here) > max(known) - span:
            assert min(here) >= max(known) - span, "the newest span shares no segment with what is older"


@given(TIMES.filter(bool))
def test_segment_figures_are_those_of_its_rows(times: list[int | None]) -> None:
    table = pa.table({"n": pa.array(range(len(times)), pa.int64()), "ts": pa.array(times, pa.timestamp("us", "UTC"))})
    with tempfile.TemporaryDirectory() as root:
        Path(root, "d").mkdir()
        for segment in write_segments(SegmentLayout(root, "d", "ts", key="n", least_rows=3), table):
            stored = pq.read_table(f"{root}/{segment.path}")
            micros = [t for t in pa.compute.cast(stored["ts"], pa.int64()).to_pylist() if t is not None]
            assert segment.rows == stored.num_rows
            assert (segment.event_min, segment.event_max) == (min(micros, default=None), max(micros, default=None))
            assert (segment.key_min, segment.key_max) == (
                str(min(stored["n"].to_pylist())),
                str(max(stored["n"].to_pylist())),
            )
