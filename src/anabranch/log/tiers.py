"""Which small segments are rewritten together, so that there are few however long a log grows.

Segments are put into cells of event time, and a cell is the wider the older it is: about an eighth of its age, an
hour at least. So a log of a year has some dozens of cells, and reading a stretch of event time opens what is
near to it. Within a cell segments of about the same size become one when there are eight of them, so a row is
rewritten once for each power of eight; a cell that the log has passed becomes one segment as soon as that doubles,
or nearly, its largest. What has no event time, and what is wider than its cell, is put together by its size alone;
once there is enough of what is wide, it is cut by cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.log.segments import MOST_ROWS, SPAN_US
from anabranch.model.run import LoggedSegment

FAN = 8
# A cell is at most this part of its age.
_PART = 8
# A passed cell becomes one segment if that has at least so many times the rows of its largest.
_GAIN = 1.5

Cell = tuple[Any, ...]


@dataclass(frozen=True)
class Cells:
    """The cells of a stream: `newest` is its highest event time, `widest` the most that a cell may span."""

    newest: int | None
    widest: int | None = None

    def width_at(self, time: int) -> int:
        """How wide the cell of an event time is: an hour, doubled as often as its age allows."""
        age = 0 if self.newest is None else max(self.newest - time, 0)
        width = SPAN_US
        while width * 2 * _PART <= age and (self.widest is None or width * 2 <= self.widest):
            width *= 2
        return width

    def starts_of(self, times: np.ndarray) -> np.ndarray:
        """Where the cell of each event time begins."""
        starts = np.empty_like(times)
        for time in np.unique(np.floor_divide(times, SPAN_US)) * SPAN_US:
            width = self.width_at(int(time))
            inside = (times >= time) & (times < time + SPAN_US)
            starts[inside] = time // width * width
        return starts

    def of(self, logged: LoggedSegment) -> Cell:
        low, high = logged.segment.event_min, logged.segment.event_max
        if low is None or high is None:
            return ("timeless",)
        width = self.width_at(high)
        if low // width != high // width:
            return ("wide",)
        return ("cell", width, low // width)

    def is_wide(self, group: Iterable[LoggedSegment]) -> bool:
        return any(self.of(logged) == ("wide",) for logged in group)

    def passed(self, cell: Cell) -> bool:
        """Whether the stream has come beyond a cell."""
        return cell[0] == "cell" and self.newest is not None and bool((cell[2] + 1) * cell[1] <= self.newest)


def choose_groups(segments: Iterable[LoggedSegment], cells: Cells, fan: int = FAN) -> list[list[LoggedSegment]]:
    """Groups of segments, each to be rewritten as one."""
    found: dict[Cell, list[LoggedSegment]] = {}
    for logged in segments:
        found.setdefault(cells.of(logged), []).append(logged)
    chosen = []
    for cell, those in found.items():
        chosen += _within(sorted(those, key=_order), cells.passed(cell), fan)
    return chosen


def _order(logged: LoggedSegment) -> tuple[int, int, int, str]:
    low = logged.segment.event_min
    return (low is None, low or 0, logged.last_position or 0, logged.segment.path)


def _within(found: Sequence[LoggedSegment], passed: bool, fan: int) -> list[list[LoggedSegment]]:
    """What of one cell is rewritten together, in groups of a bounded number of rows."""
    levels: dict[int, list[LoggedSegment]] = {}
    for logged in found:
        levels.setdefault(_level(logged.segment.rows), []).append(logged)
    full = [level for level, those in levels.items() if len(those) >= fan]
    if full:
        return _bounded(levels[min(full)])
    rows = [logged.segment.rows for logged in found]
    if passed and len(found) > 1 and sum(rows) >= _GAIN * max(rows):
        return _bounded(found)
    return []


def _level(rows: int) -> int:
    """The power of eight that a number of rows reaches."""
    return (max(rows, 1).bit_length() - 1) // 3


def _bounded(found: Sequence[LoggedSegment]) -> list[list[LoggedSegment]]:
    groups: list[list[LoggedSegment]] = []
    rows = 0
    for logged in found:
        if not groups or rows + logged.segment.rows > MOST_ROWS:
            groups.append([])
            rows = 0
        rows += logged.segment.rows
        groups[-1].append(logged)
    return [group for group in groups if len(group) > 1]
