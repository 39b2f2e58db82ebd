"""A fragment is a run of tokens in a text: how an expression is held until Spark reads it.

What is looked for inside one (a closing parenthesis, the next comma) goes by tokens, never by characters,
so strings, comments and quoted names cannot mislead it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.diagram.expression import Expression
from anabranch.diagram.sql.source_text import SourceText
from anabranch.diagram.sql.tokens import Token, tokenize
from anabranch.diagram.sql.words import token_at
from anabranch.model.errors import AnabranchError

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_WITH_INNER_TYPES = frozenset(("ARRAY", "MAP", "STRUCT"))
CLOSERS = frozenset(_PAIRS.values())


@dataclass(frozen=True)
class Fragment:
    source: SourceText
    tokens: tuple[Token, ...]

    def __repr__(self) -> str:
        return f"Fragment({self.text!r})"

    @classmethod
    def of(cls, text: str, name: str) -> Fragment:
        """A text that is no statement, such as an argument of the fluent form."""
        source = SourceText(text, name, is_statement=False)
        return cls(source, tokenize(source))

    @property
    def start(self) -> int:
        return self.tokens[0].start if self.tokens else 0

    @property
    def end(self) -> int:
        return self.tokens[-1].end if self.tokens else len(self.source.text)

    @property
    def text(self) -> str:
        """What the user wrote, comments inside included."""
        return self.source.text[self.start : self.end]

    @property
    def at(self) -> int | None:
        return self.start if self.source.is_statement else None

    @property
    def expression(self) -> Expression:
        return Expression(self.text, self.at)

    @property
    def squeezed(self) -> str:
        """The text without comments, each gap one space."""
        said = ""
        for i, token in enumerate(self.tokens):
            said += (" " if i and self.tokens[i - 1].end < token.start else "") + token.raw
        return said

    def part(self, start: int, end: int) -> Fragment:
        return Fragment(self.source, self.tokens[start:end])

    def error(self, *, need: str, got: str, next_step: str, error_id: str = "SYNTAX") -> AnabranchError:
        return self.source.error(self.start, self.end, need=need, got=got, next_step=next_step, error_id=error_id)

    def moved(self, error: AnabranchError) -> AnabranchError:
        return self.source.moved(error, self.start, self.end)

    def split(self) -> Iterator[Fragment]:
        """The parts between the commas that are in no parentheses."""
        start = 0
        for i in outermost(self.source, self.tokens):
            if self.tokens[i].word == ",":
                yield self.part(start, i)
                start = i + 1
        yield self.part(start, len(self.tokens))


def outermost(source: SourceText, tokens: Sequence[Token]) -> Iterator[int]:
    """The indices of the tokens in no parentheses; an opening parenthesis stands for its whole group."""
    i = 0
    while i < len(tokens):
        yield i
        i = after(source, tokens, i)


def after(source: SourceText, tokens: Sequence[Token], i: int) -> int:
    """The index after a token, or after the group that it opens: parentheses, or a type's angle brackets after `::`."""
    if tokens[i].word in _PAIRS:
        return closing(source, tokens, i) + 1
    if tokens[i].word == "<" and token_at(tokens, i - 1).word in _WITH_INNER_TYPES:
        return _end_of_type(tokens, i) + 1 if token_at(tokens, i - 2).word.endswith("::") else i + 1
    return i + 1


def closing(source: SourceText, tokens: Sequence[Token], start: int) -> int:
    """The index of what closes the parenthesis or bracket at `start`."""
    open_ones: list[Token] = []
    for i in range(start, len(tokens)):
        word = tokens[i].word
        if word in _PAIRS:
            open_ones.append(tokens[i])
        elif word in CLOSERS:
            opened = open_ones.pop()
            if _PAIRS[opened.word] != word:
                raise _unclosed(source, opened, str(tokens[i]))
            if not open_ones:
                return i
    raise _unclosed(source, open_ones[-1], "the end")


def _end_of_type(tokens: Sequence[Token], start: int) -> int:
    depth = 0
    for i in range(start, len(tokens)):
        depth += (tokens[i].word == "<") - (tokens[i].word == ">")
        if depth == 0:
            return i
    return start


def _unclosed(source: SourceText, opened: Token, got: str) -> AnabranchError:
    return source.error(
        opened.start,
        opened.end,
        need=f"a {_PAIRS[opened.word]!r} that closes this {opened.raw!r}",
        got=got,
        next_step="Close it.",
    )
