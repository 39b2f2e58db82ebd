"""The fluent form of a query, bound to an engine: it ends with `create(name)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.diagram.drawing import draw
from anabranch.diagram.fluent import Flow
from anabranch.diagram.sql.source_text import SourceText
from anabranch.model.errors import AnabranchError
from anabranch.model.time import Duration, History

if TYPE_CHECKING:
    from anabranch.api.stream import Stream
    from anabranch.engine.queries import Queries


@dataclass(frozen=True)
class BoundFlow:
    """A query that is being written; each call gives another one. Expressions are SQL text."""

    flow: Flow
    queries: Queries

    def where(self, condition: str) -> BoundFlow:
        """Keep the rows for which a condition is true; after `agg`, the groups."""
        return BoundFlow(self.flow.where(condition), self.queries)

    def select(self, *columns: str) -> BoundFlow:
        """Compute columns: `"price * 2 AS twice"`."""
        return BoundFlow(self.flow.select(*columns), self.queries)

    def window(self, size: Duration, advance: Duration | None = None) -> BoundFlow:
        """Windows over event time: `window("1 minute")`, or `window("15 minutes", "5 minutes")`."""
        return BoundFlow(self.flow.window(size, advance), self.queries)

    def rows(self, size: int, advance: int | None = None) -> BoundFlow:
        """Windows of so many rows of a group: `rows(100)`, or `rows(100, 10)`."""
        return BoundFlow(self.flow.rows(size, advance), self.queries)

    def resample(self, every: Duration, hold: Duration | None = None) -> BoundFlow:
        """A row at each instant of a grid, from the rows up to `hold` before it."""
        return BoundFlow(self.flow.resample(every, hold), self.queries)

    def split(self, *conditions: str) -> tuple[BoundFlow, ...]:
        """A flow for each condition, of which the first true one counts, and one for the rest."""
        return tuple(BoundFlow(way, self.queries) for way in self.flow.split(*conditions))

    def sort(self) -> BoundFlow:
        """Rows in the order of their event times, each said once progress has passed it."""
        return BoundFlow(self.flow.sort(), self.queries)

    def groupBy(self, *keys: str) -> BoundFlow:
        """The expressions to group by."""
        return BoundFlow(self.flow.groupBy(*keys), self.queries)

    def agg(self, *aggregates: str) -> BoundFlow:
        """One row per group: its keys, then these aggregates."""
        return BoundFlow(self.flow.agg(*aggregates), self.queries)

    def count(self) -> BoundFlow:
        """One row per group: its keys, and how many rows it has, as `count`."""
        return self.agg("count(*) AS count")

    def __repr__(self) -> str:
        return "\n".join(draw(self.flow.box))

    def having(self, condition: str) -> BoundFlow:
        """Keep the groups for which a condition is true."""
        return BoundFlow(self.flow.having(condition), self.queries)

    def alias(self, name: str) -> BoundFlow:
        """Give the rows a name, by which columns can be qualified."""
        return BoundFlow(self.flow.alias(name), self.queries)

    def join(self, other: BoundFlow | Stream, on: str, within: Duration | None = None, how: str = "inner") -> BoundFlow:
        """Pairs of rows for which `on` is true: `a.join(b, on="a.id = b.id", within="5 seconds")`, or `how="left"`."""
        return BoundFlow(self.flow.join(_flow_of(other, "join()"), on, within, how), self.queries)

    def lookup(self, table: BoundFlow | Stream, on: str, how: str = "inner", revise: bool = True) -> BoundFlow:
        """Rows with what a table, or any stream with a key, holds for them.

        A change of the table revises what was said; with `revise=False` each row keeps what it found when it came.
        """
        return BoundFlow(self.flow.lookup(_flow_of(table, "lookup()"), on, how, revise), self.queries)

    def qualify(self, condition: str) -> BoundFlow:
        """Keep the first rows of groups: `qualify("row_number() OVER (PARTITION BY k ORDER BY v DESC) <= 3")`."""
        return BoundFlow(self.flow.qualify(condition), self.queries)

    def apply(self, function: str, returns: str, *columns: str) -> BoundFlow:
        """The rows that a Python function makes of these columns of the rows of each window and group.

        `flow.window("1 minute").groupBy("k").apply("package.module:function", "price INT, move DOUBLE", "price")`.
        """
        return BoundFlow(self.flow.apply(function, returns, *columns), self.queries)

    def union(self, other: BoundFlow | Stream) -> BoundFlow:
        """The rows of both, duplicates and all."""
        return BoundFlow(self.flow.union(_flow_of(other, "union()")), self.queries)

    def create(
        self,
        name: str,
        *,
        archive: str | None = None,
        revise_every: int | str = 1,
        on_error: str = "halt",
        on_revision: str = "say",
        revise_when: str | None = None,
        history: History | None = None,
        history_upstream: bool = False,
    ) -> None:
        """Create the query as a stream of this name.

        Revisions are said every so many buckets, or, with `revise_every="idle"`, when nothing else waits, or, with
        `revise_every="kept"`, while they are needed to keep a table right;
        `on_revision="ignore"` leaves them out, `revise_when="abs(new.c - old.c) > 10"` those that matter little.
        With `history_upstream=True`, answers below that can be computed again are not kept to be read again.
        """
        query = self.flow.query(
            name, archive, revise_every, on_error, on_revision, revise_when, history, history_upstream
        )
        self.queries.create(query, SourceText(f"-- {name}, in the fluent form", name, is_statement=False))


def _flow_of(other: BoundFlow | Stream, place: str) -> Flow:
    found = other if isinstance(other, BoundFlow) else getattr(other, "_flow", lambda: None)()
    if not isinstance(found, BoundFlow):
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=place,
            need="a stream, or a query that is being written",
            got=f"a {type(other).__name__}",
            next_step="Pass engine.stream(name), or a flow that begins with one.",
        )
    return found.flow
