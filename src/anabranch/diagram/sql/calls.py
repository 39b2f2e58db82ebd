"""Finding the calls in an expression that are ours to compute: aggregates, and the window's two ends.

Everything else in an expression is Spark's. What would need more than one row or another table (sub-queries,
window functions, aggregates without a law) is refused here, with the caret at the word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from anabranch.diagram.aggregates import ALIASES, LAWS, OTHERS, Law, law_of
from anabranch.diagram.sql.fragment import Fragment, closing
from anabranch.diagram.sql.lambdas import lambdas
from anabranch.diagram.sql.tokens import Kind
from anabranch.diagram.sql.words import token_at
from anabranch.model.errors import AnabranchError

_WINDOW_ENDS = {"cq_close": "_close", "cq_open": "_open"}
_CALLED = sorted({*(law.name for law in LAWS.values() if not law.ours), *ALIASES} - {"count_distinct"})
_THERE_ARE = f"There are {', '.join(_CALLED)}, and count(DISTINCT ...)."


@dataclass(frozen=True)
class Asked:
    """An aggregate as it was asked for."""

    function: str
    arguments: tuple[Fragment, ...]
    where: Fragment | None
    said: Fragment


@dataclass(frozen=True)
class Found:
    """A call, from token `start` up to `end`: an aggregate, or the column that has the window's end."""

    start: int
    end: int
    what: Asked | str


def find(fragment: Fragment) -> tuple[Found, ...]:
    """The calls in an expression, in order."""
    return tuple(_find(fragment))


def _find(fragment: Fragment) -> Iterator[Found]:
    tokens = fragment.tokens
    inside_lambda = [range(scope.start, scope.end) for scope in lambdas(fragment)]
    skip = 0
    for i, token in enumerate(tokens):
        _refuse(fragment, i)
        if i < skip or not token.is_name or token_at(tokens, i + 1).word != "(":
            continue
        if token_at(tokens, i - 1).word in (".", "LIKE", "ILIKE"):  # another catalog's function; LIKE ANY (...)
            continue
        name = token.value.lower()
        law = law_of(name)
        if law is None and name not in _WINDOW_ENDS:
            continue
        found = _aggregate(fragment, i, law) if law else _window_end(fragment, i)
        if any(i in scope for scope in inside_lambda):
            raise fragment.part(i, found.end).error(
                need="aggregates outside of lambdas", got=f"{token.raw} inside of one", next_step="Move it out."
            )
        yield found
        skip = found.end


def none_in(fragment: Fragment, where: str, next_step: str) -> None:
    """Refuse every call of ours in an expression that is about single rows."""
    for found in find(fragment):
        said = fragment.part(found.start, found.end)
        raise said.error(need=f"an expression over single rows in {where}", got=said.squeezed, next_step=next_step)


def _refuse(fragment: Fragment, i: int) -> None:
    tokens = fragment.tokens
    word, following = tokens[i].word, token_at(tokens, i + 1)
    with_query = following.word == "WITH" and token_at(tokens, i + 2).is_name
    if word == "(" and (following.word == "SELECT" or with_query):
        raise fragment.part(i + 1, i + 2).error(
            need="an expression", got="a sub-query", next_step="Sub-queries may stand after FROM only."
        )
    if (
        word == ")"
        and following.word == "OVER"
        and (token_at(tokens, i + 2).is_name or token_at(tokens, i + 2).word == "(")
    ):
        raise fragment.part(i + 1, i + 2).error(
            need="an expression over one row, or an aggregate",
            got="a window function",
            next_step="Put the window after the stream: FROM stream <SLICES '1 minute'>.",
        )
    is_call = following.word == "(" and tokens[i].is_name and token_at(tokens, i - 1).word != "."
    if is_call and tokens[i].value.lower() in OTHERS:
        close = get_close_matches(tokens[i].value.lower(), [*LAWS, *ALIASES], n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        raise fragment.part(i, i + 1).error(
            need="an aggregate that continuous queries have", got=tokens[i].raw, next_step=hint + _THERE_ARE
        )


def _window_end(fragment: Fragment, i: int) -> Found:
    name = fragment.tokens[i].value.lower()
    end = closing(fragment.source, fragment.tokens, i + 1) + 1
    if [token.word for token in fragment.tokens[i + 2 : end]] != ["*", ")"]:
        said = fragment.part(i, end)
        raise said.error(need=f"{name}(*)", got=said.squeezed, next_step=f"Write {name}(*).")
    return Found(i, end, _WINDOW_ENDS[name])


def _aggregate(fragment: Fragment, i: int, law: Law) -> Found:
    source, tokens = fragment.source, fragment.tokens
    close = closing(source, tokens, i + 1)
    inside = fragment.part(i + 2, close)
    end = close + 1
    _refuse_modifiers(fragment, inside, end)
    where = None
    if token_at(tokens, end).word == "FILTER" and token_at(tokens, end + 1).word == "(":
        last = closing(source, tokens, end + 1)
        where = fragment.part(end + 3, last)
        if tokens[end + 2].word != "WHERE" or not where.tokens:
            raise fragment.part(end, last + 1).error(
                need="FILTER (WHERE condition)",
                got=fragment.part(end, last + 1).squeezed,
                next_step="Write a condition.",
            )
        end = last + 1
        _refuse_modifiers(fragment, inside, end)
    said = fragment.part(i, end)
    function, arguments = _arguments(law, said, inside)
    for part in (*arguments, *([where] if where else ())):
        none_in(part, f"{law.name}()", "Nest them as queries: an aggregate over a sub-query, or over another stream.")
    return Found(i, end, Asked(function, arguments, where, said))


def _refuse_modifiers(fragment: Fragment, inside: Fragment, end: int) -> None:
    """What may be written in or after a call, and asks for an order or for nulls to be skipped."""
    for run in (inside, fragment.part(end, end + 2)):
        for j in range(len(run.tokens) - 1):
            pair = (run.tokens[j].word, run.tokens[j + 1].word)
            if pair in (("IGNORE", "NULLS"), ("RESPECT", "NULLS"), ("ORDER", "BY"), ("WITHIN", "GROUP")):
                raise run.part(j, j + 2).error(
                    need="a plain call of an aggregate",
                    got=f"{' '.join(pair)}, which is not there",
                    next_step="Use FILTER (WHERE x IS NOT NULL) to skip nulls; first and last go by event time.",
                )


def _arguments(law: Law, said: Fragment, inside: Fragment) -> tuple[str, tuple[Fragment, ...]]:
    function, distinct = law.name, False
    first = token_at(inside.tokens, 0)
    if first.word in ("DISTINCT", "ALL") and len(inside.tokens) > 1:
        distinct, inside = first.word == "DISTINCT", inside.part(1, len(inside.tokens))
    arguments = tuple(inside.split()) if inside.tokens else ()
    if function == "count" and not distinct and len(arguments) == 1 and _counts_rows(arguments[0]):
        return function, ()
    if distinct and function == "count":
        function = "count_distinct"
    elif distinct and function not in ("min", "max"):
        raise said.error(
            need="DISTINCT with count, min or max",
            got=said.squeezed,
            next_step="Count distinct values, or group by them.",
        )
    _check_arguments(law, said, arguments)
    return function, arguments


def _counts_rows(argument: Fragment) -> bool:
    """`count(*)`, or the count of something that is never null."""
    token = argument.tokens[0] if len(argument.tokens) == 1 else None
    return token is not None and (token.word in ("*", "TRUE", "FALSE") or token.kind in (Kind.NUMBER, Kind.STRING))


def _check_arguments(law: Law, said: Fragment, arguments: tuple[Fragment, ...]) -> None:
    if any(not argument.tokens for argument in arguments):
        raise said.error(
            need="an expression between commas", got=said.squeezed, next_step="Write one, or drop a comma."
        )
    for argument in arguments:
        if argument.tokens[-1].word == "*":
            raise argument.error(
                need="columns by name", got=argument.squeezed, next_step="Only count(*) takes a star: name the columns."
            )
    if not law.least <= len(arguments) <= law.most:
        raise _wrong_number(law, said, len(arguments))


def _wrong_number(law: Law, said: Fragment, count: int) -> AnabranchError:
    bounds = str(law.least) if law.least == law.most else f"{law.least} to {law.most}"
    step = "Skip nulls with FILTER (WHERE x IS NOT NULL)." if law.name in ("first", "last") else "Correct the call."
    return said.error(
        need=f"{bounds} argument{'s' if law.most > 1 else ''} of {law.name}", got=str(count or "none"), next_step=step
    )
