"""Tokens: the words of a text, each with its place, as Spark would cut them.

sqlglot's Spark tokenizer does the cutting. It is told to forget keywords of several words and commands
that swallow the rest of the line, so that one word is always one token and means what we say it does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from anabranch.diagram.sql.source_text import SourceText
from anabranch.model.errors import AnabranchError


class Kind(StrEnum):
    WORD = "word"
    QUOTED = "quoted"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True)
class Token:
    kind: Kind
    raw: str  # as it was written
    value: str  # a name without its backticks, a string without its quotes
    start: int
    end: int

    @property
    def word(self) -> str:
        """Upper case for a word, itself for a symbol, empty for everything else: what grammar is about."""
        return self.raw.upper() if self.kind in (Kind.WORD, Kind.SYMBOL) else ""

    @property
    def is_name(self) -> bool:
        return self.kind in (Kind.WORD, Kind.QUOTED)

    def moved(self, by: int) -> Token:
        return Token(self.kind, self.raw, self.value, self.start + by, self.end + by)

    def __str__(self) -> str:
        return "the end" if self.kind is Kind.END else repr(self.raw)


# Spark's operators of more than one character; sqlglot knows those of other databases too.
_OPERATORS = frozenset(("==", "::", "?::", "||", "|>", ">=", "<=", "<>", "!=", "<=>", "->", "=>"))


class _Tokenizer(Spark.Tokenizer):
    COMMANDS: ClassVar[set[TokenType]] = set()
    KEYWORDS = {
        text: kind
        for text, kind in Spark.Tokenizer.KEYWORDS.items()
        if re.fullmatch(r"\w+", text) or text in _OPERATORS
    }


_STRINGS = frozenset(kind for kind in TokenType if kind.name.endswith("STRING"))
_QUOTES = re.compile(r"(?i)[a-z]*(['\"])(.*)\1", re.DOTALL)
_FROM = re.compile(r"from \d+:(\d+)")


def tokenize(source: SourceText) -> tuple[Token, ...]:
    """The tokens of a text, comments left out."""
    tokenizer = _Tokenizer(dialect="spark")
    try:
        found = tokenizer.tokenize(source.text)
    except TokenError as error:
        raise _unreadable(source, error, max((token.end + 1 for token in tokenizer.tokens), default=0)) from None
    # A number with a type, such as 1L, comes as three tokens at one place: the first is the number.
    return tuple(
        _token(source.text, token.token_type, token.start, token.end + 1)
        for i, token in enumerate(found)
        if i == 0 or token.start != found[i - 1].start
    )


def _token(text: str, found: TokenType, start: int, end: int) -> Token:
    raw = text[start:end]
    if found in _STRINGS:
        quoted = _QUOTES.fullmatch(raw)
        return Token(Kind.STRING, raw, quoted[2] if quoted else raw, start, end)
    if found is TokenType.IDENTIFIER:
        return Token(Kind.QUOTED, raw, raw[1:-1].replace("``", "`"), start, end)
    if found is TokenType.NUMBER:
        return Token(Kind.NUMBER, raw, raw, start, end)
    kind = Kind.WORD if re.match(r"\w", raw) else Kind.SYMBOL
    return Token(kind, raw, raw, start, end)


def _unreadable(source: SourceText, error: TokenError, after: int) -> AnabranchError:
    said = _FROM.search(str(error.__cause__))
    start = int(said[1]) if said else after + len(source.text[after:]) - len(source.text[after:].lstrip())
    start = min(start, max(len(source.text) - 1, 0))
    if "invalid characters" in str(error.__cause__):
        return source.error(
            start, start + 1, need="hexadecimal digits", got="others", next_step="Write bytes as in X'1F2A'."
        )
    opening = source.text[start : start + 2]
    what = "a comment" if opening == "/*" else "a quoted name" if opening[:1] == "`" else "a string"
    return source.error(
        start,
        start + 1,
        need=f"the end of {what} that begins here",
        got="the end of the text",
        next_step="Close it, or double a quote that belongs to it.",
    )
