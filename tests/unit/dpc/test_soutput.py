"""SOutput: one undo, no duplicates, a rec-done at the end."""

from __future__ import annotations

from anabranch.protocol.dpc.items import BEGIN, Boundary, Insertion, Item, ItemId, RecDone, Tentative, Undo
from anabranch.protocol.dpc.soutput import SOutput

B = 10


def kinds(elements: list[object]) -> list[str]:
    return [type(element).__name__ for element in elements]


def begun() -> SOutput:
    """Bucket 0 is stable, then the checkpoint, then bucket 1 is stable too and bucket 2 tentative."""
    soutput = SOutput(B)
    soutput.stable([Item(1), Item(2)], B)
    soutput.checkpoint()
    soutput.stable([Item(11)], 2 * B)
    soutput.provisional([Item(21)], 3 * B, 5)
    return soutput


def test_redoing_drops_what_was_said() -> None:
    soutput = begun()
    soutput.redo()
    assert soutput.stable([Item(11)], 2 * B) == []
    said = soutput.stable([Item(21), Item(22)], 3 * B)
    assert said[0] == Undo(ItemId(1, 0))
    assert kinds(said) == ["Undo", "Insertion", "Boundary"]
    assert soutput.stable([Item(31)], 4 * B)[0] != Undo(ItemId(2, 1)), "one undo"
    assert soutput.end() == [RecDone()]


def test_a_tentative_item_while_redoing_is_preceded_by_the_undo() -> None:
    soutput = begun()
    soutput.redo()
    soutput.stable([Item(11)], 2 * B)
    assert kinds(soutput.provisional([Item(21)], 3 * B, 0)) == ["Undo", "Tentative", "Boundary"]


def test_an_empty_correction_still_undoes() -> None:
    soutput = begun()
    soutput.redo()
    assert kinds(soutput.stable([], 3 * B)) == ["Undo", "Boundary"]
    again = begun()
    again.redo()
    assert kinds(again.end()) == ["Undo", "RecDone"], "what was tentative is undone, whatever comes"


def test_without_tentative_items_there_is_nothing_to_undo() -> None:
    soutput = SOutput(B)
    soutput.checkpoint()
    soutput.redo()
    assert kinds(soutput.stable([Item(1)], B)) == ["Insertion", "Boundary"]


def test_identities_go_on_where_stable_items_end() -> None:
    soutput = SOutput(B)
    assert soutput.last == BEGIN
    (first, _) = soutput.stable([Item(1)], 5)
    (second, _) = soutput.stable([Item(6)], B)
    assert isinstance(first, Insertion)
    assert isinstance(second, Insertion)
    assert (first.chunk.last, second.chunk.last) == (ItemId(0, 0), ItemId(0, 1))
    (third, boundary) = soutput.provisional([Item(11)], 2 * B, 7)
    assert isinstance(third, Tentative)
    assert (third.delayed, boundary) == (7, Boundary(2 * B, tentative=True, delayed=7))


def test_rules_that_are_switched_off() -> None:
    soutput = SOutput(B, drop_duplicates=False, undo=False)
    soutput.checkpoint()
    soutput.stable([Item(1)], B)
    soutput.provisional([Item(11)], 2 * B, 0)
    soutput.redo()
    assert kinds(soutput.stable([Item(1)], B)) == ["Insertion"], "said again, and nothing undone"
