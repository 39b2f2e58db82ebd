"""Windows and panes, and how far a change reaches through boxes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.expression import Expression, Named
from anabranch.diagram.progress import progress_of
from anabranch.diagram.reach import BEGINNING, END, EVERYTHING, dirty, join, needed
from anabranch.model.window import Window

PARTIALS = Partials(Source("s", ("n",)), 5, (), (Call("_a0", "count"),))


def counts(window: Window | None) -> Consolidate:
    return Consolidate(PARTIALS, window, (), (("_a0", "_a0"),))


@given(st.integers(1, 40), st.integers(1, 12), st.integers(-500, 500))
def test_windows_hold_the_instants_that_they_should(advance: int, many: int, instant: int) -> None:
    window = Window(advance * many, advance)
    opens = [o for o in range(-1000, 1000) if o % advance == 0 and o <= instant < o + window.size]
    assert list(window.opens(instant)) == opens
    assert window.next_close(instant) == min(c for c in range(instant + 1, instant + 2 * window.size + advance + 1)
                                             if (c - window.size) % advance == 0)  # fmt: skip


def test_a_pane_divides_size_and_advance() -> None:
    assert Window(15, 6).pane == 3
    assert Window(15, 15).tumbles
    assert Window(30, 15).holds(Window(5, 5))
    assert not Window(30, 15).holds(Window(10, 10)), "an advance of 15 cuts a slice of 10"
    assert not Window(30, 15).holds(Window(10, 5)), "a row would be counted in several inner windows"


def test_windows_are_written_as_they_are_read() -> None:
    assert str(Window(60_000_000, 60_000_000)) == "<SLICES '1 minute'>"
    assert str(Window(900_000_000, 300_000_000)) == "<VISIBLE '15 minutes' ADVANCE '5 minutes'>"


def test_progress_passes_through_windows() -> None:
    five = counts(Window(5, 5))
    assert progress_of(five, {"s": 12}) == 14, "the next result is at 14, one before its close"
    fifteen = Aggregate(Map(five, (Named("c", Expression("_a0")),)), Window(15, 15), (), ())
    assert progress_of(fifteen, {"s": 12}) == 14
    assert progress_of(fifteen, {"s": 15}) == 29
    assert progress_of(five, {"s": None}) is None
    assert progress_of(counts(None), {"s": 7}) == 7


def test_intervals_join_and_stay_few() -> None:
    assert join([]) == ()
    assert join([(3, 2)]) == (), "an empty interval is none"
    assert join([(1, 2), (3, 4), (10, 11)]) == ((1, 4), (10, 11))
    assert join([(0, 0), (2, 2), (100, 100)], most=2) == ((0, 2), (100, 100)), "the nearest ones are joined"


def test_what_closes_and_what_is_touched_is_dirty() -> None:
    five = counts(Window(5, 5))
    assert dirty(five, lambda _: (), {"s": 10}, {"s": 20}) == ((14, 19),), "windows that closed"
    assert dirty(five, lambda _: ((0, 0),), {"s": 10}, {"s": 10}) == ((4, 4),), "the window of a late pane"
    assert dirty(five, lambda _: ((25, 25),), {"s": 10}, {"s": 10}) == (), "an open window says nothing"
    assert dirty(five, lambda _: (), {}, {"s": 10}) == ((BEGINNING, 9),), "everything, if nothing was said before"
    assert dirty(counts(None), lambda _: ((0, 0),), {"s": 1}, {"s": 1}) == EVERYTHING


def test_a_change_reaches_up_and_its_needs_reach_down() -> None:
    five = counts(Window(5, 5))
    fifteen = Aggregate(five, Window(15, 15), (), ())
    changed = dirty(fifteen, lambda _: ((0, 0),), {"s": 30}, {"s": 30})
    assert changed[0][0] == 14, "the result of the window from 0 to 15, and perhaps more"
    panes = needed(fifteen, changed)[PARTIALS]
    assert panes[0][0] <= 0, "all panes of the outer window are needed"
    assert panes[0][1] >= 14


@given(
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 30), st.integers(0, 20),
    st.lists(st.integers(0, 40), max_size=4),
)  # fmt: skip
def test_dirty_names_every_result_that_differs(size: int, advance: int, outer: int, was: int, more: int,
                                               touched: list[int]) -> None:  # fmt: skip
    """Against a slow meaning: windows whose rows or closing changed."""
    window = Window(max(size, advance), advance)
    box = Consolidate(Partials(Source("s", ()), 1, (), ()), window, (), ())
    top = Aggregate(box, Window(outer * 3, outer), (), ())
    now = was + more
    found = dirty(top, lambda _: [(t, t) for t in touched], {"s": was}, {"s": now})
    inner_now, inner_was = window.next_close(now) - 1, window.next_close(was) - 1
    changed = {
        o + window.size
        for o in range(-20, 60)
        if o % advance == 0
        and o + window.size <= now
        and (o + window.size > was or any(o <= t < o + window.size for t in touched))
    }
    results = {c - 1 for c in changed}
    for o in range(-20, 80):
        close = o + outer * 3
        if o % outer or close > inner_now:
            continue
        if close > inner_was or any(o <= r < close for r in results):
            assert any(low <= close - 1 <= high for low, high in found), (close, found)


def test_needs_of_a_running_aggregate_are_everything() -> None:
    assert needed(counts(None), EVERYTHING)[PARTIALS] == ((BEGINNING, END),)
