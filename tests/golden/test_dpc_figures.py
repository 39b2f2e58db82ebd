"""DPC Figs 6, 7, 8 and 9, and Tables I and II, value by value."""

from __future__ import annotations

from itertools import product

import pytest

from anabranch.lab.experiments.figures_protocol import FIG_7, FIG_8, letters, stream_of_fig_8
from anabranch.protocol.dpc.actions import Send
from anabranch.protocol.dpc.items import (
    TYPE_OF,
    Boundary,
    Chunk,
    Control,
    Element,
    Insertion,
    Item,
    ItemId,
    RecDone,
    Tentative,
    TupleType,
    Undo,
    serialised,
)
from anabranch.protocol.dpc.messages import AuthorizationReply, AuthorizationRequest, Subscribe
from anabranch.protocol.dpc.soutput import SOutput
from anabranch.protocol.dpc.stagger import Stagger
from anabranch.protocol.dpc.states import State
from anabranch.protocol.dpc.sunion import SUnion
from anabranch.protocol.dpc.switching import Row, switch

BUCKET = 100


def shown(elements: list[Element]) -> list[str]:
    """S, T, U and the item's number, as in Fig. 6; boundaries are not drawn there."""
    said = []
    for element in elements:
        match element:
            case Insertion(chunk):
                said += [f"S{item.body}" for item in chunk.items]
            case Tentative(chunk, _):
                said += [f"T{item.body}" for item in chunk.items]
            case Undo(last):
                said.append(f"U{last.ordinal + 1}")
            case RecDone():
                said.append("R")
    return said


def test_fig_6_tentative_and_undo() -> None:
    """S1 S2, then T3 T4 T5; U2 says that everything after S2 is undone; S3 .. take its place."""
    soutput = SOutput(BUCKET)
    said = soutput.stable([Item(1, 1), Item(2, 2)], 3)
    soutput.checkpoint()
    said += soutput.provisional([Item(3, 3), Item(4, 4), Item(5, 5)], 6, 0)
    soutput.redo()
    said += soutput.stable([Item(3, 3), Item(4, 4)], 5)
    said += soutput.stable([Item(5, 5)], 6)
    said += soutput.end()
    assert shown(said) == ["S1", "S2", "T3", "T4", "T5", "U2", "S3", "S4", "S5", "R"]


@pytest.mark.parametrize("ordered", [False, True])
def test_fig_7_which_buckets_are_stable(ordered: bool) -> None:
    sunion = SUnion(("s1", "s2", "s3"), 5, ordered=ordered)
    for boundaries, below in FIG_7.values():
        for number, stime in enumerate(boundaries, 1):
            sunion.boundary(f"s{number}", stime, now=0)
        assert sunion.stable_until == (below if ordered else below - below % 5)


def test_fig_7_the_order_of_a_stable_bucket() -> None:
    """Between boundaries items may be in any order; the bucket comes out by stream time, then input."""
    sunion = SUnion(("s1", "s2", "s3"), 5)
    sunion.insert("s1", Chunk(4, 0, (Item(23, "a"), Item(21, "b"))), now=0)
    sunion.insert("s2", Chunk(4, 0, (Item(21, "c"),)), now=0)
    sunion.insert("s3", Chunk(5, 0, (Item(26, "d"),)), now=0)
    for name in ("s1", "s2", "s3"):
        sunion.boundary(name, 25, now=0)
    sunion.frontier = 20
    assert sunion.stable_span() == (20, 25)
    inputs, missing, _ = sunion.take(20, 25, tentative=False)
    assert [item.body for item in serialised(inputs.values())] == ["b", "c", "a"]
    assert missing == frozenset()


@pytest.mark.parametrize("reader", list(FIG_8))
def test_fig_8_what_a_reader_gets(reader: str) -> None:
    (last, tentative), paper = FIG_8[reader]
    wanted = Subscribe("n1", 1, ItemId(0, last), tentative, 0)
    assert letters(stream_of_fig_8().stabilise(wanted)) == paper


def test_fig_9_staggered_stabilisation() -> None:
    """Both replicas must reconcile and ask each other: the lower identifier goes first, the other after it."""
    one, two = (
        Stagger("node1", ["node1'"], retry=100, patience=50),
        Stagger("node1'", ["node1"], retry=100, patience=50),
    )
    assert one.ask(0) == [Send("node1'", AuthorizationRequest(0))]
    assert two.ask(0) == [Send("node1", AuthorizationRequest(0))]
    # Node 1 has the lower identifier: it rejects, and is granted.
    assert one.answer("node1'", AuthorizationRequest(0), 1, reconciling=False, wanting=True) == [
        Send("node1'", AuthorizationReply(0, granted=False))
    ]
    assert two.answer("node1", AuthorizationRequest(0), 1, reconciling=False, wanting=True) == [
        Send("node1", AuthorizationReply(0, granted=True))
    ]
    assert one.replied("node1'", AuthorizationReply(0, True), 2) == []
    assert two.replied("node1", AuthorizationReply(0, False), 2) == []
    assert one.authorised
    assert not two.authorised
    assert two.covering(2), "it has promised to stay available"
    # While node 1 reconciles the other is rejected; afterwards it is granted.
    assert two.ask(150) == [], "a promise is kept"
    (done,) = one.finish()
    two.returned("node1")
    assert done.to == "node1'"
    (request,) = two.ask(150)
    (reply,) = one.answer("node1'", request.message, 151, reconciling=False, wanting=False)  # type: ignore[arg-type]
    two.replied("node1", reply.message, 152)  # type: ignore[arg-type]
    assert two.authorised


# Table I, the rows of both halves.
TABLE_1_DATA = {
    "insertion": Insertion,
    "tentative": Tentative,
    "boundary": Boundary,
    "undo": Undo,
    "rec-done": RecDone,
}
TABLE_1_CONTROL = ("up-failure", "rec-request", "rec-done")


def test_table_1_tuple_types() -> None:
    assert {str(kind): element for element, kind in TYPE_OF.items()} == TABLE_1_DATA
    assert [str(kind) for kind in TupleType] == list(TABLE_1_DATA)
    assert tuple(str(kind) for kind in Control) == TABLE_1_CONTROL


S, U, Z, F = State.STABLE, State.UP_FAILURE, State.STABILIZATION, State.FAILURE


def table_2(current: State, others: tuple[State, State]) -> tuple[int, State | None]:
    """The table as printed: its row, and the state of the replica to which one switches."""
    if current is S:
        return 1, None
    if S in others:
        return 2, S
    if current is U:
        return 3, None
    if U in others:
        return 4, U
    return 5, None


@pytest.mark.parametrize(("current", "first", "second"), list(product(State, repeat=3)))
def test_table_2_cell_by_cell(current: State, first: State, second: State) -> None:
    decision = switch(current, {"r1": first, "r2": second})
    row, state = table_2(current, (first, second))
    assert decision.row == Row(row)
    if state is None:
        assert decision.to is None
    else:
        assert decision.to == ("r1" if first is state else "r2")
