"""Each rewrite before and after: the boxes that it makes, and both executed and compared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.diagram import codec
from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.view import View
from anabranch.diagram.drawing import draw
from anabranch.diagram.expression import Expression, Named
from anabranch.diagram.rewrites import REWRITES, rewrite
from anabranch.diagram.rewrites.known import Known
from anabranch.diagram.rewrites.open_views import open_views
from anabranch.diagram.rewrites.partial_form import partial_form
from anabranch.diagram.rewrites.roll_up import roll_up
from anabranch.diagram.rewrites.stack import stack
from anabranch.model.window import Window
from anabranch.reference.rows import WeightedRow
from anabranch.reference.run import answer

ROWS = Source("s", ("k", "n"))
ONE, FIVE, TEN = Window(10, 10), Window(50, 50), Window(100, 50)


def aggregate(box: Box, window: Window | None, keys: tuple[str, ...], *calls: tuple[str, ...]) -> Aggregate:
    return Aggregate(
        box,
        window,
        tuple(Named(f"_k{at}", Expression(key)) for at, key in enumerate(keys)),
        tuple(Call(f"_a{at}", f, tuple(map(Expression, args))) for at, (f, *args) in enumerate(calls)),
    )


def selected(box: Aggregate | Filter, **columns: str) -> Map:
    return Map(box, tuple(Named(name, Expression(text)) for name, text in columns.items()))


COUNTS = selected(aggregate(ROWS, ONE, ("k",), ("count",), ("sum", "n")), k="_k0", c="_a0", s="_a1")


def over_counts(window: Window | None, call: tuple[str, ...], keys: tuple[str, ...] = (), box: Box = COUNTS) -> Map:
    return selected(aggregate(box, window, keys, call), a="_a0")


def test_a_derived_stream_is_opened_into_its_diagram() -> None:
    box, notes = open_views(Source("counts", ("k", "c", "s")), Known({"counts": COUNTS}))
    assert box == View(COUNTS, "counts")
    assert len(notes) == 1
    assert open_views(ROWS, Known({"counts": COUNTS})) == (ROWS, [])


@pytest.mark.parametrize(
    ("call", "window", "inner"),
    [(("sum", "c"), ONE, "count"), (("sum", "s"), FIVE, "sum"), (("sum", "c"), TEN, "count")],
)
def test_legal_compositions_become_one_aggregate(call: tuple[str, ...], window: Window, inner: str) -> None:
    box, notes = stack(over_counts(window, call), Known())
    (merged,) = [b for b in box.walk() if isinstance(b, Aggregate)]
    assert (merged.input, merged.window, merged.calls[0].function) == (ROWS, window, inner)
    assert "its partials" in notes[0].why


@pytest.mark.parametrize(
    ("box", "why"),
    [
        (over_counts(ONE, ("max", "c")), "max over count needs finished results"),
        (over_counts(ONE, ("count",)), "is not over a plain result"),
        (over_counts(Window(25, 25), ("sum", "c")), "is not made of whole"),
        (over_counts(None, ("sum", "c")), "do not share panes"),
        (over_counts(ONE, ("sum", "c + 1")), "is not over a plain result"),
        (over_counts(ONE, ("sum", "c"), ("s",)), "is not one of the inner keys"),
        (over_counts(ONE, ("sum", "c"), box=Filter(COUNTS, Expression("c > 1"))), "the condition c > 1"),
    ],
)
def test_illegal_compositions_gather_and_say_why(box: Map, why: str) -> None:
    same, notes = stack(box, Known())
    assert same == box
    assert why in notes[0].why


def test_a_running_sum_of_counts_gathers_because_of_nothing() -> None:
    running = selected(aggregate(ROWS, None, ("k",), ("count",)), c="_a0")
    _, notes = stack(over_counts(None, ("sum", "c"), box=running), Known())
    assert "of nothing" in notes[0].why


def test_an_aggregate_over_rows_is_split() -> None:
    box, _ = partial_form(COUNTS, Known())
    assert isinstance(box, Map)
    consolidated = box.input
    assert isinstance(consolidated, Consolidate)
    assert (consolidated.window, consolidated.input.pane) == (ONE, 10)
    gathers, _ = partial_form(over_counts(ONE, ("max", "c")), Known())
    kinds = [type(b).__name__ for b in gathers.walk()]
    assert kinds == ["Map", "Aggregate", "Map", "Consolidate", "Partials", "Source"]


def test_kept_partials_serve_wider_windows_fewer_keys_and_fewer_calls() -> None:
    kept = Partials(ROWS, 10, (Named("_k0", Expression("n")), Named("_k1", Expression("k"))),
                    (Call("_a0", "count"), Call("_a1", "sum", (Expression("n"),))))  # fmt: skip
    wanted, _ = partial_form(selected(aggregate(ROWS, TEN, ("k",), ("sum", "n")), s="_a0"), Known())
    box, notes = roll_up(wanted, Known(partials=(kept,)))
    assert isinstance(box, Map)
    assert box.input == Consolidate(kept, TEN, (("_k0", "_k1"),), (("_a0", "_a1"),))
    assert notes
    for other in (
        replace(kept, pane=20),
        replace(kept, input=Filter(ROWS, Expression("n > 0"))),
        replace(kept, pane=None),
        replace(kept, keys=(Named("_k0", Expression("n % 2")), kept.keys[1])),  # may fail where the query does not
        replace(kept, calls=(*kept.calls, Call("_a2", "sum", (Expression("CAST(k AS INT)"),)))),
    ):
        assert roll_up(wanted, Known(partials=(other,))) == (wanted, [])


def test_of_several_partials_the_coarsest_is_used() -> None:
    fine = Partials(ROWS, 10, (), (Call("_a0", "count"),))
    coarse = replace(fine, pane=50)
    wanted, _ = partial_form(selected(aggregate(ROWS, TEN, (), ("count",)), c="_a0"), Known())
    box, _ = roll_up(wanted, Known(partials=(fine, coarse)))
    assert [b.pane for b in box.walk() if isinstance(b, Partials)] == [50]


DIAGRAMS = [
    COUNTS,
    over_counts(ONE, ("sum", "c")),
    over_counts(FIVE, ("sum", "s"), ("k",)),
    over_counts(TEN, ("max", "c")),
    over_counts(FIVE, ("count_distinct", "c"), ("k",)),
    selected(Filter(aggregate(ROWS, TEN, ("k",), ("count",), ("avg", "n")), Expression("_a0 > 1")), k="_k0", v="_a1"),
    selected(aggregate(ROWS, None, ("k",), ("min", "n"), ("first", "n")), k="_k0", m="_a0", f="_a1"),
    over_counts(None, ("max", "c")),
]
KEPT = Partials(
    ROWS,
    10,
    (Named("_k0", Expression("k")),),
    (
        Call("_a0", "count"),
        Call("_a1", "sum", (Expression("n"),)),
        Call("_a2", "avg", (Expression("n"),)),
    ),
)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(-5, 5), st.integers(0, 300)), max_size=15),
    st.integers(0, 350),
)
def test_every_rewrite_keeps_the_answer(rows: list[tuple[str | None, int, int]], progress: int) -> None:
    table = {"s": [WeightedRow({"k": k, "n": n}, t) for k, n, t in rows]}
    known = Known(partials=(KEPT,))
    for diagram in DIAGRAMS:
        before = answer(diagram, table, {"s": progress})
        box: Box = diagram
        for step in REWRITES:
            box, _ = step(box, known)
            assert answer(box, table, {"s": progress}) == before, step.__name__
        assert rewrite(diagram, known).box == box


@pytest.mark.parametrize("diagram", DIAGRAMS)
def test_diagrams_survive_the_catalog_and_can_be_drawn(diagram: Box) -> None:
    rewritten = rewrite(diagram, Known())
    assert codec.from_json(codec.to_json(rewritten.box)) == rewritten.box
    lines = draw(rewritten.box, rewritten.notes)
    assert any("parallel: keeps partial results" in line for line in lines)
    assert "Source s" in "\n".join(lines)
