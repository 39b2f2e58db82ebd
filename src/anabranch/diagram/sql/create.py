"""CREATE STREAM, in its two forms: columns, or AS and a query."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.diagram.query import OnError
from anabranch.diagram.sql.columns import DECLARATION, declared_columns
from anabranch.diagram.sql.cursor import Cursor
from anabranch.diagram.sql.durations import duration
from anabranch.diagram.sql.grammar import query
from anabranch.diagram.sql.limits import contradiction, ignore, revise_when
from anabranch.diagram.sql.source_text import did_you_mean
from anabranch.diagram.sql.statements import CreateQuery, CreateStream
from anabranch.diagram.sql.tokens import Kind
from anabranch.diagram.sql.words import trails
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import check_name, unknown_column

_STREAM_CLAUSES = ("EVENT", "SLACK", "DRIFT", "KEY", "HISTORY")
_AFTER_QUERY = (
    "After the query may come ORDER BY EVENT TIME, ARCHIVE INTO table, REVISE EVERY n BUCKETS, REVISE WHEN condition "
    "or IDLE or KEPT, ON REVISION IGNORE and ON ERROR HALT, NULL or QUARANTINE."
)


def create_stream(cursor: Cursor) -> CreateStream | CreateQuery:
    """What follows CREATE STREAM."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = checked_name(cursor, "stream")
    bounded, history, upstream = cursor.accept("HISTORY"), None, False
    if bounded:
        history = None if cursor.sees("UPSTREAM") else _history(cursor)
        upstream = cursor.accept("UPSTREAM")
    if cursor.accept("AS"):
        made = _create_query(cursor, name, if_not_exists)
        return replace(made, history=history, upstream=upstream)
    if bounded:
        raise cursor.unexpected("AS and a query", "Of a stream with columns, HISTORY comes last.", ("AS",))
    if cursor.sees("(", "SELECT"):
        raise cursor.unexpected("AS before the query", "Write CREATE STREAM name AS SELECT ...")
    if not cursor.sees("("):
        raise cursor.unexpected("the columns in parentheses, or AS and a query", DECLARATION, ("AS",))
    columns, marked = declared_columns(cursor)
    clauses = _Once(cursor)
    while cursor.peek().kind is not Kind.END:
        _stream_clause(cursor, clauses, columns)
    if marked is not None:
        if "event_time" in clauses.found:
            raise marked.error(need="one event time", got="a second one", next_step="Leave out CQTIME or EVENT TIME.")
        clauses.found["event_time"] = marked.tokens[0].value
    if "event_time" not in clauses.found:
        raise cursor.unexpected("EVENT TIME and a column", DECLARATION)
    return CreateStream(cursor.source, name, columns, if_not_exists=if_not_exists, **clauses.found)


def checked_name(cursor: Cursor, what: str) -> str:
    start = cursor.at
    token = cursor.name(f"the name of the {what}")
    try:
        check_name(token.value, what)
    except AnabranchError as error:
        raise cursor.since(start).moved(error) from None
    return token.value


@dataclass
class _Once:
    """Clauses in any order, each once."""

    cursor: Cursor
    found: dict[str, Any] = field(default_factory=dict)

    def read(self, key: str, start: int, value: Callable[[], Any]) -> None:
        if key in self.found:
            raise self.cursor.since(start).error(
                need="each clause once", got="a second one of its kind", next_step="Leave one out."
            )
        self.found[key] = value()


def _stream_clause(cursor: Cursor, clauses: _Once, columns: tuple[tuple[str, str], ...]) -> None:
    start = cursor.at
    if cursor.accept("EVENT"):
        cursor.expect("TIME", next_step=DECLARATION)
        clauses.read("event_time", start, lambda: _column(cursor, columns))
    elif cursor.accept("KEY"):
        clauses.read("key", start, lambda: _key(cursor, columns))
    elif cursor.accept("HISTORY"):
        clauses.read("history", start, lambda: _history(cursor))
    elif cursor.peek().word in ("SLACK", "DRIFT"):
        word = cursor.take().word
        clauses.read(word.lower(), start, lambda: duration(cursor)[0])
    else:
        raise cursor.unexpected("EVENT TIME, SLACK, DRIFT, KEY or HISTORY", DECLARATION, _STREAM_CLAUSES)


def _key(cursor: Cursor, columns: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    if not cursor.accept("("):
        return (_column(cursor, columns),)
    key = [_column(cursor, columns)]
    while cursor.accept(","):
        key.append(_column(cursor, columns))
    cursor.expect(")", next_step="Write KEY (a, b).")
    return tuple(key)


def _history(cursor: Cursor) -> str:
    """A duration, or a number of rows."""
    if cursor.peek().kind is not Kind.NUMBER or not re.fullmatch("0*[1-9][0-9]{0,17}", cursor.peek().raw):
        return duration(cursor)[0]
    many = cursor.take().raw
    if not cursor.accept("ROWS") and not cursor.accept("ROW"):
        raise cursor.unexpected("ROWS", "Write HISTORY 1000 ROWS, or HISTORY '7 days'.", ("ROWS",))
    return f"{many} rows"


def _column(cursor: Cursor, columns: tuple[tuple[str, str], ...]) -> str:
    """A declared column, spelled as it was declared."""
    start = cursor.at
    name = cursor.name("the name of a column").value
    spelled = {declared.lower(): declared for declared, _ in columns}
    if name.lower() not in spelled:
        known = tuple(declared for declared, _ in columns)
        error = unknown_column("", name, known, did_you_mean(name, known) + "Check the spelling.")
        raise cursor.since(start).moved(error)
    return spelled[name.lower()]


def _create_query(cursor: Cursor, name: str, if_not_exists: bool) -> CreateQuery:
    clauses = _Once(cursor)
    tree = query(cursor, lambda inside: _trailing(inside, clauses))
    _trailing(cursor, clauses)
    if cursor.sees("UNION"):
        raise cursor.unexpected("the end of the statement", "Write ARCHIVE, REVISE and ON ERROR after the last select.")
    if cursor.peek().kind is not Kind.END:
        choices = ("WHERE", "GROUP", "HAVING", "UNION", "ORDER", "ARCHIVE", "REVISE", "ON")
        raise cursor.refused() or cursor.unexpected("the end of the statement", _AFTER_QUERY, choices)
    return CreateQuery(cursor.source, name, tree, if_not_exists=if_not_exists, **clauses.found)


def _trailing(cursor: Cursor, clauses: _Once) -> None:
    while cursor.peek().kind is not Kind.END and trails(cursor.tokens, cursor.at):
        start = cursor.at
        if cursor.accept("ARCHIVE", "INTO"):
            clauses.read("archive", start, lambda: checked_name(cursor, "table"))
        elif cursor.accept("REVISE", "EVERY"):
            clauses.read("revise_every", start, lambda: _buckets(cursor))
        elif cursor.accept("ORDER", "BY", "EVENT", "TIME"):
            clauses.read("ordered", start, lambda: True)
        elif cursor.accept("ON", "ERROR"):
            clauses.read("on_error", start, lambda: _on_error(cursor))
        elif cursor.accept("ON", "REVISION"):
            clauses.read("ignore_revisions", start, lambda: ignore(cursor))
        elif cursor.accept("REVISE", "WHEN"):
            _revise_when(cursor, clauses, start)
        if "ignore_revisions" in clauses.found and clauses.found.keys() & {"revise_every", "revise_when"}:
            raise contradiction(cursor.since(start))


def _revise_when(cursor: Cursor, clauses: _Once, start: int) -> None:
    wanted = revise_when(cursor)
    if isinstance(wanted, int):
        clauses.read("revise_every", start, lambda: wanted)
    else:
        clauses.read("revise_when", start, lambda: wanted.expression)


def _buckets(cursor: Cursor) -> int:
    token = cursor.peek()
    if token.kind is not Kind.NUMBER or not re.fullmatch("0*[1-9][0-9]{0,8}", token.raw):
        raise cursor.unexpected("a number of buckets, at least 1", "Write REVISE EVERY 10 BUCKETS.")
    cursor.take()
    if not cursor.accept("BUCKETS") and not cursor.accept("BUCKET"):
        raise cursor.unexpected("BUCKETS", "Write REVISE EVERY 10 BUCKETS.", ("BUCKETS",))
    return int(token.raw)


def _on_error(cursor: Cursor) -> OnError:
    choices = tuple(choice.name for choice in OnError)
    if cursor.peek().word not in choices:
        raise cursor.unexpected("HALT, NULL or QUARANTINE", "Write ON ERROR HALT, or leave it out.", choices)
    return OnError[cursor.take().word]
