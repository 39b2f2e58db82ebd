"""Which words end an expression, which bind its parts, and which are no names.

Spark lets nearly every word be a name, so a word counts as the beginning of a clause only where a clause
can begin: after an operand, and, where it could be an alias too, followed by what the clause goes on with.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from anabranch.diagram.sql.tokens import Kind, Token

# How tightly operators bind; a name, a call or a pair of parentheses is an atom.
ATOM = 100
_LEVELS = (
    (1, "OR"),
    (2, "AND"),
    (3, "NOT"),
    (4, "= == <> != < <= > >= <=> IS IN LIKE ILIKE RLIKE REGEXP BETWEEN"),
    (5, "|"),
    (6, "^"),
    (7, "&"),
    (8, "+ - ||"),
    (9, "* / % DIV"),
    (10, "~ !"),
    (11, "COLLATE AT"),
)
RANKS = MappingProxyType({word: rank for rank, words in _LEVELS for word in words.split()})


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that stand between operands without joining them.
BETWEEN_OPERANDS = _words(
    """CASE WHEN THEN ELSE END AS FROM FOR PLACING BOTH LEADING TRAILING ESCAPE DISTINCT ALL INTERVAL TO SELECT
    WHERE BY HAVING"""
)
# Words that are never the name of a column where an expression stands.
NO_COLUMN = _words("NULL TRUE FALSE EXISTS ANY SOME NULLS UNKNOWN") | frozenset(RANKS) | BETWEEN_OPERANDS
_UNITS = _words("YEAR QUARTER MONTH WEEK DAY DAYOFYEAR HOUR MINUTE SECOND MILLISECOND MICROSECOND NANOSECOND")
TIME_UNITS = _UNITS | {f"{unit}S" for unit in _UNITS}

_JOINED = _words("INNER CROSS LEFT RIGHT FULL NATURAL SEMI ANTI OUTER ASOF")
_BY = _words("ORDER SORT CLUSTER DISTRIBUTE")
_ALONE = _words("JOIN LATERAL EXCEPT INTERSECT MINUS PIVOT UNPIVOT TABLESAMPLE")
_OURS = frozenset((("ARCHIVE", "INTO"), ("REVISE", "EVERY"), ("ON", "ERROR")))
# These words may also be a column's name, before WHEN or after ON.
_OURS_AFTER_OPERAND = frozenset((("REVISE", "WHEN"), ("ON", "REVISION")))

_NOTHING = Token(Kind.END, "", "", 0, 0)


def token_at(tokens: Sequence[Token], i: int) -> Token:
    """The token at a place, or one that is nothing where there is none."""
    return tokens[i] if 0 <= i < len(tokens) else _NOTHING


def ends_operand(token: Token) -> bool:
    """Whether an operand may end with this token, so that an alias or a clause may follow."""
    if token.kind is Kind.SYMBOL:
        return token.word in (")", "]")
    if token.kind is Kind.WORD:
        return token.word not in RANKS and (token.word not in BETWEEN_OPERANDS or token.word == "END")
    return token.kind is not Kind.END


def begins_clause(tokens: Sequence[Token], i: int) -> bool:
    """Whether a clause of a select begins here, one of ours or one that is refused."""
    token, before, after = tokens[i], token_at(tokens, i - 1), token_at(tokens, i + 1)
    if token.kind is not Kind.WORD or before.word == ".":
        return False
    if token.word == "FROM":
        return not _is_distinct_from(tokens, i)
    if token.word in ("WHERE", "HAVING", "UNION"):
        return True
    if token.word == "QUALIFY" and (ends_operand(before) or before.word == ">"):
        return True
    if token.word == "LOOKUP" and (ends_operand(before) or before.word in (">", "LEFT")) and after.is_name:
        return True
    if (token.word, after.word) in (("LEFT", "LOOKUP"), ("WITHOUT", "REVISION")) and ends_operand(before):
        return True
    if token.word == "APPLY" and ends_operand(before) | (before.word == ">") and after.kind is Kind.STRING:
        return True
    if token.word == "WITHIN" and ends_operand(before):
        return after.kind in (Kind.STRING, Kind.NUMBER) or after.word in ("INTERVAL", "BETWEEN")
    return (
        (token.word, after.word) in (("GROUP", "BY"), ("GROUPING", "SETS"))
        or trails(tokens, i)
        or refused(tokens, i) is not None
    )


def trails(tokens: Sequence[Token], i: int) -> bool:
    """Whether a clause begins here that says how a query's answers are kept."""
    pair = (token_at(tokens, i).word, token_at(tokens, i + 1).word)
    if pair in _OURS_AFTER_OPERAND:
        before, third = token_at(tokens, i - 1), token_at(tokens, i + 2)
        compared = third.word in RANKS or third.word in (".", "(", "[", "::")
        return (ends_operand(before) or before.word == ">") and not (pair[0] == "ON" and compared)
    return pair in _OURS or _orders_by_event_time(tokens, i)


def _orders_by_event_time(tokens: Sequence[Token], i: int) -> bool:
    """The only order that answers without an end have."""
    return [token_at(tokens, i + n).word for n in range(4)] == ["ORDER", "BY", "EVENT", "TIME"]


def refused(tokens: Sequence[Token], i: int) -> str | None:
    """The clause of Spark's that begins here and that continuous queries do not have."""
    token, before, after = tokens[i], token_at(tokens, i - 1), token_at(tokens, i + 1)
    if token.word in _BY and after.word == "BY" and not _orders_by_event_time(tokens, i):
        return f"{token.word} BY"
    if not ends_operand(before) and before.word != ">":  # the end of a window
        return None
    if token.word in _ALONE:
        return token.word
    if token.word in _JOINED and (after.word in _JOINED or after.word == "JOIN"):
        return f"{token.word} JOIN"
    if token.word in ("LIMIT", "OFFSET") and (after.kind is Kind.NUMBER or after.word in ("ALL", "(")):
        return token.word
    if token.word == "WINDOW" and after.is_name and token_at(tokens, i + 2).word == "AS":
        return token.word
    return None


def _is_distinct_from(tokens: Sequence[Token], i: int) -> bool:
    words = [token_at(tokens, i - back).word for back in (1, 2, 3)]
    return words[:2] == ["DISTINCT", "IS"] or words == ["DISTINCT", "NOT", "IS"]
