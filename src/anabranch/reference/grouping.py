"""Aggregate, and its two halves Partials and Consolidate.

A group is a window and keys. Its result is a row with the window's ends `_open` and `_close`, the keys and the
results; its event time is the window's last instant. A group is said once the input's progress has reached its
close, and only while it has rows. A running aggregate has no window and its rows no event time; without keys it
always has its one row, as in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.model.errors import AnabranchError
from anabranch.model.window import Window
from anabranch.reference.aggregates import Observation, State, final, partial, reduce
from anabranch.reference.expressions import ExpressionFailed, compile_expression, not_supported
from anabranch.reference.joining import columns_seen
from anabranch.reference.rows import WeightedRow
from anabranch.reference.values import Failed, Refused, Timestamp, Value, canonical

Rows = Iterable[WeightedRow]


class Group(NamedTuple):
    """When the window, or pane, opens, and the keys; None for all of time."""

    opens: int | None
    keys: tuple[Value, ...]


class Partial(NamedTuple):
    """How many rows a group has, and the partial result of each call over them."""

    rows: int
    states: tuple[State, ...]


def aggregate(box: Aggregate, rows: Rows, progress: int | None, include_open: bool) -> list[WeightedRow]:
    window = box.window
    places = _all_of_time if window is None else lambda row: window.opens(_event_time(row))
    found = _gather(box, rows, places)
    return _results(box, [call.function for call in box.calls], found, progress, include_open)


def partials(box: Partials, rows: Rows) -> dict[Group, Partial]:
    """The partial results of each group in each pane."""
    pane = box.pane
    return _gather(box, rows, _all_of_time if pane is None else lambda row: [_pane(box, _event_time(row))])


def consolidate(
    box: Consolidate, panes: Mapping[Group, Partial], progress: int | None, include_open: bool
) -> list[WeightedRow]:
    """The partial results of each window's panes merged and finished, over the keys that are kept."""
    window, below = box.window, box.input
    assert window is None or (below.pane and window.pane % below.pane == 0), "a window is a whole number of panes"
    keys = [[key.name for key in below.keys].index(name) for _, name in box.keys]
    calls = [[call.name for call in below.calls].index(name) for _, name in box.calls]
    found: dict[Group, Partial] = {}
    for pane, part in panes.items():
        for opens in [None] if window is None else window.opens(pane.opens or 0):
            group = Group(opens, tuple(pane.keys[key] for key in keys))
            mine = tuple(part.states[call] for call in calls)
            before = found.get(group, Partial(0, ({},) * len(calls)))
            states = tuple(reduce(*pair) for pair in zip(before.states, mine, strict=True))
            found[group] = Partial(before.rows + part.rows, states)
    return _results(box, [below.calls[call].function for call in calls], found, progress, include_open)


def progress_of(window: Window | None, progress: int | None) -> int | None:
    """The progress of an aggregate's results."""
    return progress if window is None else window.progress(progress)


def _gather(
    box: Aggregate | Partials, rows: Rows, places: Callable[[WeightedRow], Iterable[int | None]]
) -> dict[Group, Partial]:
    """The rows of each group, reduced to a partial result."""
    seen = columns_seen(box.input)
    keys = [compile_expression(key.expression, seen) for key in box.keys]
    calls = [reducer(call, seen) for call in box.calls]
    groups: dict[Group, list[WeightedRow]] = {}
    for row in rows:
        of = tuple(canonical(key(row.values)) for key in keys)
        for opens in places(row):
            groups.setdefault(Group(opens, of), []).append(row)
    return {
        group: Partial(sum(row.weight for row in members), tuple(call(members) for call in calls))
        for group, members in groups.items()
    }


def reducer(call: Call, columns: Sequence[str]) -> Callable[[Rows], State]:
    """The call as a function from a group's rows to its partial result."""
    arguments = [compile_expression(argument, columns) for argument in call.arguments]
    where = None if call.where is None else compile_expression(call.where, columns)

    def reducer(rows: Rows) -> State:
        seen = [
            Observation(tuple(argument(row.values) for argument in arguments), row.weight, row.order)
            for row in rows
            if where is None or where(row.values) is True
        ]
        try:
            return partial(call.function, seen)
        except Refused as refused:
            raise not_supported(f"aggregate {call}", str(refused)) from None

    return reducer


def _results(
    box: Aggregate | Consolidate,
    functions: Sequence[str],
    found: Mapping[Group, Partial],
    progress: int | None,
    include_open: bool,
) -> list[WeightedRow]:
    """The rows of the groups that are to be said."""
    window = box.window
    if window is None and not box.keys:
        found = {Group(None, ()): Partial(0, ({},) * len(functions)), **found}
        return [_result(box, functions, group, part) for group, part in found.items()]
    return [
        _result(box, functions, group, part)
        for group, part in found.items()
        if part.rows > 0 and (include_open or window is None or _closed(window, group, progress))
    ]


def _closed(window: Window, group: Group, progress: int | None) -> bool:
    assert group.opens is not None
    return progress is not None and group.opens + window.size <= progress


def _result(box: Aggregate | Consolidate, functions: Sequence[str], group: Group, part: Partial) -> WeightedRow:
    ends: tuple[Value, ...] = ()
    event_time = None
    if box.window is not None:
        assert group.opens is not None
        close = group.opens + box.window.size
        shown = [Timestamp(end - box.window.offset) for end in (group.opens, close)]
        ends, event_time = tuple(shown), close - 1
    finished = [finish(function, state) for function, state in zip(functions, part.states, strict=True)]
    values = dict(zip(box.columns, (*ends, *group.keys, *finished), strict=True))
    return WeightedRow(values, event_time, group=(group.opens, *group.keys))


def _pane(box: Partials, instant: int) -> int:
    assert box.pane is not None
    return instant - (instant - box.offset) % box.pane


def finish(function: str, state: State) -> Value:
    """The result of a call, from its partial result."""
    try:
        return final(function, state)
    except Refused as refused:
        raise not_supported(f"aggregate {function}", str(refused)) from None
    except Failed as failed:
        raise ExpressionFailed(function, str(failed)) from None


def _all_of_time(row: WeightedRow) -> Iterable[int | None]:
    return [None]


def _event_time(row: WeightedRow) -> int:
    if row.event_time is None:
        raise AnabranchError(
            "BAD_EVENT_TIME",
            place="window",
            need="rows with an event time",
            got=f"a row without one: {dict(row.values)}",
            next_step="A running aggregate's rows have none: give it a window, or put no window over it.",
        )
    return row.event_time
