"""CREATE BRANCH, DROP BRANCH and SHOW BRANCHES."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.diagram.sql.cursor import Cursor
from anabranch.diagram.sql.durations import duration
from anabranch.diagram.sql.statements import CreateBranch, DropBranch
from anabranch.diagram.sql.tokens import Kind
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import check_branch_name
from anabranch.model.time import instant_us

_WRITE = "Write CREATE BRANCH name [AT bucket | AT 'stream time'] [EXPIRES '7 days']."


def create_branch(cursor: Cursor) -> CreateBranch:
    """What follows CREATE BRANCH."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = _name(cursor)
    clauses: dict[str, Any] = {}
    while cursor.peek().kind is not Kind.END:
        start = cursor.at
        if cursor.peek().word not in _CLAUSES:
            raise cursor.unexpected(" or ".join(_CLAUSES), _WRITE, tuple(_CLAUSES))
        field, read = _CLAUSES[cursor.take().word]
        value = read(cursor)
        if field in clauses:
            raise cursor.since(start).error(
                need="each clause once", got="a second one of its kind", next_step="Leave one out."
            )
        clauses[field] = value
    return CreateBranch(cursor.source, name, if_not_exists=if_not_exists, **clauses)


def drop_branch(cursor: Cursor) -> DropBranch:
    """What follows DROP BRANCH."""
    if_exists = cursor.accept("IF", "EXISTS")
    return DropBranch(cursor.source, _name(cursor), if_exists)


def _lifetime(cursor: Cursor) -> str:
    return duration(cursor)[0]


def _past(cursor: Cursor) -> int | str:
    """A bucket's number, or a stream time, checked."""
    start = cursor.at
    if cursor.peek().kind is Kind.NUMBER and cursor.peek().value.isdigit():
        return int(cursor.take().value)
    cursor.accept("TIMESTAMP")
    if cursor.peek().kind is not Kind.STRING:
        raise cursor.unexpected("the number of a bucket, or a stream time such as '2026-01-01T00:00:00Z'", _WRITE)
    text = cursor.take().value
    try:
        instant_us(text, "")
    except AnabranchError as error:
        raise cursor.since(start).moved(error) from None
    return text


# What may follow the name, each once: the word, its field, and what reads the rest of the clause.
_CLAUSES: dict[str, tuple[str, Callable[[Cursor], Any]]] = {"AT": ("past", _past), "EXPIRES": ("expires", _lifetime)}


def _name(cursor: Cursor) -> str:
    start = cursor.at
    token = cursor.name("the name of the branch", "Write a name, in backticks if it has a hyphen.")
    try:
        check_branch_name(token.value)
    except AnabranchError as error:
        raise cursor.since(start).moved(error) from None
    return token.value
