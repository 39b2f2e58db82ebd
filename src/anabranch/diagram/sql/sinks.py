"""CREATE SINK, DROP SINK, RESUME SINK and SHOW SINKS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.diagram.sql.create import checked_name
from anabranch.diagram.sql.cursor import Cursor
from anabranch.diagram.sql.statements import CreateSink, DropSink
from anabranch.diagram.sql.tokens import Kind

_CLAUSES = ("TABLE", "KEY", "FORMAT", "INSERT")
_FORMATS = ("PARQUET", "JSON", "CSV")
_WRITE = "Write CREATE SINK name FROM stream TO 'uri' [TABLE 'table'] [KEY (a, b)] [FORMAT parquet] [INSERT ONLY]."


def create_sink(cursor: Cursor) -> CreateSink:
    """What follows CREATE SINK."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = checked_name(cursor, "sink")
    cursor.expect("FROM", next_step=_WRITE)
    stream = checked_name(cursor, "stream")
    cursor.expect("TO", next_step=_WRITE)
    to = _text(cursor, "where to, in quotes")
    clauses: dict[str, Any] = {}
    while cursor.peek().kind is not Kind.END:
        _clause(cursor, clauses)
    return CreateSink(cursor.source, name, stream, to, if_not_exists=if_not_exists, **clauses)


def drop_sink(cursor: Cursor) -> DropSink:
    if_exists = cursor.accept("IF", "EXISTS")
    return DropSink(cursor.source, checked_name(cursor, "sink"), if_exists)


def _clause(cursor: Cursor, clauses: dict[str, Any]) -> None:
    start = cursor.at
    readers: dict[str, tuple[str, Callable[[Cursor], Any]]] = {
        "TABLE": ("table", _table),
        "KEY": ("key", _key),
        "FORMAT": ("format", _format),
        "INSERT": ("insert_only", _only),
    }
    if cursor.peek().word not in readers:
        raise cursor.unexpected("TABLE, KEY, FORMAT or INSERT ONLY", _WRITE, _CLAUSES)
    name, read = readers[cursor.take().word]
    value = read(cursor)
    if name in clauses:
        raise cursor.since(start).error(
            need="each clause once", got="a second one of its kind", next_step="Leave one out."
        )
    clauses[name] = value


def _text(cursor: Cursor, need: str) -> str:
    if cursor.peek().kind is not Kind.STRING or not cursor.peek().value:
        raise cursor.unexpected(need, _WRITE)
    return cursor.take().value


def _table(cursor: Cursor) -> str:
    if cursor.peek().kind is Kind.STRING:
        return _text(cursor, "the name of a table")
    return cursor.name("the name of a table", _WRITE).value


def _key(cursor: Cursor) -> tuple[str, ...]:
    if not cursor.accept("("):
        return (cursor.name("the name of a column", _WRITE).value,)
    key = [cursor.name("the name of a column", _WRITE).value]
    while cursor.accept(","):
        key.append(cursor.name("the name of a column", _WRITE).value)
    cursor.expect(")", next_step="Write KEY (a, b).")
    return tuple(key)


def _format(cursor: Cursor) -> str:
    if cursor.peek().word not in _FORMATS:
        raise cursor.unexpected("PARQUET, JSON or CSV", _WRITE, _FORMATS)
    return cursor.take().word.lower()


def _only(cursor: Cursor) -> bool:
    cursor.expect("ONLY", next_step=_WRITE)
    return True
