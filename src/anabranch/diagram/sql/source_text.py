"""A text that a person wrote, and how an error points into it.

A place is a file name, a line and a column, then the line itself with carets under the span. Offsets are
characters of the text, so neither tabs nor wide letters nor line ends shift the carets.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from difflib import get_close_matches

from anabranch.model.errors import AnabranchError

_LINE_END = re.compile(r"\r\n|\n|\r")
_INDENT = "    "
# A longer line is cut around the span: carets far to the right would wrap and point at nothing.
_LONGEST = 120
_AROUND = 60


@dataclass(frozen=True)
class SourceText:
    """A statement, or an argument that holds SQL, and where it begins in the file that people know it by."""

    text: str
    name: str = "sql"
    line: int = 1
    column: int = 1
    # Whether offsets into it mean something to whoever keeps the statement; not so for a fluent argument.
    is_statement: bool = True

    def part(self, start: int, end: int) -> SourceText:
        """A part as a text of its own; places in it are still those of the file."""
        line, column = self.position(start)
        return SourceText(self.text[start:end], self.name, line, column, self.is_statement)

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column in the file, both from 1."""
        ends = [match.end() for match in _LINE_END.finditer(self.text, 0, offset)]
        begin = ends[-1] if ends else 0
        return self.line + len(ends), offset - begin + (1 if ends else self.column)

    def place(self, start: int, end: int | None = None) -> str:
        """Where a span is: name, line and column, and the line with carets under it."""
        line, column = self.position(start)
        return f"{self.name}, line {line}, column {column}:\n{self._marked(start, end or start + 1)}"

    def error(
        self, start: int, end: int, *, need: str, got: str, next_step: str, error_id: str = "SYNTAX"
    ) -> AnabranchError:
        return AnabranchError(error_id, place=self.place(start, end), need=need, got=got, next_step=next_step)

    def moved(self, error: AnabranchError, start: int, end: int) -> AnabranchError:
        """An error that was raised without knowing the text, pointing into it now."""
        return AnabranchError(**{**error.parts(), "place": self.place(start, end)})

    def _marked(self, start: int, end: int) -> str:
        first = max((match.end() for match in _LINE_END.finditer(self.text, 0, start)), default=0)
        after = _LINE_END.search(self.text, start)
        last = after.start() if after else len(self.text)
        first += len(self.text[first:start]) - len(self.text[first:start].lstrip())
        head = tail = ""
        if last - first > _LONGEST:
            cut_first, cut_last = max(first, start - _AROUND), min(last, max(end, start) + _AROUND, start + _LONGEST)
            head, tail = "... " if cut_first > first else "", " ..." if cut_last < last else ""
            first, last = cut_first, cut_last
        shown = "".join(c if c.isprintable() or c == "\t" else " " for c in self.text[first:last])
        before = "".join("\t" if c == "\t" else " " * _width(c) for c in head + self.text[first:start])
        carets = "^" * max(1, sum(map(_width, self.text[start : min(end, last)])))
        return f"{_INDENT}{head}{shown}{tail}".rstrip() + f"\n{_INDENT}{before}{carets}"


def _width(char: str) -> int:
    """How many cells a terminal gives to a character."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def did_you_mean(word: str, choices: tuple[str, ...]) -> str:
    """A suggestion to put before a next step, or nothing when no choice is close."""
    close = get_close_matches(word.upper(), choices, n=1)
    return f"Did you mean {close[0]}? " if close else ""
