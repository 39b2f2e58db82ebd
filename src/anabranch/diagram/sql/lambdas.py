"""Lambdas in an expression, `x -> x + 1` or `(x, y) -> x + y`: where their variables mean what."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.sql.fragment import CLOSERS, Fragment, after
from anabranch.diagram.sql.words import token_at


@dataclass(frozen=True)
class Lambda:
    """Its variables, in lower case, from its first token up to the one after its body."""

    start: int
    end: int
    names: frozenset[str]


def lambdas(fragment: Fragment) -> tuple[Lambda, ...]:
    tokens = fragment.tokens
    return tuple(_lambda(fragment, i) for i, token in enumerate(tokens) if token.word == "->" and i > 0)


def _lambda(fragment: Fragment, arrow: int) -> Lambda:
    tokens = fragment.tokens
    start = arrow - 1
    if tokens[start].word == ")":
        while start > 0 and tokens[start].word != "(":
            start -= 1
    names = frozenset(token.value.lower() for token in tokens[start:arrow] if token.is_name)
    end = arrow + 1
    while end < len(tokens) and token_at(tokens, end).word not in CLOSERS and tokens[end].word != ",":
        end = after(fragment.source, tokens, end)
    return Lambda(start, end, names)
