"""Expressions are the user's own text: Spark reads them, not we.

An expression knows where in its statement it stood, so that an error can point there. Text that we
had to change, because an aggregate in it was replaced by its result, keeps the place of the original.
"""

from __future__ import annotations

from dataclasses import dataclass, field


def literal(text: str) -> str:
    """A text as it stands in SQL.

    >>> print(literal("it's"))
    'it\\'s'
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True)
class Expression:
    """SQL text, and its offset in the statement it came from; the offset is no part of its meaning."""

    text: str
    at: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Named:
    """A column that a box makes: its name and what it is."""

    name: str
    expression: Expression

    def __str__(self) -> str:
        return self.name if self.expression.text == self.name else f"{self.expression} AS {self.name}"
