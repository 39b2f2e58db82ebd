"""Which kind each box is, and which box decides for a diagram (HA 3.2)."""

from __future__ import annotations

import pytest

from anabranch.diagram import codec
from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.apply import Apply
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts, RowWindow
from anabranch.diagram.boxes.explode import Explode
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Band, Join, Side
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.boxes.sort import Sort
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.boxes.topn import Order, TopN
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.diagram.expression import Expression, Named
from anabranch.diagram.taxonomy import Kind, arbitrary_in, kind_of, recovery_of, shape_of
from anabranch.model.window import Window

S = Source("s", ("a", "b"))
A = Expression("a")
MINUTE = Window(60, 60)
COUNT = Call("_a0", "count")
SIDES = (Side("l", ("a",)), Side("r", ("b",)))


def join(**options: object) -> Join:
    return Join((S, S), SIDES, Expression("l.a = r.b"), **options)  # type: ignore[arg-type]


WINDOWED = Aggregate(S, MINUTE, (Named("_k0", A),), (COUNT,))
RUNNING = Aggregate(S, None, (), (COUNT,))
PANES = Partials(S, 60, (), (COUNT,))
FOREVER = Partials(S, None, (), (COUNT,))

SHAPES: list[tuple[Box, Kind]] = [
    (S, Kind.REPEATABLE),
    (Source("s", ("a",), messages=True), Kind.REPEATABLE),
    (View(S, "v"), Kind.REPEATABLE),
    (Keep(S), Kind.REPEATABLE),
    (Filter(S, Expression("a > 0")), Kind.REPEATABLE),
    (Map(S, (Named("c", A),), A), Kind.REPEATABLE),
    (Explode(S, "a"), Kind.REPEATABLE),
    (Union((S, S)), Kind.REPEATABLE),
    (join(within=5), Kind.REPEATABLE),
    (join(between=Band(True, A, A)), Kind.REPEATABLE),
    (join(), Kind.DETERMINISTIC),
    (join(within=5, outer=True), Kind.CONVERGENT_CAPABLE),
    (join(outer=True), Kind.DETERMINISTIC),
    (WINDOWED, Kind.CONVERGENT_CAPABLE),
    (RUNNING, Kind.DETERMINISTIC),
    (PANES, Kind.CONVERGENT_CAPABLE),
    (FOREVER, Kind.DETERMINISTIC),
    (Consolidate(PANES, MINUTE, (), ()), Kind.CONVERGENT_CAPABLE),
    (Consolidate(FOREVER, None, (), ()), Kind.DETERMINISTIC),
    (TopN(S, (A,), (Order(A),), 1), Kind.DETERMINISTIC),
    (Split(S, (A,), 0), Kind.REPEATABLE),
    (Lookup((S, S), SIDES, Expression("l.a = r.b")), Kind.DETERMINISTIC),
    (Sort(S), Kind.REPEATABLE),
    (Counts(S, RowWindow(2, 1), (Named("_k0", A),), (COUNT,)), Kind.DETERMINISTIC),
    (Apply(S, MINUTE, (A,), (Named("a", A),), Expression("'m:f'"), (("b", "INT"),)), Kind.CONVERGENT_CAPABLE),
    (Apply(S, RowWindow(2, 2), (), (Named("a", A),), Expression("'m:f'"), (("b", "INT"),)), Kind.DETERMINISTIC),
]


@pytest.mark.parametrize(("box", "kind"), SHAPES, ids=lambda value: type(value).__name__)
def test_every_box_says_its_kind(box: Box, kind: Kind) -> None:
    assert shape_of(box) is kind
    assert kind_of(box).kind is kind


def test_no_box_is_left_out() -> None:
    known = {kind for kind in codec._KINDS.values() if issubclass(kind, Box)}
    assert known == {type(box) for box, _ in SHAPES}


@pytest.mark.parametrize("below", [kind for kind in SHAPES if kind[0].inputs])
@pytest.mark.parametrize("above", [Filter(S, A), WINDOWED, RUNNING, join(within=5), Keep(S)])
def test_the_weakest_box_decides(above: Box, below: tuple[Box, Kind]) -> None:
    inputs = (below[0], *above.inputs[1:])
    assert recovery_of(above.with_inputs(*inputs)).kind is max(shape_of(above), below[1])


RANDOM = Expression("a + Rand()")
EVALUATING: list[Box] = [
    Filter(S, RANDOM),
    Map(S, (Named("c", A), Named("d", RANDOM))),
    Map(S, (Named("c", A),), RANDOM),
    Join((S, S), SIDES, RANDOM, 5),
    join(between=Band(True, A, RANDOM)),
    Aggregate(S, MINUTE, (Named("_k0", RANDOM),), (COUNT,)),
    Aggregate(S, MINUTE, (), (Call("_a0", "sum", (RANDOM,)),)),
    Partials(S, 60, (), (Call("_a0", "sum", (A,), where=RANDOM),)),
    TopN(S, (RANDOM,), (Order(A),), 1),
    TopN(S, (), (Order(RANDOM),), 1),
]


@pytest.mark.parametrize("box", EVALUATING, ids=lambda box: type(box).__name__)
def test_an_expression_makes_its_box_arbitrary_and_is_named(box: Box) -> None:
    found = recovery_of(View(box, "v"))
    assert (found.kind, found.box, found.function) == (Kind.ARBITRARY, box, "Rand()")
    assert str(found).startswith("arbitrary, because of Rand() in ")


def test_a_verdict_in_words() -> None:
    assert str(recovery_of(S)) == "repeatable"
    assert str(recovery_of(Filter(WINDOWED, A))) == (
        f"convergent-capable, because of Aggregate _a0 = count(*) by a AS _k0 {MINUTE}"
    )
    assert str(recovery_of(S, RUNNING)) == "deterministic, because of Aggregate _a0 = count(*), running"


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("uuid()", "uuid()"),
        ("current_timestamp", "current_timestamp"),
        ("current_timestamp()", "current_timestamp()"),
        ("unix_timestamp()", "unix_timestamp()"),
        ("unix_timestamp(ts)", None),
        ("t.rand", None),
        ("'rand()'", None),
        ("rand", None),
    ],
)
def test_what_is_arbitrary_in_an_expression(text: str, function: str | None) -> None:
    assert arbitrary_in(Expression(text)) == function
