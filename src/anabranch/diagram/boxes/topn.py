"""TopN: of each group the first rows in an order, and perhaps their rank.

Ties are broken by the remaining columns in the order of the schema, so that which rows are first does not
depend on when they came; rows that are equal in all are interchangeable. With `most` 1 it is
de-duplication: of all rows with the same keys one is kept. A row keeps its event time.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.expression import Expression


@dataclass(frozen=True)
class Order:
    """An expression to order by. As in Spark, nulls come first where it ascends and last where it descends."""

    expression: Expression
    descending: bool = False
    nulls_last: bool = False

    def __str__(self) -> str:
        said = f"{self.expression} DESC" if self.descending else str(self.expression)
        usual = self.descending == self.nulls_last
        return said if usual else f"{said} NULLS {'LAST' if self.nulls_last else 'FIRST'}"


@dataclass(frozen=True)
class TopN(Box):
    input: Box
    keys: tuple[Expression, ...]
    order: tuple[Order, ...]
    most: int
    rank: str | None = None  # the column that gets the rank, from 1

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.input.columns, *([self.rank] if self.rank else []))
