"""The fluent way to write a query: the same clauses as methods, the same boxes as from SQL.

A flow never changes; each method gives another one. Expressions are SQL text. After `agg` a condition is
about groups, as HAVING is, until something else is said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Join, Side
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.sort import Sort
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.boxes.view import View
from anabranch.diagram.expression import Expression, Named
from anabranch.diagram.limits import WAITS, Limits
from anabranch.diagram.query import OnError, Query
from anabranch.diagram.sql.applied import apply_clause
from anabranch.diagram.sql.calls import none_in
from anabranch.diagram.sql.compile import check_sides, first_rows, shaped, union, where
from anabranch.diagram.sql.cursor import Cursor
from anabranch.diagram.sql.durations import make_resampling, make_row_window, make_window
from anabranch.diagram.sql.fragment import Fragment
from anabranch.diagram.sql.grammar import item
from anabranch.diagram.sql.limits import importance
from anabranch.diagram.sql.scope import Scope
from anabranch.diagram.sql.tokens import Kind
from anabranch.diagram.sql.tree import Item, Shape, WindowClause
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import check_name
from anabranch.model.time import Duration, History, duration_text, duration_us, history_of


@dataclass(frozen=True)
class _Groups:
    """The last `agg`, kept to be made again with one more condition."""

    box: Box
    scope: Scope
    shape: Shape


@dataclass(frozen=True)
class Flow:
    """Rows on their way: the boxes so far, and what was said that needs an `agg` to take effect."""

    box: Box
    name: str | None = None  # what columns may be qualified with
    over: WindowClause | None = None
    keys: tuple[Item, ...] | None = None
    groups: _Groups | None = None
    sides: tuple[Side, ...] = ()  # of a join

    @property
    def columns(self) -> tuple[str, ...]:
        return self.box.columns

    def where(self, condition: str) -> Flow:
        """Keep the rows for which a condition is true; after `agg`, the groups."""
        if self.groups is not None:
            return self._having(_expression(condition, "where()"))
        return replace(self, box=where(self.box, _expression(condition, "where()")))

    def select(self, *columns: str) -> Flow:
        """Compute columns: `select("a", "b + 1 AS c")`."""
        if self.keys is not None:
            raise _wrong("select()", "agg() after groupBy()", "select()", "Name the aggregates in agg(...).")
        items = _items(columns, "select()")
        if not items:
            raise _wrong("select()", "at least one column", "none", 'Pass columns, or "*".')
        return Flow(shaped(self.box, self._scope, Shape(items, self.over)))

    def window(self, size: Duration, advance: Duration | None = None) -> Flow:
        """Windows over event time: `window("1 minute")`, or `window("15 minutes", "5 minutes")`."""
        if self.over is not None:
            raise _wrong("window()", "one window", "a second one", "Leave one out, or put agg() between them.")
        of_size = _duration(size, "size")
        made = make_window(of_size, _duration(advance, "advance") if advance is not None else None)
        return replace(self, over=WindowClause(made, of_size[1]), groups=None)

    def rows(self, size: int, advance: int | None = None) -> Flow:
        """Windows of so many rows of a group: `rows(100)`, or `rows(100, 10)`."""
        if self.over is not None:
            raise _wrong("rows()", "one window", "a second one", "Leave one out, or put agg() between them.")
        sizes = [_number(value, "rows()") for value in (size, size if advance is None else advance)]
        return replace(self, over=WindowClause(make_row_window(sizes[0], sizes[1]), sizes[0][1]), groups=None)

    def resample(self, every: Duration, hold: Duration | None = None) -> Flow:
        """A row at each instant of a grid, from the rows up to `hold` before it."""
        if self.over is not None:
            raise _wrong("resample()", "one window", "a second one", "Leave one out, or put agg() between them.")
        grid = _duration(every, "every")
        made = make_resampling(grid, grid if hold is None else _duration(hold, "hold"))
        return replace(self, over=WindowClause(made, grid[1]), groups=None)

    def split(self, *conditions: str) -> tuple[Flow, ...]:
        """A flow for each condition, of which the first true one counts, and one for the rest."""
        if not conditions:
            raise _wrong("split()", "at least one condition", "none", 'Pass one, such as "price > 100".')
        said = [_expression(condition, "split()") for condition in conditions]
        for condition in said:
            none_in(condition, "split()", "Aggregate before, or after.")
        box, texts = self._settled("split()"), tuple(condition.expression for condition in said)
        return tuple(replace(self, box=Split(box, texts, way), groups=None) for way in range(len(texts) + 1))

    def sort(self) -> Flow:
        """Rows in the order of their event times, each said once progress has passed it."""
        return Flow(Sort(self._settled("sort()")))

    def groupBy(self, *keys: str) -> Flow:
        """The expressions to group by; they become the first columns of the result."""
        if self.keys is not None:
            raise _wrong("groupBy()", "one groupBy()", "a second one", "Put agg() between them.")
        return replace(self, keys=_items(keys, "groupBy()"), groups=None)

    def agg(self, *aggregates: str) -> Flow:
        """One row per group: its keys, then these: `agg("count(*) AS c", "cq_close(*) AS t")`."""
        keys = self.keys or ()
        items = (*keys, *_items(aggregates, "agg()"))
        if not items:
            raise _wrong("agg()", "at least one aggregate", "none", 'Pass one, such as "count(*) AS c".')
        shape = Shape(items, self.over, tuple(key.expression for key in keys))
        groups = _Groups(self.box, self._scope, shape)
        return Flow(shaped(self.box, self._scope, shape), groups=groups)

    def qualify(self, condition: str) -> Flow:
        """Keep the first rows of groups: `qualify("row_number() OVER (PARTITION BY k ORDER BY v DESC) <= 3")`."""
        said = _expression(condition, "qualify()")
        return replace(self, box=first_rows(self._settled("qualify()"), said), groups=None)

    def apply(self, function: str, returns: str, *columns: str) -> Flow:
        """The rows that a Python function makes of these columns of a window's rows, of the columns it declares.

        `window("1 minute").groupBy("k").apply("package.module:function", "price INT, move DOUBLE", "price")`.
        """
        if not isinstance(function, str) or "'" in function or not isinstance(returns, str):
            need = "the function as 'package.module:function', and its columns as 'a INT, b DOUBLE'"
            raise _wrong("apply()", need, f"{function!r} and {returns!r}", "Pass both as text.")
        if not columns:
            raise _wrong("apply()", "at least one column for the function", "none", 'Pass some, such as "price".')
        text = Fragment.of(f"APPLY '{function}' RETURNS ({returns})", "apply()")
        cursor = Cursor(text.source, text.tokens)
        clause = apply_clause(cursor)
        if cursor.peek().kind is not Kind.END:
            raise cursor.unexpected("columns and their types", "Write them as 'a INT, b DOUBLE'.")
        group = None if self.keys is None else tuple(key.expression for key in self.keys)
        return Flow(shaped(self.box, self._scope, Shape(_items(columns, "apply()"), self.over, group, apply=clause)))

    def having(self, condition: str) -> Flow:
        """Keep the groups for which a condition is true."""
        if self.groups is None:
            raise _wrong("having()", "agg() before it", "no groups", "Use where() for rows.")
        return self._having(_expression(condition, "having()"))

    def union(self, other: Flow) -> Flow:
        """The rows of both, duplicates and all; columns are matched by place."""
        if not isinstance(other, Flow):
            raise _wrong("union()", "another flow", f"a {type(other).__name__}", "Pass what where() or select() give.")
        boxes = [self._settled("union()"), other._settled("union()")]
        if len(boxes[0].columns) != len(boxes[1].columns):
            raise _wrong(
                "union()",
                f"{len(boxes[0].columns)} columns, as in the first part",
                str(len(boxes[1].columns)),
                "Select as many columns in each part; they are matched by place.",
            )
        said = Fragment.of("", "union()")
        return Flow(union([(box, said) for box in boxes]))

    def alias(self, name: str) -> Flow:
        """Give the rows a name, by which columns can be qualified."""
        check_name(name, "alias")
        return Flow(View(self._settled("alias()"), name), name)

    def join(self, other: Flow, on: str, within: Duration | None = None, how: str = "inner") -> Flow:
        """Pairs of rows for which a condition is true; `within` is how far apart in event time the two may be."""
        band = None if within is None else duration_us(within, "join(), within=")
        boxes, sides, condition = self._beside(other, on, how, "join()")
        return Flow(Join(boxes, sides, condition, band, None, how == "left"), sides=sides)

    def lookup(self, table: Flow, on: str, how: str = "inner", revise: bool = True) -> Flow:
        """Rows with what a table, or any stream with a key, holds for them; a change revises, unless told not to."""
        boxes, sides, condition = self._beside(table, on, how, "lookup()")
        if revise:
            return Flow(Join(boxes, sides, condition, outer=how == "left"), sides=sides)
        if len(sides) > 2:
            need = "a stream and one table, where the table revises nothing"
            raise _wrong("lookup()", need, "a third side", "Look up first, and give it a name: .alias(...).")
        found = Lookup(boxes, sides, condition)
        return Flow(found if how == "left" else Filter(found, Expression("_matched")), sides=sides)

    def _beside(
        self, other: Flow, on: str, how: str, place: str
    ) -> tuple[tuple[Box, Box], tuple[Side, ...], Expression]:
        """Two flows side by side: their boxes, the names of their columns, and the condition on pairs."""
        if not isinstance(other, Flow):
            raise _wrong(place, "another flow", f"a {type(other).__name__}", "Pass what where() or alias() give.")
        if how not in ("inner", "left"):
            raise _wrong(f"{place}, how=", "inner or left", repr(how), "Pass one of these.")
        condition = _expression(on, f"{place}, on=")
        boxes = (self._settled(place), other._settled(place))
        sides = (*(self.sides or (self._side(boxes[0], place),)), other._side(boxes[1], place))
        check_sides(sides, condition)
        none_in(condition, "on=", "Aggregate before the join, or after it.")
        return boxes, sides, condition.expression

    def _side(self, box: Box, place: str) -> Side:
        if self.name is None:
            raise _wrong(place, "sides that have a name", "one without", 'Give it one: .alias("a").')
        return Side(self.name, box.columns)

    def query(
        self,
        name: str,
        archive: str | None = None,
        revise_every: int | str = 1,
        on_error: str | OnError = OnError.HALT,
        on_revision: str = "say",
        revise_when: str | None = None,
        history: History | None = None,
        history_upstream: bool = False,
    ) -> Query:
        """The query under a name, as `CREATE STREAM name AS` gives it."""
        check_name(name, "stream")
        if archive is not None:
            check_name(archive, "table")
        every = WAITS.get(revise_every.upper(), 0) if isinstance(revise_every, str) else revise_every
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            need = "a number of buckets, at least 1, 'idle' or 'kept'"
            raise _wrong("revise_every=", need, repr(revise_every), "Pass a positive int.")
        choices = [str(choice) for choice in OnError]
        if not isinstance(on_error, str) or on_error.lower() not in choices:
            raise _wrong("on_error=", f"one of {', '.join(choices)}", repr(on_error), "Pass one of these.")
        limits = replace(_limits(on_revision, revise_when, history), upstream=bool(history_upstream))
        if limits.ignore and (limits.when is not None or every > 1):
            raise _wrong("on_revision=", "either 'ignore' or a time to say revisions", "both", "Leave one out.")
        return Query(name, self._settled("query()"), archive, every, OnError(on_error.lower()), limits)

    @property
    def _scope(self) -> Scope:
        return Scope(self.box.columns, self.name, self.sides)

    def _having(self, condition: Fragment) -> Flow:
        assert self.groups is not None
        shape = replace(self.groups.shape, having=(*self.groups.shape.having, condition))
        groups = replace(self.groups, shape=shape)
        return Flow(shaped(groups.box, groups.scope, shape), groups=groups)

    def _settled(self, place: str) -> Box:
        if self.over is not None or self.keys is not None:
            pending = "window()" if self.over is not None else "groupBy()"
            raise _wrong(place, f"agg() after {pending}", "no agg()", 'Say what to compute: agg("count(*) AS c").')
        if isinstance(self.box, Lookup) or (isinstance(self.box, Filter) and isinstance(self.box.input, Lookup)):
            # What a Lookup notes for itself is no column of the user's.
            kept = [name for name in self.box.columns if not name.startswith("_")]
            return Map(self.box, tuple(Named(name, Expression(f"`{name}`")) for name in kept))
        return self.box


def _limits(on_revision: str, revise_when: str | None, history: History | None) -> Limits:
    if on_revision not in ("say", "ignore"):
        raise _wrong("on_revision=", "say or ignore", repr(on_revision), "Pass one of these.")
    when = None if revise_when is None else importance(_expression(revise_when, "revise_when="))
    bound, rows = history_of(history, "history=")
    return Limits(on_revision == "ignore", when, bound, rows=rows)


def _items(texts: tuple[str, ...], place: str) -> tuple[Item, ...]:
    return tuple(item(_expression(text, place)) for text in texts)


def _expression(text: str, place: str) -> Fragment:
    """One expression, all of the text."""
    if not isinstance(text, str):
        raise _wrong(place, "SQL text", f"a {type(text).__name__}", 'Expressions are SQL strings: "price > 0".')
    whole = Fragment.of(text, place)
    cursor = Cursor(whole.source, whole.tokens)
    found = cursor.expression("an expression")
    if cursor.peek().kind is not Kind.END:
        raise cursor.unexpected("one expression", "Pass each as a string of its own, and clauses as methods.")
    return found


def _duration(value: Duration, argument: str) -> tuple[Duration, Fragment]:
    micros = duration_us(value, f"window(), {argument}=")
    text = value if isinstance(value, str) else duration_text(micros)
    return text, Fragment.of(text, "window()")


def _number(value: int, place: str) -> tuple[int, Fragment]:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(place, "a number of rows", repr(value), "Pass a positive int.")
    return value, Fragment.of(str(value), place)


def _wrong(place: str, need: str, got: str, next_step: str) -> AnabranchError:
    return AnabranchError("BAD_ARGUMENT", place=place, need=need, got=got, next_step=next_step)
