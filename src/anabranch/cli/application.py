"""An application: the streams and queries of a file, made where they are not there yet.

Running it again makes nothing anew. A stream that is there must be the one that the file says: a file that was
changed would otherwise seem to work and run the old queries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from anabranch.api.engine import Engine
from anabranch.cli.texts import alone
from anabranch.diagram.sql.statements import CreateQuery, CreateStream, Statement
from anabranch.diagram.sql.tokens import tokenize
from anabranch.log.log import Log
from anabranch.model.errors import AnabranchError


@dataclass(frozen=True)
class Application:
    """What a file declares, and what of it was made just now."""

    bases: tuple[str, ...]
    queries: tuple[str, ...]
    made: tuple[str, ...]


@contextmanager
def undone_on_error(engine: Engine) -> Iterator[list[str]]:
    """A list of streams that are made in a block: if it raises, those are dropped again that nobody has used."""
    made: list[str] = []
    try:
        yield made
    except BaseException:
        for name in reversed(made):
            with suppress(AnabranchError):  # somebody has begun to read it
                if engine.stream(name).state().last_position == 0:
                    engine.drop_stream(name)
        raise


def create(engine: Engine, log: Log, statements: Sequence[Statement], made: list[str]) -> Application:
    """Create what is not there yet and add it to `made`; raises where something else is there under the same name."""
    for statement in statements:
        if not isinstance(statement, CreateStream | CreateQuery):
            raise _only_creates(statement)
    for statement in statements:
        if _create(engine, log, statement):
            made.append(statement.name)  # type: ignore[attr-defined]
    bases = tuple(s.name for s in statements if isinstance(s, CreateStream))
    queries = tuple(s.name for s in statements if isinstance(s, CreateQuery))
    return Application(bases, queries, tuple(made))


def _create(engine: Engine, log: Log, statement: Statement) -> bool:
    match statement:
        case CreateStream():
            return _create_stream(engine, statement)
        case CreateQuery():
            return _create_query(engine, log, statement)
    raise AssertionError("checked before")


def _create_stream(engine: Engine, wanted: CreateStream) -> bool:
    there = {stream.name for stream in engine.streams()}
    if wanted.name in there and wanted.if_not_exists:
        return False
    try:
        engine.create_stream(
            wanted.name, dict(wanted.columns), event_time=wanted.event_time, key=wanted.key, slack=wanted.slack,
            drift=wanted.drift, history=wanted.history,
        )  # fmt: skip
    except AnabranchError as error:
        raise wanted.source.moved(error, *_name_at(wanted)) from error
    return wanted.name not in there


def _create_query(engine: Engine, log: Log, wanted: CreateQuery) -> bool:
    there = any(query.name == wanted.name for query in log.register.queries())
    try:
        engine.sql(alone(wanted), name=wanted.source.name)
    except AnabranchError as error:
        if error.id != "STREAM_EXISTS" or not there:
            raise
        raise wanted.source.error(
            *_name_at(wanted),
            need="the query that this stream has, or another name",
            got="another query",
            next_step=f"DROP STREAM {wanted.name} first, or give this one another name.",
            error_id="STREAM_EXISTS",
        ) from error
    return not there


def _name_at(statement: CreateStream | CreateQuery) -> tuple[int, int]:
    found = re.search(rf"\b{statement.name}\b", statement.text)
    assert found is not None, "a statement names what it creates"
    return found.span()


def _only_creates(statement: Statement) -> AnabranchError:
    first = tokenize(statement.source)[0]
    return statement.source.error(
        first.start,
        first.end,
        need="CREATE STREAM statements: an application says what is to be there",
        got=first.raw.upper(),
        next_step="Run other statements with `anabranch sql`.",
        error_id="NOT_SUPPORTED",
    )
