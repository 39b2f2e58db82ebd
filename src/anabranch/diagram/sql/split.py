"""SPLIT STREAM: one stream becomes several, by conditions of which the first true one counts."""

from __future__ import annotations

from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.query import Query
from anabranch.diagram.sql.calls import none_in
from anabranch.diagram.sql.compile import ColumnsOf
from anabranch.diagram.sql.create import checked_name
from anabranch.diagram.sql.cursor import Cursor
from anabranch.diagram.sql.fragment import Fragment
from anabranch.diagram.sql.names import check_different
from anabranch.diagram.sql.statements import SplitStream
from anabranch.diagram.sql.tokens import Kind
from anabranch.model.errors import AnabranchError

_FORM = "Write SPLIT STREAM s INTO a WHEN price > 100, b WHEN price > 10, c OTHERWISE."


def split_stream(cursor: Cursor) -> SplitStream:
    """What follows SPLIT STREAM."""
    start = cursor.at
    cursor.name("the name of a stream", _FORM)
    stream = cursor.since(start)
    cursor.expect("INTO", next_step=_FORM)
    names: list[tuple[str, Fragment]] = []
    conditions: list[Fragment] = []
    while not names or cursor.accept(","):
        start = cursor.at
        names.append((checked_name(cursor, "stream"), cursor.since(start)))
        if cursor.accept("OTHERWISE"):
            break
        cursor.expect("WHEN", next_step=_FORM)
        conditions.append(cursor.expression("a condition"))
        none_in(conditions[-1], "WHEN", "Aggregate before, or after.")
    if cursor.peek().kind is not Kind.END or not conditions:
        raise cursor.unexpected("a condition for every way but the last", _FORM)
    check_different(names)
    return SplitStream(cursor.source, stream, tuple(name for name, _ in names), tuple(conditions))


def compile_split(statement: SplitStream, columns_of: ColumnsOf) -> list[Query]:
    """The queries of the ways."""
    name = statement.stream.tokens[0].value
    try:
        source = Source(name, tuple(columns_of(name)))
    except AnabranchError as error:
        raise statement.stream.moved(error) from None
    conditions = tuple(condition.expression for condition in statement.conditions)
    return [Query(way, Split(source, conditions, place)) for place, way in enumerate(statement.names)]
