"""Compaction in tiers: few segments however long the log grows, each row rewritten seldom, and then rest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.log.segments import SPAN_US
from anabranch.log.tiers import FAN, Cells, choose_groups
from anabranch.model.run import LoggedSegment, Segment

HOUR = SPAN_US
MINUTE = HOUR // 60


def segment(number: int, low: int | None, high: int | None, rows: int) -> LoggedSegment:
    its = Segment(f"{number}.parquet", rows, rows, low, high)
    return LoggedSegment(its, number, number)


class Pile:
    """A log's segments, compacted after every eighth step; rows are only counted."""

    def __init__(self, widest: int | None = None) -> None:
        self.segments: list[LoggedSegment] = []
        self.newest = 0
        self.widest = widest
        self.rewritten = self.rows = self.jobs = self._number = 0

    def add(self, low: int, high: int, rows: int) -> None:
        self._number += 1
        self.rows += rows
        self.newest = max(self.newest, high)
        self.segments.append(segment(self._number, low, high, rows))

    def compact(self) -> int:
        cells = Cells(self.newest, self.widest)
        groups = choose_groups(self.segments, cells)
        for group in groups:
            gone = {id(logged) for logged in group}
            self.segments = [logged for logged in self.segments if id(logged) not in gone]
            self._number += 1
            low = min(s.segment.event_min for s in group)  # type: ignore[type-var]
            high = max(s.segment.event_max for s in group)  # type: ignore[type-var]
            rows = sum(s.segment.rows for s in group)
            self.rewritten += rows
            self.segments.append(segment(self._number, low, high, rows))
        self.jobs += bool(groups)
        return len(groups)


def test_a_year_of_steps_leaves_some_dozens_of_segments() -> None:
    """One step of five rows in two minutes: the number grows with the logarithm of the age."""
    pile, found = Pile(), {}
    for step in range(1, 20_001):
        pile.add(step * 2 * MINUTE, step * 2 * MINUTE + MINUTE, 5)
        if step % 8 == 0:
            pile.compact()
        if step in (500, 2_000, 10_000, 20_000):
            found[step] = len(pile.segments)
    assert found[10_000] < 1.6 * found[2_000]
    assert found[20_000] < 100
    assert pile.rewritten < 12 * pile.rows, "a row is rewritten a few times in its life"


def test_what_is_near_is_narrow() -> None:
    """Reading a minute opens segments that span no more than an eighth of its age, or an hour."""
    pile = Pile()
    for step in range(5_000):
        pile.add(step * 2 * MINUTE, step * 2 * MINUTE + MINUTE, 5)
        if step % 8 == 0:
            pile.compact()
    for logged in pile.segments:
        low, high = logged.segment.event_min, logged.segment.event_max
        assert low is not None
        assert high is not None
        assert high - low <= max(HOUR, (pile.newest - high) // 8)


def test_late_rows_do_not_rewrite_what_is_large() -> None:
    pile = Pile()
    for step in range(3_000):
        pile.add(step * 2 * MINUTE, step * 2 * MINUTE + MINUTE, 1_000)
        late = (step * 7919) % max(step, 1) * 2 * MINUTE
        pile.add(late, late, 1)
        if step % 8 == 0:
            pile.compact()
    assert len(pile.segments) < 1_200
    assert pile.rewritten < 14 * pile.rows


@given(st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 300), st.integers(1, 200_000)), max_size=60))
def test_compaction_comes_to_rest(segments: list[tuple[int, int, int]]) -> None:
    pile = Pile()
    for low, width, rows in segments:
        pile.add(low * MINUTE, (low + width) * MINUTE, rows)
    rounds = 0
    while pile.compact():
        rounds += 1
        assert rounds < 20, "what was rewritten is not rewritten again and again"
    assert sum(s.segment.rows for s in pile.segments) == pile.rows
    wide = [s for s in pile.segments if Cells(pile.newest).of(s) == ("wide",)]
    assert len(wide) < FAN * 7


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=200))
def test_rows_cut_by_cells_are_narrow(minutes: list[int]) -> None:
    times = np.sort(np.array(minutes)) * MINUTE
    cells = Cells(int(times[-1]))
    starts = cells.starts_of(times)
    for start in np.unique(starts):
        inside = times[starts == start]
        its = segment(1, int(inside[0]), int(inside[-1]), len(inside))
        assert cells.of(its)[0] == "cell", "a segment of them is never wide again"


def test_a_history_bound_keeps_segments_narrow() -> None:
    """What retention lets go of at different times is not joined."""
    cells = Cells(1000 * HOUR, 2 * HOUR)
    assert cells.width_at(0) == 2 * HOUR
    assert Cells(1000 * HOUR).width_at(0) == 64 * HOUR


@pytest.mark.parametrize("many", [FAN - 1, FAN])
def test_what_has_no_time_goes_by_size(many: int) -> None:
    those = [segment(n, None, None, 3) for n in range(many)]
    chosen = choose_groups([*those, segment(99, None, None, 5_000)], Cells(None))
    assert [len(group) for group in chosen] == ([many] if many == FAN else [])
