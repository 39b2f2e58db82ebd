"""What the names in an expression mean: columns of the input, or something else.

An expression is read as units: a token, or a column with the qualifier that it may have. Two expressions are
the same when their units are, so letter case, backticks, spaces, comments and qualifiers make no difference.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.join import Side
from anabranch.diagram.sql.fragment import Fragment, after, closing
from anabranch.diagram.sql.lambdas import lambdas
from anabranch.diagram.sql.names import written
from anabranch.diagram.sql.tokens import Kind, Token
from anabranch.diagram.sql.words import NO_COLUMN, TIME_UNITS, token_at

_TAKES_UNIT = frozenset(("EXTRACT", "TIMESTAMPADD", "TIMESTAMPDIFF", "DATEADD", "DATE_ADD", "DATEDIFF", "DATE_DIFF"))


@dataclass(frozen=True)
class Unit:
    meaning: str
    start: int  # its tokens, from `start` up to `end`
    end: int
    is_value: bool  # a name that stands for a column, or could
    lambda_at: int | None  # where the lambda begins whose variable it is


@dataclass(frozen=True)
class Scope:
    """The columns that an expression can see, and the name that may stand before them."""

    columns: tuple[str, ...]
    qualifier: str | None = None
    sides: tuple[Side, ...] = ()  # of a join, whose columns are structs under their names

    def starred(self, qualifier: str | None) -> list[tuple[str, str]] | None:
        """What a star stands for: names, and what is written for them; None if there is no such qualifier."""
        if not self.sides:
            known = qualifier is None or (self.qualifier or "").lower() == qualifier.lower()
            return [(name, written(name)) for name in self.columns] if known else None
        meant = [side for side in self.sides if qualifier is None or side.name.lower() == qualifier.lower()]
        return [(c, f"{written(side.name)}.{written(c)}") for side in meant for c in side.columns] or None

    def has(self, name: str) -> bool:
        return any(name.lower() == column.lower() for column in self.columns)

    def meaning(self, fragment: Fragment) -> tuple[str, ...]:
        """What makes two expressions the same."""
        return tuple(unit.meaning for unit in self.units(bare(fragment)))

    def units(self, fragment: Fragment) -> tuple[Unit, ...]:
        tokens = fragment.tokens
        inner = lambdas(fragment)
        no_values = _types(fragment)
        units, i = [], 0
        while i < len(tokens):
            end = i + (3 if self._is_qualified(tokens, i) else 1)
            name = tokens[end - 1]
            bound = [at.start for at in inner if at.start <= i < at.end and name.value.lower() in at.names]
            lambda_at = max(bound) if bound and end == i + 1 else None
            is_value = i not in no_values and lambda_at is None and _may_be_value(tokens, i, end)
            units.append(Unit(_meaning(name), i, end, is_value, lambda_at))
            i = end
        return tuple(units)

    def _is_qualified(self, tokens: tuple[Token, ...], i: int) -> bool:
        name, dot, column = tokens[i], token_at(tokens, i + 1), token_at(tokens, i + 2)
        return (
            self.qualifier is not None
            and name.is_name
            and name.value.lower() == self.qualifier.lower()
            and dot.word == "."
            and column.is_name
            and self.has(column.value)
            and token_at(tokens, i - 1).word != "."
        )


def _meaning(token: Token) -> str:
    if token.is_name:
        return token.value.lower()
    # Apart from names: the string 'a' is not the column a.
    return f"{token.kind}:{token.raw if token.kind is Kind.STRING else token.raw.lower()}"


def bare(fragment: Fragment) -> Fragment:
    """Without parentheses around all of it."""
    while len(fragment.tokens) > 2 and fragment.tokens[0].word == "(":
        if closing(fragment.source, fragment.tokens, 0) != len(fragment.tokens) - 1:
            break
        if len(list(fragment.part(1, -1).split())) > 1:  # (a, b) is a struct
            break
        fragment = fragment.part(1, -1)
    return fragment


def _may_be_value(tokens: tuple[Token, ...], i: int, end: int) -> bool:
    token, before, following = tokens[i], token_at(tokens, i - 1), token_at(tokens, end)
    if not token.is_name or token.word in NO_COLUMN:
        return False
    if before.word in (".", ":") or following.word in ("(", "=>", "->"):  # a field, a function, a named argument
        return False
    if following.kind is Kind.STRING or before.kind in (Kind.STRING, Kind.NUMBER):  # DATE '...', INTERVAL 1 DAY
        return False
    if token.word in TIME_UNITS and before.word == "(" and token_at(tokens, i - 2).word in _TAKES_UNIT:
        return False
    return before.word != "TO"


def _types(fragment: Fragment) -> frozenset[int]:
    """The tokens that belong to a type: after AS in a cast, and after `::`. After another AS comes a field's name."""
    tokens = fragment.tokens
    found: set[int] = set()
    opened: list[int] = []
    for i, token in enumerate(tokens):
        if token.word == "(":
            opened.append(i)
        elif token.word == ")" and opened:
            opened.pop()
        elif token.word == "AS":
            in_cast = opened and token_at(tokens, opened[-1] - 1).word in ("CAST", "TRY_CAST")
            end = closing(fragment.source, tokens, opened[-1]) if in_cast else i + 2
            found.update(range(i + 1, end))
        elif token.word.endswith("::"):
            found.add(i + 1)
            if token_at(tokens, i + 2).word == "<":
                found.update(range(i + 2, after(fragment.source, tokens, i + 2)))
    return frozenset(found)
