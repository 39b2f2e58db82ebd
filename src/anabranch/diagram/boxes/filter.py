"""Filter: keep the rows for which a predicate is true; false and unknown are left out."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.expression import Expression


@dataclass(frozen=True)
class Filter(Box):
    input: Box
    predicate: Expression
