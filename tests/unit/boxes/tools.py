"""Boxes from text, and what the reference executor says of them."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.diagram import codec
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.drawing import draw
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import CreateQuery
from anabranch.model.errors import AnabranchError
from anabranch.reference.rows import WeightedRow
from anabranch.reference.run import answer
from anabranch.reference.values import Timestamp

COLUMNS = ("k", "v", "ts")
SECOND = 1_000_000
S = Source("s", COLUMNS)


def box(text: str) -> Box:
    (statement,) = parse(f"CREATE STREAM q AS {text}")
    assert isinstance(statement, CreateQuery)
    made = compile_query(statement, lambda name: COLUMNS).box
    assert codec.from_json(codec.to_json(made)) == made
    assert draw(made)
    return made


def refused(text: str) -> AnabranchError:
    with pytest.raises(AnabranchError) as caught:
        _compiled(text)
    return caught.value


def _compiled(text: str) -> None:
    for statement in parse(text):
        if isinstance(statement, CreateQuery):
            compile_query(statement, lambda name: COLUMNS)


def row(k: Any, v: Any, second: float, weight: int = 1) -> WeightedRow:
    at = int(second * SECOND)
    return WeightedRow({"k": k, "v": v, "ts": Timestamp(at)}, at, weight)


def said(made: Box, rows: list[WeightedRow], progress: float | None = 100, include_open: bool = False) -> list[Any]:
    reached = None if progress is None else int(progress * SECOND)
    return [tuple(r.values.values()) for r in answer(made, {"s": rows}, {"s": reached}, include_open).rows]
