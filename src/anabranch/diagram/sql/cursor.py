"""A cursor moves over the tokens of one statement; every rule of the grammar is a function that takes one."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.diagram.sql.fragment import CLOSERS, Fragment, after
from anabranch.diagram.sql.source_text import SourceText, did_you_mean
from anabranch.diagram.sql.tokens import Kind, Token
from anabranch.diagram.sql.words import begins_clause, refused
from anabranch.model.errors import AnabranchError

_INSTEAD = {
    "JOIN": "Write FROM a JOIN b ON condition [WITHIN 'd'], or LEFT JOIN.",
    "EXCEPT": "Say with WHERE which rows are wanted.",
    "INTERSECT": "Say with WHERE which rows are wanted.",
    "MINUS": "Say with WHERE which rows are wanted.",
    "WINDOW": "Use an aggregate over <SLICES 'd'>.",
    "LATERAL": "Use functions on arrays, such as transform or filter.",
}
_WHEN_READING = "Leave it out here, and write it in the SELECT that reads the stream."


class Cursor:
    def __init__(self, source: SourceText, tokens: Sequence[Token]) -> None:
        self.source = source
        self.tokens = tuple(tokens)
        self.at = 0
        end = self.tokens[-1].end if self.tokens else len(source.text)
        self._end = Token(Kind.END, "", "", end, end + 1)

    def peek(self, ahead: int = 0) -> Token:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else self._end

    def sees(self, *words: str) -> bool:
        return all(self.peek(i).word == word for i, word in enumerate(words))

    def take(self) -> Token:
        token = self.peek()
        self.at += 1
        return token

    def accept(self, *words: str) -> bool:
        """Go past these words, if they are next."""
        found = self.sees(*words)
        self.at += len(words) if found else 0
        return found

    def expect(self, *words: str, next_step: str) -> None:
        for i, word in enumerate(words):
            if not self.accept(word):
                raise self.unexpected(f"{' '.join(words[i:])}", next_step, (word,))

    def name(self, need: str, next_step: str = "Write a name, in backticks if it has odd characters.") -> Token:
        if not self.peek().is_name or not self.peek().value:
            raise self.unexpected(need, next_step)
        return self.take()

    def since(self, start: int) -> Fragment:
        """What was taken since the cursor stood at `start`."""
        return Fragment(self.source, self.tokens[start : self.at])

    def expression(self, need: str, *, commas: bool = False) -> Fragment:
        """Everything up to the next clause, comma (unless `commas`) or closing parenthesis that is not inside."""
        start = self.at
        while self.at < len(self.tokens) and not self._stops(commas):
            self.at = after(self.source, self.tokens, self.at)
        if self.at == start:
            raise self.unexpected(need, "Write an expression as in Spark SQL.")
        return self.since(start)

    def _stops(self, commas: bool) -> bool:
        word = self.peek().word
        return word in CLOSERS or (word == "," and not commas) or begins_clause(self.tokens, self.at)

    def refused(self) -> AnabranchError | None:
        """The error for a clause that begins here and that continuous queries do not have."""
        clause = refused(self.tokens, self.at) if self.at < len(self.tokens) else None
        if clause is None:
            return None
        token = self.peek()
        end = self.peek(1).end if clause.endswith(" BY") else token.end
        return self.source.error(
            token.start,
            end,
            need="SELECT ... FROM ... [JOIN ... ON ...] [WHERE ...] [GROUP BY ...] [HAVING ...] [UNION ALL ...]",
            got=f"{clause}, which continuous queries do not have",
            next_step=_INSTEAD.get(clause.rpartition(" ")[2] if clause.endswith("JOIN") else clause, _WHEN_READING),
        )

    def unexpected(self, need: str, next_step: str, choices: tuple[str, ...] = ()) -> AnabranchError:
        token = self.peek()
        hint = did_you_mean(token.raw, choices) if token.kind is Kind.WORD else ""
        got = "the end of the statement" if token.kind is Kind.END else str(token)
        return self.source.error(token.start, token.end, need=need, got=got, next_step=hint + next_step)
