"""The reference executor, box by box, on data small enough to check by hand. Times are in minutes."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.diagram.expression import Expression, Named
from anabranch.model.errors import AnabranchError
from anabranch.model.run import ChangeType
from anabranch.model.window import Window
from anabranch.reference.changes import changes
from anabranch.reference.expressions import ExpressionFailed
from anabranch.reference.rows import WeightedRow
from anabranch.reference.run import answer, identified
from anabranch.reference.values import Timestamp

MINUTE = 60_000_000
IMPSNS = Source("impsns", ("campaign", "price"))

# Figure 3: the input rows, in the order in which they came, cut where the control tuples stand.
FIG_3 = ([1, 3, 2, 4, 2, 1], [6, 2, 9, 7, 3], [12, 8, 4, 3, 9])
FIG_3_CONTROL = (5, 10, 15)


def row(minute: float | None, campaign: Any = 1, price: Any = 1, weight: int = 1) -> WeightedRow:
    at = None if minute is None else int(minute * MINUTE)
    return WeightedRow({"campaign": campaign, "price": price}, at, weight)


def slices(minutes: int) -> Window:
    return Window(minutes * MINUTE, minutes * MINUTE)


def named(**columns: str) -> tuple[Named, ...]:
    return tuple(Named(name, Expression(text)) for name, text in columns.items())


def call(name: str, function: str, *arguments: str, where: str | None = None) -> Call:
    return Call(name, function, tuple(map(Expression, arguments)), Expression(where) if where else None)


def counts(window: Window | None, *keys: str, of: Box = IMPSNS) -> Aggregate:
    return Aggregate(of, window, tuple(Named(f"_k{i}", Expression(key)) for i, key in enumerate(keys)), COUNT)


COUNT = (call("_a0", "count"),)


def said(
    box: Box, rows: Sequence[WeightedRow], progress: float | None = None, **options: bool
) -> list[tuple[Any, ...]]:
    """The answer's rows as tuples, with instants in minutes."""
    reached = None if progress is None else int(progress * MINUTE)
    rows = answer(box, {"impsns": rows}, {"impsns": reached}, **options).rows
    return [
        tuple(v / MINUTE if isinstance(v, Timestamp) else v for name, v in r.values.items() if name != "_open")
        for r in rows
    ]


# The linear boxes.


def test_a_source_gives_what_its_weights_come_to() -> None:
    rows = [row(1), row(1), row(1, weight=-1), row(2, price=5, weight=-1), row(3), row(3, weight=-1)]
    assert said(IMPSNS, rows) == [(1, 1)]
    assert said(IMPSNS, [*rows, row(2, price=5)]) == [(1, 1)], "the deletion that waited has found its row"


def test_a_deletion_without_its_row_takes_no_other_away() -> None:
    assert said(counts(None), [row(1), row(2, price=5, weight=-1)]) == [(1,)]


def test_filter_keeps_what_is_true() -> None:
    box = Filter(View(IMPSNS, "i"), Expression("i.price > 1"))
    assert said(box, [row(1, price=1), row(2, price=2), row(3, price=None)]) == [(1, 2)]


def test_map_makes_new_columns_and_keeps_the_event_time() -> None:
    box = Map(IMPSNS, named(double="2 * PRICE", campaign="campaign"))
    reply = answer(box, {"impsns": [row(1, 7, 4)]}, {"impsns": 3})
    assert reply.rows == [WeightedRow({"double": 8, "campaign": 7}, MINUTE)]
    assert reply.progress == 3


def test_union_matches_columns_by_place_and_waits_for_the_slowest() -> None:
    other = Source("clicks", ("c", "p"))
    tables = {"impsns": [row(1)], "clicks": [WeightedRow({"c": 2, "p": 2}, 0), WeightedRow({"P": 1, "C": 1}, MINUTE)]}
    box = Union((IMPSNS, other))
    reply = answer(box, tables, {"impsns": 9, "clicks": 4})
    assert [tuple(r.values.items()) for r in reply.rows] == [
        (("campaign", 2), ("price", 2)),
        (("campaign", 1), ("price", 1)),
        (("campaign", 1), ("price", 1)),
    ]
    assert reply.progress == 4
    assert answer(box, tables, {"impsns": 9}).progress is None


# Aggregates.


def test_fig_3_in_order_of_arrival() -> None:
    totals, arrived = [], []
    for batch, control in zip(FIG_3, FIG_3_CONTROL, strict=True):
        arrived += [row(minute) for minute in batch]
        totals.append(said(counts(slices(5)), arrived, control))
    assert totals == [[(5, 6)], [(5, 8), (10, 3)], [(5, 10), (10, 5), (15, 1)]]


ROLL_UP = Aggregate(counts(slices(5)), slices(15), (), (call("_a0", "sum", "_a0"),))


@settings(deadline=None, max_examples=25)
@given(st.permutations([minute for batch in FIG_3 for minute in batch]))
def test_fig_3_whatever_the_order(minutes: list[int]) -> None:
    rows = [row(minute) for minute in minutes]
    assert said(counts(slices(5)), rows, 15) == [(5, 10), (10, 5), (15, 1)]
    assert said(ROLL_UP, rows, 15) == [(15, 16)]


def test_windows_over_windows_close_with_the_inner_ones() -> None:
    rows = [row(minute) for batch in FIG_3 for minute in batch]
    assert said(ROLL_UP, rows, 14.9) == []
    assert said(ROLL_UP, rows, 14.9, include_open=True) == [(15, 16)]
    reply = answer(ROLL_UP, {"impsns": rows}, {"impsns": 12 * MINUTE})
    assert reply.progress == 15 * MINUTE - 1
    assert answer(ROLL_UP, {"impsns": rows}, {"impsns": 15 * MINUTE}).progress == 30 * MINUTE - 1


def test_results_carry_their_window_and_its_last_instant() -> None:
    (result,) = answer(counts(slices(5), "campaign"), {"impsns": [row(7)]}, {"impsns": 10 * MINUTE}).rows
    assert result.values == {"_open": 5 * MINUTE, "_close": 10 * MINUTE, "_k0": 1, "_a0": 1}
    assert result.event_time == 10 * MINUTE - 1


def test_window_ends_are_timestamps_to_a_map() -> None:
    box = Map(counts(slices(5)), named(t="_close", before="_close - INTERVAL '1' MINUTE", text="CAST(_open AS STRING)"))
    assert said(box, [row(7)], 10) == [(10, 9, "1970-01-01 00:05:00")]


def test_maximum_over_counts() -> None:
    per_campaign = counts(slices(5), "campaign")
    box = Aggregate(per_campaign, slices(5), (), (call("_a0", "max", "_a0"),))
    rows = [row(1, "a"), row(2, "a"), row(3, "b"), row(6, "b")]
    assert said(box, rows, 10) == [(5, 2), (10, 1)]


def test_having_is_a_filter_above() -> None:
    box = Filter(counts(slices(5), "campaign"), Expression("_a0 >= 2"))
    rows = [row(1, "a"), row(2, "a"), row(3, "b")]
    assert said(box, rows, 5) == [(5, "a", 2)]


def test_sliding_windows_overlap() -> None:
    window = Window(10 * MINUTE, 5 * MINUTE)
    assert said(counts(window), [row(1), row(6)], 15) == [(5, 1), (10, 2), (15, 1)]
    assert said(counts(window), [row(1), row(6)], 10) == [(5, 1), (10, 2)]


def test_a_running_aggregate_needs_no_progress_and_has_no_event_time() -> None:
    reply = answer(counts(None, "campaign"), {"impsns": [row(1, None), row(2, "a")]}, {})
    assert [(r.values["_k0"], r.values["_a0"], r.event_time) for r in reply.rows] == [(None, 1, None), ("a", 1, None)]


def test_a_running_aggregate_without_keys_always_has_its_row() -> None:
    box = Aggregate(IMPSNS, None, (), (*COUNT, call("_a1", "sum", "price")))
    assert said(box, []) == [(0, None)]
    assert said(box, [row(1), row(1, weight=-1)]) == [(0, None)]
    assert said(counts(None, "campaign"), []) == []
    assert said(counts(slices(5)), [], 10) == []


def test_a_window_over_a_running_aggregate_is_an_error() -> None:
    with pytest.raises(AnabranchError) as caught:
        said(counts(slices(5), of=counts(None)), [row(1)])
    assert caught.value.id == "BAD_EVENT_TIME"


def test_a_running_aggregate_sees_only_windows_that_were_said() -> None:
    box = Aggregate(counts(slices(5)), None, (), (call("_a0", "sum", "_a0"),))
    rows = [row(1), row(2), row(6)]
    assert [said(box, rows, progress) for progress in (4, 5, 10)] == [[(None,)], [(2,)], [(3,)]]
    assert said(box, rows, 4, include_open=True) == [(3,)]


def test_deletions_empty_a_group() -> None:
    rows = [row(1, "a"), row(2, "a"), row(3, "b"), row(3, "b", weight=-1), row(2, "a", weight=-1)]
    assert said(counts(slices(5), "campaign"), rows, 5) == [(5, "a", 1)]


def test_calls_have_filters_and_several_arguments() -> None:
    calls = (
        call("f", "count", where="price > 1"),
        call("c", "count", "campaign", "price"),
        call("s", "sum", "price * 2"),
        call("first", "first", "price"),
        call("last", "last", "campaign"),
        call("p", "approx_percentile", "price", "0.5"),
    )
    rows = [row(1, "a", 3), row(1, "b", 1), row(2, "b", None), row(2, None, 2)]
    assert said(Aggregate(IMPSNS, None, (), calls), rows) == [(2, 2, 12, 3, "b", 2)]


def test_keys_group_as_in_spark() -> None:
    rows = [row(1, float("nan")), row(2, float("nan")), row(3, -0.0), row(4, 0.0), row(5, None), row(6, None)]
    assert [c for _, c in said(counts(None, "campaign"), rows)] == [2, 2, 2]


def test_an_expression_that_fails_says_on_which_row() -> None:
    with pytest.raises(ExpressionFailed) as caught:
        said(Map(IMPSNS, named(q="1 / price")), [row(1, price=0)])
    assert caught.value.values == {"campaign": 1, "price": 0}
    with pytest.raises(ExpressionFailed):
        said(Aggregate(IMPSNS, None, (), (call("s", "sum", "price"),)), [row(1, price=2**62), row(2, price=2**62)])
    with pytest.raises(AnabranchError):
        said(Aggregate(IMPSNS, None, (), (call("s", "sum", "campaign"),)), [row(1, "a")])


def test_streams_and_columns_must_be_there() -> None:
    for tables in ({}, {"impsns": [WeightedRow({"campaign": 1}, 0)]}):
        with pytest.raises(AnabranchError) as caught:
            answer(IMPSNS, tables, {})
        assert caught.value.id in ("UNKNOWN_STREAM", "UNKNOWN_COLUMN")


# Partial results.

CALLS = (call("n", "count"), call("s", "sum", "price"), call("m", "max", "price"), call("l", "last", "price"))
ROWS = st.lists(
    st.builds(row, st.integers(0, 40), st.sampled_from(["a", "b", None]), st.none() | st.integers(0, 3)), max_size=12
)


@settings(deadline=None, max_examples=50)
@given(ROWS, st.integers(0, 45), st.sampled_from([Window(10 * MINUTE, 5 * MINUTE), slices(15), None]), st.booleans())
def test_consolidated_partials_are_the_aggregate(
    rows: list[WeightedRow], progress: int, window: Window | None, keyed: bool
) -> None:
    halves = Consolidate(
        Partials(IMPSNS, 5 * MINUTE, named(c="campaign", unused="price"), CALLS),
        window,
        (("_k0", "c"),) if keyed else (),
        tuple((c.name, c.name) for c in CALLS),
    )
    whole = Aggregate(IMPSNS, window, named(_k0="campaign") if keyed else (), CALLS)
    for options in ({}, {"include_open": True}):
        tables, reached = {"impsns": rows}, {"impsns": progress * MINUTE}
        assert answer(halves, tables, reached, **options) == answer(whole, tables, reached, **options)


def test_partials_alone_are_no_rows() -> None:
    with pytest.raises(AnabranchError) as caught:
        said(Partials(IMPSNS, None, (), COUNT), [])
    assert caught.value.id == "NOT_SUPPORTED"


# Changes.


def feed(box: Box, before: list[WeightedRow], after: list[WeightedRow], progress: float) -> list[tuple[Any, ...]]:
    reached = {"impsns": int(progress * MINUTE)}
    answers = [answer(box, {"impsns": rows}, reached).rows for rows in (before, after)]
    return [(change.change_type.value, *list(change.values.values())) for change in changes(*answers)]


def test_changes_of_a_linear_diagram() -> None:
    before = [row(2, "b"), row(1, "a"), row(1, "a")]
    after = [row(1, "a"), row(2, "c"), row(1, None)]
    assert feed(IMPSNS, before, after, 0) == [
        ("insert", None, 1),
        ("delete", "a", 1),
        ("delete", "b", 1),
        ("insert", "c", 1),
    ]


def test_changes_of_groups_keep_their_identity_under_a_map() -> None:
    box = Map(Filter(counts(slices(5), "campaign"), Expression("_a0 < 3")), named(c="_a0"))
    before = [row(1, "a"), row(1, "b"), row(2, "b"), row(1, "d"), row(6, "a")]
    after = [*before, row(3, "a"), row(3, "b"), row(3, "c"), row(3, None)]
    assert feed(box, before, after, 10) == [
        ("insert", 1),
        ("update_preimage", 1),
        ("update_postimage", 2),
        ("delete", 2),
        ("insert", 1),
    ]


def test_identities_are_windows_and_keys() -> None:
    box = Union((Map(counts(slices(5), "campaign"), named(c="_a0")), Map(counts(None), named(c="_a0"))))
    pairs = identified(box, {"impsns": [row(1, "b"), row(2, "a")]}, {"impsns": 5 * MINUTE})
    assert [identity for identity, _ in pairs] == [(1, None), (0, 0, "a"), (0, 0, "b")]
    (pair,) = identified(IMPSNS, {"impsns": [row(1, "b")]}, {})
    assert pair == ((MINUTE, "b", 1), row(1, "b"))


def test_equal_values_are_not_said_again() -> None:
    rows = [row(1, "a", Decimal("1.0")), row(2, "a", float("nan"))]
    assert feed(IMPSNS, rows, [row(1, "a", Decimal("1.00")), row(2, "a", float("nan"))], 0) == []


@settings(deadline=None, max_examples=50)
@given(ROWS, ROWS, st.integers(0, 45), st.integers(0, 45))
def test_changes_replayed_give_the_answer(
    old: list[WeightedRow], new: list[WeightedRow], early: int, later: int
) -> None:
    box = Map(counts(Window(10 * MINUTE, 5 * MINUTE), "campaign"), named(c="_a0", t="_close"))
    before = answer(box, {"impsns": old}, {"impsns": early * MINUTE}).rows
    after = answer(box, {"impsns": old + new}, {"impsns": later * MINUTE}).rows
    removing = (ChangeType.DELETE, ChangeType.UPDATE_PREIMAGE)
    table = [(r.event_time, dict(r.values)) for r in before]
    items = changes(before, after)
    for item in items:
        if item.change_type in removing:
            table.remove((item.event_time, dict(item.values)))
        else:
            table.append((item.event_time, dict(item.values)))
    assert sorted(map(str, table)) == sorted(str((r.event_time, dict(r.values))) for r in after)
    assert changes(before, before) == []
