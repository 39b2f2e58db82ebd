"""How partial results are shared out among tasks by time, and what is read of each segment."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from anabranch.engine.columnar.kernel import Planned, _given
from anabranch.engine.columnar.shares import FOREVER, Kept, Share, shares
from anabranch.log.segments import SegmentLayout
from anabranch.model.run import Segment

ROOT = Path("/w")


def segment(name: str, low: int | None, high: int | None, rows: int = 100) -> Segment:
    return Segment(name, rows, 1, low, high)


def names(share: Share) -> list[str]:
    return [Path(file.path).name for file in share.files]


def test_every_window_is_in_one_share_with_all_segments_that_it_needs() -> None:
    chance = np.random.default_rng(3)
    segments = []
    for n in range(40):
        low = int(chance.integers(0, 10_000))
        segments.append(segment(str(n), low, low + int(chance.integers(0, 800)), int(chance.integers(1, 1000))))
    segments.append(segment("timeless", None, None))
    size = 60
    made = shares(segments, ROOT, 4, size)
    assert 2 <= len(made) <= 4
    for close in range(0, 11_000, 7):
        (mine,) = [share for share in made if share.low <= close < share.high]
        needed = {s.path for s in segments if s.meets([(close - size, close - 1)])}
        assert needed <= set(names(mine))


def test_shares_have_about_as_many_rows() -> None:
    segments = [segment(str(hour), hour * 60, hour * 60 + 59, 1000) for hour in range(24)]
    made = shares(segments, ROOT, 3)
    assert [len(share.files) for share in made] == [8, 8, 8]


def test_what_is_said_counts_more_than_what_is_only_read() -> None:
    old = [segment(f"old {hour}", hour * 60, hour * 60 + 59, 1000) for hour in range(24)]
    new = [segment("new", 0, 25 * 60, 2000)]  # with late rows
    first, second = shares([*old, *new], ROOT, 2, closed=24 * 60)
    assert first.high > 20 * 60
    assert "new" in names(second)


def test_nothing_to_share_is_one_share() -> None:
    assert shares([], ROOT, 4) == (Share(()),)
    assert Share(()).rows() is None


def read(share: Share, panes: list[tuple[int, int]]) -> list[tuple[str, list[int]]]:
    """Which files are read, and between which instants."""
    sql = share.rows(panes) or ""
    parts = re.findall(r"read_parquet\(\[(.*?)\]\) WHERE (.*?)(?: UNION ALL |\)$)", sql)
    return [(files, [int(n) for n in re.findall(r"TIMESTAMPTZ\((-?\d+)\)", where)]) for files, where in parts]


def test_of_a_segment_only_what_is_needed_is_read() -> None:
    share = Share((Kept("a", 0, 1000), Kept("b", 2000, 3000), Kept("c", None, None)))
    assert read(share, [(100, 110), (500, 510), (4000, 4010)]) == [
        ("'a'", [100, 110]), ("'a'", [500, 510]), ("'c'", []),
    ]  # fmt: skip
    assert read(share, [(0, 900)]) == [("'a', 'c'", [])]


def test_a_share_reads_no_panes_of_others() -> None:
    share = Share((Kept("a", 0, 1000),), low=400, high=600, before=100)
    assert read(share, [(-FOREVER, FOREVER)]) == [("'a'", [300, 599])]


class Nothing:
    """Work that is only counted."""


def test_parts_of_many_works_are_given_to_few_tasks() -> None:
    layout = SegmentLayout("/w", "d", "t")
    many = [Planned(Nothing(), 1, 100, layout) for _ in range(10)]  # type: ignore[arg-type]
    given = _given(many, 4)
    assert [len(parts) for parts in given] == [2, 3, 2, 3]
    assert [at for parts in given for at, _ in parts] == list(range(10))
    alone = _given([Planned(Nothing(), 3, 5_000_000, layout)], 2)  # type: ignore[arg-type]
    assert alone == (((0, 0),), ((0, 1),), ((0, 2),))
    assert _given([], 4) == ()
