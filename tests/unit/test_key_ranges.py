"""Which segments of running partial results can hold some keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.expression import Expression, Named
from anabranch.engine.key_ranges import between, holding, ranged_key
from anabranch.model.run import Segment
from anabranch.model.schema import Schema

EMPTY = Segment(path="s", size=1, rows=1, event_min=None, event_max=None)


def segment(low: str | None, high: str | None) -> Segment:
    return replace(EMPTY, key_min=low, key_max=high)


def test_segments_are_told_apart_by_the_range_of_their_keys() -> None:
    there = [segment("0", "9"), segment("10", "19"), segment("-5", "-1"), segment(None, None)]
    assert holding(there, [segment("9", "9")], "INT") == [there[0], there[3]]
    assert holding(there, [segment("12", "15"), segment("-2", "-2")], "INT") == [there[1], there[2], there[3]]
    assert holding(there, [segment("30", "40")], "INT") == [there[3]], "of which nothing is known can hold anything"
    assert holding(there, [segment("30", "40"), segment(None, None)], "INT") == there
    assert between("_k0", [segment("12", "15"), segment("-2", "3")], "INT") == "_k0 BETWEEN -2 AND 15"


def test_decimals_are_compared_as_numbers_and_texts_as_texts() -> None:
    there = [segment('"9.5"', '"10.5"'), segment('"a"', '"f"')]
    assert holding(there[:1], [segment('"10"', '"10"')], "DECIMAL(4,1)") == there[:1]
    assert holding(there[1:], [segment('"g"', '"z"')], "STRING") == []
    assert between("_k0", [segment('"a"', '"b"')], "STRING") == "TRUE"
    assert between("_k0", [segment(None, None)], "INT") == "TRUE"


@pytest.mark.parametrize(
    ("kind", "pane", "expected"),
    [("BIGINT", None, ("_k0",)), ("STRING", None, ("_k0",)), ("DOUBLE", None, ()), ("BIGINT", 60, ()),
     ("ARRAY<INT>", None, ())],
)  # fmt: skip
def test_only_keys_with_a_plain_order_and_without_panes_have_ranges(
    kind: str, pane: int | None, expected: tuple[str, ...]
) -> None:
    box = Partials(Source("s", ("a",)), pane, (Named("_k0", Expression("a")),), ())
    assert ranged_key(box, Schema.parse({"_k0": kind}, "")) == expected
    assert ranged_key(replace(box, keys=()), Schema.parse({"_k0": kind}, "")) == ()
