"""How far a change reaches: which results may differ, and what must be read to compute them.

New partial results touch panes; panes touch windows; results of windows touch windows above them. Going
up, `dirty` says at which event times results may have changed: where rows came in, and where progress
has closed windows. Going down, `needed` says which panes those results are made of. Both may name too
much, never too little: what did not change makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.progress import progress_into, window_of
from anabranch.model.window import Window

Interval = tuple[int, int]  # event times, both ends included
Progress = Mapping[str, int | None]

BEGINNING, END = -(1 << 62), 1 << 62
EVERYTHING: tuple[Interval, ...] = ((BEGINNING, END),)
_MOST = 64


def join(intervals: Iterable[Interval], most: int = _MOST) -> tuple[Interval, ...]:
    """Intervals in order, those that meet made one; if there are still too many, the nearest ones too.

    >>> join([(5, 6), (1, 3), (4, 4)])
    ((1, 6),)
    """
    joined: list[Interval] = []
    for low, high in sorted(i for i in intervals if i[0] <= i[1]):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    if len(joined) > most:
        gaps = sorted(range(1, len(joined)), key=lambda n: joined[n][0] - joined[n - 1][1], reverse=True)
        cuts = sorted(gaps[: most - 1])
        ends = [*cuts, len(joined)]
        joined = [(joined[a][0], joined[b - 1][1]) for a, b in zip([0, *cuts], ends, strict=True)]
    return tuple(joined)


def dirty(
    box: Box, touched: Callable[[Partials], Sequence[Interval]], before: Progress, after: Progress
) -> tuple[Interval, ...]:
    """The event times at which what comes out of a box may differ between two moments."""
    if isinstance(box, Partials):
        return tuple(touched(box))
    below = [interval for part in box.inputs for interval in dirty(part, touched, before, after)]
    window = window_of(box)
    if window is None:
        running = isinstance(box, Aggregate | Consolidate)
        return EVERYTHING if running and below else join(below)
    reached, was = progress_into(box, after), progress_into(box, before)
    if reached is None:
        return ()
    # A window's result is at its last instant. What touches an instant touches the windows that close after it, up to
    # a window's size later; and those that close between the two moments are new.
    found = [(_first_result(window, low), min(high + window.size, reached) - 1) for low, high in below]
    found.append((_first_result(window, BEGINNING if was is None else was), reached - 1))
    return join(found)


def _first_result(window: Window, after: int) -> int:
    """The first result of a window that closes after an instant."""
    return after if after <= BEGINNING else window.next_close(after) - 1


def needed(box: Box, results: Sequence[Interval]) -> dict[Partials, tuple[Interval, ...]]:
    """The panes that results at some event times are made of, for each of the partials below a box."""
    if isinstance(box, Partials):
        return {box: join(results)}
    window = window_of(box)
    if window is not None:
        results = [(max(low + 1 - window.size, BEGINNING), high) for low, high in results]
    elif isinstance(box, Aggregate | Consolidate):
        results = EVERYTHING
    found: dict[Partials, list[Interval]] = {}
    for part in box.inputs:
        for partials, intervals in needed(part, results).items():
            found.setdefault(partials, []).extend(intervals)
    return {partials: join(intervals) for partials, intervals in found.items()}
