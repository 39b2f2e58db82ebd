"""From text to statements.

What begins like a question is a snapshot, which Spark reads as it is. The other statements are ours, and
begin with CREATE, DROP, RESUME or SHOW, for streams and for sinks, DESCRIBE or EXPLAIN.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.diagram.sql.branches import create_branch, drop_branch
from anabranch.diagram.sql.create import checked_name, create_stream
from anabranch.diagram.sql.cursor import Cursor
from anabranch.diagram.sql.sinks import create_sink, drop_sink
from anabranch.diagram.sql.source_text import SourceText
from anabranch.diagram.sql.split import split_stream
from anabranch.diagram.sql.statements import (
    CreateQuery,
    Describe,
    Drop,
    Explain,
    ReadTable,
    Resume,
    ResumeSink,
    ShowBranches,
    ShowSinks,
    ShowStreams,
    Snapshot,
    Statement,
)
from anabranch.diagram.sql.tokens import Kind, Token, tokenize
from anabranch.model.errors import AnabranchError

_QUESTIONS = frozenset(("SELECT", "WITH", "VALUES", "FROM", "TABLE", "("))
_OURS = ("CREATE", "SPLIT", "DROP", "RESUME", "SHOW", "DESCRIBE", "EXPLAIN", "SELECT", "WITH")
_THERE_IS = (
    "There are CREATE STREAM, SPLIT STREAM, DROP STREAM, RESUME STREAM, SHOW STREAMS, the same for SINK, CREATE TABLE, "
    "REPLACE TABLE, DROP TABLE, CREATE BRANCH, DROP BRANCH, SHOW BRANCHES, DESCRIBE, EXPLAIN and SELECT; rows come in "
    "with append()."
)


_TABLE = "Write CREATE TABLE name KEY (a, b) AS SELECT ..., and REPLACE TABLE name AS SELECT ... to read it again."


def parse(text: str, name: str = "sql") -> tuple[Statement, ...]:
    """The statements of a text; `name` is the file that errors speak of.

    >>> [type(statement).__name__ for statement in parse("SHOW STREAMS; SELECT 1")]
    ['ShowStreams', 'Snapshot']
    """
    if not isinstance(text, str):
        raise AnabranchError(
            "BAD_ARGUMENT", place=name, need="SQL text", got=f"a {type(text).__name__}", next_step="Pass a string."
        )
    source = SourceText(text, name)
    return tuple(_statement(*_narrowed(source, tokens)) for tokens in _split(tokenize(source)))


def _split(tokens: tuple[Token, ...]) -> Iterator[tuple[Token, ...]]:
    start = 0
    for i, token in enumerate((*tokens, None)):
        if token is None or token.word == ";":
            if start < i:
                yield tokens[start:i]
            start = i + 1


def _narrowed(source: SourceText, tokens: tuple[Token, ...]) -> tuple[SourceText, tuple[Token, ...]]:
    """A run of tokens as a text of its own, so that offsets are those of the statement."""
    start = tokens[0].start
    return source.part(start, tokens[-1].end), tuple(token.moved(-start) for token in tokens)


def _statement(source: SourceText, tokens: tuple[Token, ...]) -> Statement:
    cursor = Cursor(source, tokens)
    if cursor.peek().word in _QUESTIONS:
        return _snapshot(cursor)
    if cursor.sees("EXPLAIN"):
        return _explain(cursor)
    for replace in (False, True):
        if cursor.accept("REPLACE" if replace else "CREATE", "TABLE"):
            return _table(cursor, replace)
    if cursor.accept("SPLIT"):
        cursor.expect("STREAM", next_step=_THERE_IS)
        return split_stream(cursor)
    if cursor.accept("CREATE", "SINK"):
        return create_sink(cursor)
    if cursor.accept("CREATE", "BRANCH"):
        return create_branch(cursor)
    if cursor.accept("CREATE"):
        cursor.expect("STREAM", next_step=_THERE_IS)
        return create_stream(cursor)
    statement = _short(cursor)
    if cursor.peek().kind is not Kind.END:
        raise cursor.unexpected("the end of the statement", "Put a semicolon between statements.")
    return statement


def _short(cursor: Cursor) -> Statement:
    if cursor.accept("DROP", "SINK"):
        return drop_sink(cursor)
    if cursor.accept("DROP", "BRANCH"):
        return drop_branch(cursor)
    if cursor.accept("SHOW", "BRANCHES"):
        return ShowBranches(cursor.source)
    if cursor.accept("RESUME", "SINK"):
        return ResumeSink(cursor.source, checked_name(cursor, "sink"))
    if cursor.accept("SHOW", "SINKS"):
        return ShowSinks(cursor.source)
    if cursor.accept("DROP"):
        if not cursor.accept("TABLE"):
            cursor.expect("STREAM", next_step=_THERE_IS)
        if_exists = cursor.accept("IF", "EXISTS")
        return Drop(cursor.source, checked_name(cursor, "stream"), if_exists)
    if cursor.accept("RESUME"):
        cursor.expect("STREAM", next_step=_THERE_IS)
        return Resume(cursor.source, checked_name(cursor, "stream"))
    if cursor.accept("SHOW"):
        cursor.expect("STREAMS", next_step=_THERE_IS)
        return ShowStreams(cursor.source)
    if cursor.accept("DESCRIBE") or cursor.accept("DESC"):
        if cursor.peek(1).kind is not Kind.END:
            cursor.accept("STREAM")
        return Describe(cursor.source, checked_name(cursor, "stream"))
    raise cursor.unexpected("a statement", _THERE_IS, _OURS)


def _table(cursor: Cursor, replace: bool) -> ReadTable:
    """What follows CREATE TABLE or REPLACE TABLE."""
    name = checked_name(cursor, "table")
    key: list[str] = []
    if not replace:
        cursor.expect("KEY", next_step=_TABLE)
        cursor.expect("(", next_step=_TABLE)
        while not key or cursor.accept(","):
            key.append(cursor.name("the name of a column", _TABLE).value)
        cursor.expect(")", next_step=_TABLE)
    cursor.expect("AS", next_step=_TABLE)
    if cursor.peek().word not in _QUESTIONS:
        raise cursor.unexpected("a query of Spark's", _TABLE)
    query = _snapshot(Cursor(*_narrowed(cursor.source, cursor.tokens[cursor.at :])))
    return ReadTable(cursor.source, name, tuple(key), query, replace)


def _explain(cursor: Cursor) -> Explain:
    cursor.take()
    if cursor.sees("CREATE"):
        inner = _statement(*_narrowed(cursor.source, cursor.tokens[cursor.at :]))
        if isinstance(inner, CreateQuery):
            return Explain(cursor.source, inner)
    need, step = "CREATE STREAM ... AS, or the name of a stream", "Only continuous queries can be explained."
    if cursor.peek().word in _QUESTIONS or cursor.sees("CREATE"):
        raise cursor.unexpected(need, step)
    target = checked_name(cursor, "stream")
    if cursor.peek().kind is not Kind.END:
        raise cursor.unexpected("the end of the statement", step)
    return Explain(cursor.source, target)


def _snapshot(cursor: Cursor) -> Snapshot:
    """A question; our own words in one would only get an error from Spark that explains nothing."""
    while cursor.peek().kind is not Kind.END:
        word, following = cursor.peek().word, cursor.peek(1).word
        window = word == "<" and following in ("SLICES", "VISIBLE") and cursor.peek(2).kind is Kind.STRING
        if window or (word in ("CQ_CLOSE", "CQ_OPEN") and following == "("):
            raise cursor.unexpected(
                "a question about now, in plain Spark SQL",
                "Windows belong to CREATE STREAM name AS SELECT ...; make such a stream and read it.",
            )
        cursor.take()
    return Snapshot(cursor.source, frozenset(token.value.lower() for token in cursor.tokens if token.is_name))
