"""Map: each row made into another; its event time stays."""

from __future__ import annotations

from anabranch.diagram.boxes.map import Map
from anabranch.diagram.expression import Expression, Named
from anabranch.diagram.fluent import Flow
from anabranch.diagram.progress import has_event_time, progress_of
from anabranch.reference.run import answer
from tests.unit.boxes.tools import S, box, refused, row, said

MADE = box("SELECT k, v * 2 AS twice FROM s")


def test_columns_are_computed_row_by_row() -> None:
    assert Map(S, (Named("k", Expression("k")), Named("twice", Expression("v * 2")))) == MADE
    assert Flow(S, "s").select("k", "v * 2 AS twice").box == MADE
    assert MADE.columns == ("k", "twice")
    assert said(MADE, [row(1, 4, 0), row(2, None, 1)]) == [(1, 8), (2, None)]


def test_the_event_time_stays_though_no_column_has_it() -> None:
    (made,) = answer(MADE, {"s": [row(1, 4, 3)]}, {"s": 9}).rows
    assert made.event_time == 3_000_000
    assert has_event_time(MADE)
    assert progress_of(MADE, {"s": 9}) == 9


def test_a_deletion_takes_back_what_its_row_became() -> None:
    assert said(MADE, [row(1, 4, 0), row(1, 5, 0), row(1, 4, 0, -1)]) == [(1, 10)]


def test_names_are_different() -> None:
    assert refused("CREATE STREAM q AS SELECT k, v AS K FROM s").id == "SYNTAX"
