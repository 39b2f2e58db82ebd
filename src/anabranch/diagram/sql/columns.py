"""Columns as they are declared: names and types in parentheses."""

from __future__ import annotations

from anabranch.diagram.sql.cursor import Cursor
from anabranch.diagram.sql.fragment import Fragment
from anabranch.diagram.sql.tokens import Kind
from anabranch.model.errors import AnabranchError
from anabranch.model.schema import Schema

DECLARATION = (
    "Write CREATE STREAM name (column TYPE, ...) EVENT TIME column [SLACK 'd'] [DRIFT 'd'] [KEY (...)] "
    "[HISTORY 'd' | HISTORY n ROWS]."
)


def declared_columns(cursor: Cursor) -> tuple[tuple[tuple[str, str], ...], Fragment | None]:
    """The columns, and the name of the one that is marked CQTIME."""
    found: dict[str, tuple[str, str]] = {}
    event_time = None
    cursor.take()
    while not found or cursor.accept(","):
        start = cursor.at
        name = cursor.name("the name of a column", DECLARATION).value
        named = cursor.since(start)
        if name.lower() in found:
            raise named.error(need="columns with different names", got=f"{name!r} again", next_step="Rename one.")
        declared = _type(cursor)
        if declared.tokens and declared.tokens[-1].word == "CQTIME":
            if event_time is not None:
                raise declared.part(-1, len(declared.tokens)).error(
                    need="one event time", got="a second CQTIME", next_step="Leave one out."
                )
            event_time, declared = named, declared.part(0, -1)
        if not declared.tokens:
            raise cursor.unexpected(f"the type of column {name!r}", DECLARATION)
        _check_type(name, declared)
        found[name.lower()] = (name, declared.squeezed)
    cursor.expect(")", next_step=DECLARATION)
    return tuple(found.values()), event_time


def _type(cursor: Cursor) -> Fragment:
    start, depth = cursor.at, 0
    while cursor.peek().kind is not Kind.END:
        word = cursor.peek().word
        if depth == 0 and word in (",", ")"):
            break
        depth += word.count("<") + word.count("(") - word.count(">") - word.count(")")
        cursor.take()
    return cursor.since(start)


def _check_type(name: str, declared: Fragment) -> None:
    try:
        Schema.parse({name: declared.squeezed}, "")
    except AnabranchError as error:
        raise declared.moved(error) from None
