"""The statements: what `parse` makes of a text, before anything is looked up."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.expression import Expression
from anabranch.diagram.query import OnError
from anabranch.diagram.sql.fragment import Fragment
from anabranch.diagram.sql.source_text import SourceText
from anabranch.diagram.sql.tree import Tree


@dataclass(frozen=True)
class Statement:
    source: SourceText

    @property
    def text(self) -> str:
        """The statement as it was written, without the semicolon and the comments around it."""
        return self.source.text


@dataclass(frozen=True)
class CreateStream(Statement):
    """`CREATE STREAM name (...) EVENT TIME ...`: a base stream. Durations are in words, and checked."""

    name: str
    columns: tuple[tuple[str, str], ...]
    event_time: str
    slack: str | None = None
    drift: str | None = None
    key: tuple[str, ...] = ()
    history: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateQuery(Statement):
    """`CREATE STREAM name AS SELECT ...`: a derived stream."""

    name: str
    tree: Tree
    archive: str | None = None
    revise_every: int = 1
    on_error: OnError = OnError.HALT
    ordered: bool = False  # whether rows wait for progress, and come in the order of their event times
    if_not_exists: bool = False
    ignore_revisions: bool = False
    revise_when: Expression | None = None
    history: str | None = None
    upstream: bool = False


@dataclass(frozen=True)
class SplitStream(Statement):
    """`SPLIT STREAM s INTO a WHEN ..., b WHEN ..., c OTHERWISE`: a derived stream for each way that rows go."""

    stream: Fragment
    names: tuple[str, ...]
    conditions: tuple[Fragment, ...]  # one for each name, but not for the last if that takes the others


@dataclass(frozen=True)
class ReadTable(Statement):
    """`CREATE TABLE name KEY (...) AS SELECT ...`, or `REPLACE TABLE name AS SELECT ...`: what Spark reads."""

    name: str
    key: tuple[str, ...]
    query: Snapshot
    replace: bool = False


@dataclass(frozen=True)
class Drop(Statement):
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class Resume(Statement):
    """`RESUME STREAM name`: let a query that has halted try again."""

    name: str


@dataclass(frozen=True)
class ShowStreams(Statement):
    """`SHOW STREAMS`."""


@dataclass(frozen=True)
class CreateSink(Statement):
    """`CREATE SINK name FROM stream TO 'uri' ...`: where the changes of a stream go."""

    name: str
    stream: str
    to: str
    table: str | None = None
    key: tuple[str, ...] = ()
    format: str | None = None
    insert_only: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropSink(Statement):
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class ResumeSink(Statement):
    """`RESUME SINK name`: let a sink that has halted try again."""

    name: str


@dataclass(frozen=True)
class ShowSinks(Statement):
    """`SHOW SINKS`."""


@dataclass(frozen=True)
class CreateBranch(Statement):
    """`CREATE BRANCH name [AT ...] [EXPIRES 'd']`: the warehouse as it is now, or was, to go on with apart."""

    name: str
    past: int | str | None = None  # a bucket, or a stream time
    expires: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropBranch(Statement):
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class ShowBranches(Statement):
    """`SHOW BRANCHES`."""


@dataclass(frozen=True)
class Describe(Statement):
    name: str


@dataclass(frozen=True)
class Explain(Statement):
    """`EXPLAIN`, of a stream that exists, by its name, or of a query that need not."""

    what: str | CreateQuery


@dataclass(frozen=True)
class Snapshot(Statement):
    """A question about now, for Spark to read as it is; `names` has every identifier in it, in lower case."""

    names: frozenset[str]
