"""Rewriting what stands above an Aggregate: its text may only speak of the Aggregate's columns.

Each aggregate call becomes the name of its result, each grouping expression the name of its key, the window's
ends `_open` and `_close`. A column of the input that is still there then was neither grouped nor aggregated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.diagram.boxes.aggregate import Call
from anabranch.diagram.expression import Expression
from anabranch.diagram.sql.applied import applied
from anabranch.diagram.sql.calls import Asked, Found, find
from anabranch.diagram.sql.fragment import Fragment, outermost
from anabranch.diagram.sql.names import is_column, written
from anabranch.diagram.sql.scope import Scope, Unit
from anabranch.diagram.sql.tokens import Kind, Token
from anabranch.diagram.sql.words import ATOM, BETWEEN_OPERANDS, RANKS, token_at
from anabranch.model.errors import AnabranchError

_OPENERS = frozenset(("(", "[", ",", "->", "=>"))
_CLOSERS = frozenset((")", "]", ","))
_BINDS_TO_ATOM = frozenset((".", "[", "::", "?::", ":"))


@dataclass(frozen=True)
class Key:
    """A grouping expression, and the column that has it."""

    name: str
    said: Fragment
    meaning: tuple[str, ...]
    rank: int


def rank_of(fragment: Fragment) -> int:
    """How tightly an expression holds together: the rank of its loosest operator."""
    tokens = fragment.tokens
    ranks, cases = [ATOM], 0
    for i in outermost(fragment.source, tokens):
        cases += (tokens[i].word == "CASE") - (tokens[i].word == "END")
        if cases == 0:
            ranks.append(RANKS.get(tokens[i].word, ATOM))
    return min(ranks)


class Rewriter:
    """Rewrites the expressions of one select, and gathers the calls that they need."""

    def __init__(self, scope: Scope, keys: tuple[Key, ...], *, windowed: bool) -> None:
        self.scope = scope
        self.windowed = windowed
        # The longest first: `upper(a)` rather than the `a` in it.
        self.keys = sorted(keys, key=lambda key: -len(key.meaning))
        self._calls: dict[object, Call] = {}

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(self._calls.values())

    def rewrite(self, fragment: Fragment, aliases: Mapping[str, str] | None = None) -> Expression:
        """The same expression over the Aggregate's columns; `aliases` are names of select items and their new text."""
        aliases = aliases or {}
        found = {call.start: call for call in find(fragment)}
        units = self.scope.units(fragment)
        spans: list[tuple[int, int, str]] = []
        i = 0
        while i < len(units):
            start = units[i].start
            if start in found:
                end, text = found[start].end, self._column(fragment, found[start])
            elif _is_alias(units[i], aliases):
                end, text = units[i].end, _operand(aliases[units[i].meaning])
            elif key := self._key_at(fragment, units, i, aliases):
                end, text = units[i + len(key.meaning) - 1].end, key.name
            else:
                self._check(fragment, units[i])
                i += 1
                continue
            spans.append((start, end, text + self._field(fragment, start, end)))
            while i < len(units) and units[i].start < end:
                i += 1
        return Expression(_replaced(fragment, spans), fragment.at)

    def _field(self, fragment: Fragment, start: int, end: int) -> str:
        """What follows a replaced argument of struct(...), so that its field has the name that Spark would give it."""
        tokens = fragment.tokens
        opened, place = _enclosing(tokens, start)
        whole = token_at(tokens, start - 1).word in ("(", ",") and token_at(tokens, end).word in (")", ",")
        if not whole or opened is None or token_at(tokens, opened - 1).word != "STRUCT":
            return ""
        said = fragment.part(start, end)
        known = [name for name in self.scope.columns if name.lower() == said.tokens[-1].value.lower()]
        return f" AS {written(known[0])}" if known and is_column(said) else f" AS col{place}"

    def _column(self, fragment: Fragment, found: Found) -> str:
        if isinstance(found.what, str):
            if not self.windowed:
                raise no_window(fragment, found)
            return found.what
        asked = found.what
        where = self.scope.meaning(asked.where) if asked.where else None
        meaning = (asked.function, tuple(map(self.scope.meaning, asked.arguments)), where)
        if meaning not in self._calls:
            self._calls[meaning] = _call(f"_a{len(self._calls)}", asked)
        return self._calls[meaning].name

    def _key_at(self, fragment: Fragment, units: tuple[Unit, ...], i: int, aliases: Mapping[str, str]) -> Key | None:
        for key in self.keys:
            run = units[i : i + len(key.meaning)]
            if tuple(unit.meaning for unit in run) != key.meaning:
                continue
            if len(run) == 1 and fragment.tokens[run[0].start].is_name and not run[0].is_value:
                continue
            if any(unit.lambda_at is not None and unit.lambda_at < run[0].start for unit in run):
                continue
            if len(run) > 1 and any(_is_alias(unit, aliases) for unit in run):
                continue
            before = fragment.tokens[run[0].start - 1] if run[0].start else None
            after = fragment.tokens[run[-1].end] if run[-1].end < len(fragment.tokens) else None
            if _may_precede(before, key.rank) and _may_follow(after, key.rank):
                return key
        return None

    def _check(self, fragment: Fragment, unit: Unit) -> None:
        if unit.is_value and self.scope.has(unit.meaning):
            said = fragment.part(unit.start, unit.end)
            raise said.error(
                error_id="NOT_GROUPED",
                need="columns that are grouped or aggregated",
                got=f"{said.squeezed!r}, which is neither grouped nor aggregated",
                next_step=f"Add it to GROUP BY, or take an aggregate of it, such as max({said.squeezed}).",
            )


def _enclosing(tokens: tuple[Token, ...], i: int) -> tuple[int | None, int]:
    """Where the innermost parenthesis around a token opens, and which of its arguments, from 1, the token begins."""
    depth, place = 0, 1
    for at in range(i - 1, -1, -1):
        word = tokens[at].word
        depth += (word in (")", "]")) - (word in ("(", "["))
        if depth < 0:
            return at, place
        place += depth == 0 and word == ","
    return None, place


def no_window(fragment: Fragment, found: Found) -> AnabranchError:
    said = fragment.part(found.start, found.end)
    return said.error(
        need="a window, whose end this is",
        got="a query without one",
        next_step="Write FROM stream <SLICES '1 minute'>.",
    )


def _call(name: str, asked: Asked) -> Call:
    arguments = tuple(argument.expression for argument in asked.arguments)
    if asked.function == "apply":
        arguments = applied(asked)
    where = asked.where.expression if asked.where else None
    return Call(name, asked.function, arguments, where, asked.said.at)


def _is_alias(unit: Unit, aliases: Mapping[str, str]) -> bool:
    return unit.is_value and unit.meaning in aliases and unit.end == unit.start + 1


def _operand(text: str) -> str:
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def _may_precede(before: Token | None, rank: int) -> bool:
    """Whether what stands before leaves an expression of this rank whole: `x * a + b` does not have `a + b` in it."""
    if before is None or before.word in _OPENERS or before.word in BETWEEN_OPERANDS:
        return True
    return before.word in RANKS and RANKS[before.word] < rank


def _may_follow(after: Token | None, rank: int) -> bool:
    if after is None or after.word in _CLOSERS or after.word in BETWEEN_OPERANDS:
        return True
    if after.word == "NOT":  # a NOT IN (...): as tight as the comparison
        return RANKS["IN"] <= rank
    if after.word in RANKS:
        return RANKS[after.word] <= rank
    return rank == ATOM and (after.word in _BINDS_TO_ATOM or after.kind is Kind.WORD)


def _replaced(fragment: Fragment, spans: list[tuple[int, int, str]]) -> str:
    text, at, said = fragment.source.text, fragment.start, ""
    for start, end, instead in spans:
        said += text[at : fragment.tokens[start].start] + instead
        at = fragment.tokens[end - 1].end
        if re.match(r"\w", text[at : fragment.end]):  # count(*)BETWEEN ...
            said += " "
    return said + text[at : fragment.end]
