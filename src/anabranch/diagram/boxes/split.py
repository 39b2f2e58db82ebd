"""Split: each row goes one of several ways, by the first condition that is true of it; without one, the last way.

A diagram has a Split for each way that is followed: it lets the rows of that way pass. So every row comes out
of exactly one of them, and a revision that moves a row from one way to another is a deletion there and an
insertion here.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.expression import Expression


@dataclass(frozen=True)
class Split(Box):
    input: Box
    conditions: tuple[Expression, ...]
    way: int  # the place of a condition, from 0; their number stands for all other rows

    @property
    def predicate(self) -> Expression:
        """What is true of the rows of this way."""
        cases = " ".join(f"WHEN ({condition}) THEN {n}" for n, condition in enumerate(self.conditions))
        text = f"CASE {cases} ELSE {len(self.conditions)} END = {self.way}"
        return Expression(text, self.conditions[min(self.way, len(self.conditions) - 1)].at)
