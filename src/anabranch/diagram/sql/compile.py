"""From the tree of a query to its boxes.

A select is, from the bottom up: its source, under its alias, joined with others; a Filter for WHERE; and then either
a Map, when every row is answered by itself, or an Aggregate with a Filter for HAVING and a Map above it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts, RowWindow
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Band, Join, Side
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.sort import Sort
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.topn import TopN
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.diagram.expression import Expression, Named
from anabranch.diagram.limits import Limits
from anabranch.diagram.query import Query
from anabranch.diagram.sql.applied import applied_rows
from anabranch.diagram.sql.calls import find, none_in
from anabranch.diagram.sql.fragment import Fragment
from anabranch.diagram.sql.names import check_different, output_name
from anabranch.diagram.sql.ranks import Nested, bound, nested, rank
from anabranch.diagram.sql.rewrite import Key, Rewriter, no_window, rank_of
from anabranch.diagram.sql.scope import Scope, bare
from anabranch.diagram.sql.statements import CreateQuery
from anabranch.diagram.sql.tokens import Kind
from anabranch.diagram.sql.tree import Item, Joined, Select, Shape, Tree, UnionAll, Within
from anabranch.model.errors import AnabranchError
from anabranch.model.time import history_of

ColumnsOf = Callable[[str], tuple[str, ...]]


def compile_query(statement: CreateQuery, columns_of: ColumnsOf) -> Query:
    """The query that a statement asks for; `columns_of` knows the streams that there are."""
    box = _tree(statement.tree, columns_of)
    if statement.ordered:
        box = Sort(box)
    history, rows = history_of(statement.history, f"query {statement.name!r}")
    limits = Limits(statement.ignore_revisions, statement.revise_when, history, statement.upstream, rows)
    return Query(statement.name, box, statement.archive, statement.revise_every, statement.on_error, limits)


def _tree(tree: Tree, columns_of: ColumnsOf) -> Box:
    if isinstance(tree, UnionAll):
        return union([(_tree(part, columns_of), part.word) for part in tree.parts])
    if (ranked := nested(tree)) is not None:
        box: Box = _ranked(ranked, columns_of)
        box = View(box, tree.alias) if tree.alias else box
        tree = replace(tree, where=ranked.rest)
    else:
        box = _source(tree.source, tree.alias, columns_of)
    scope = Scope(box.columns, _called(tree.source, tree.alias))
    if tree.joins:
        box, scope = _joined(tree, box, columns_of)
    if tree.where is not None:
        box = where(box, tree.where)
    return shaped(box, scope, tree.shape)


def _ranked(ranked: Nested, columns_of: ColumnsOf) -> Box:
    """A sub-query that ranks rows, of which only the first are wanted."""
    inner = ranked.select
    box = _source(inner.source, inner.alias, columns_of)
    scope = Scope(box.columns, _called(inner.source, inner.alias))
    if inner.joins:
        box, scope = _joined(inner, box, columns_of)
    if inner.where is not None:
        box = where(box, inner.where)
    first = TopN(box, ranked.rank.keys, ranked.rank.order, ranked.most, ranked.name)
    return Map(first, _outputs(scope, inner.shape.items, ranked))


def _source(source: Fragment | Tree, alias: str | None, columns_of: ColumnsOf) -> Box:
    if not isinstance(source, Fragment):
        inner = _tree(source, columns_of)
        return View(inner, alias) if alias else inner
    name = source.tokens[0].value
    try:
        found = Source(name, tuple(columns_of(name)))
    except AnabranchError as error:
        raise source.moved(error) from None
    differs = alias is not None and alias.lower() != name.lower()
    return View(found, alias) if alias and differs else found


def _called(source: Fragment | Tree, alias: str | None) -> str | None:
    """What a source's columns may be qualified with."""
    return alias or (source.tokens[0].value if isinstance(source, Fragment) else None)


def _joined(tree: Select, first: Box, columns_of: ColumnsOf) -> tuple[Box, Scope]:
    """The sources of a select, joined from left to right."""
    sides = [_side(tree.source, tree.alias, first, tree.joins[0].word)]
    box = first
    for part in tree.joins:
        right = _source(part.source, part.alias, columns_of)
        sides.append(_side(part.source, part.alias, right, part.word))
        check_sides(sides, part.word)
        if part.on is not None:
            none_in(part.on, "ON", "Aggregate in a sub-query, or after the join.")
        on = part.on.expression if part.on is not None and part.on.squeezed.upper() != "TRUE" else None
        within = part.within.duration if part.within else None
        if part.fixed:
            box = _looked_up(box, right, sides, on, part)
            continue
        box = Join((box, right), tuple(sides), on, within, _band(part.within, sides), part.outer)
    return box, Scope(box.columns, None, tuple(sides))


def _looked_up(left: Box, right: Box, sides: Sequence[Side], on: Expression | None, part: Joined) -> Box:
    """What a table holds for rows when they come; without LEFT, only where it holds something."""
    if len(sides) > 2:
        raise part.word.error(
            need="a stream and one table for a lookup without revision",
            got="one that is joined with something else already",
            next_step="Put the other joins into a sub-query: FROM (SELECT ...) AS s LOOKUP t ON ...",
        )
    found = Lookup((left, right), tuple(sides), on)
    return found if part.outer else Filter(found, Expression("_matched"))


def _side(source: Fragment | Tree, alias: str | None, box: Box, word: Fragment) -> Side:
    name = _called(source, alias)
    if name is None:
        raise word.error(
            need="a name for each sub-query that is joined",
            got="one without",
            next_step="Write (SELECT ...) AS name.",
        )
    return Side(name, box.columns)


def check_sides(sides: Sequence[Side], word: Fragment) -> None:
    names = [side.name.lower() for side in sides]
    if len(set(names)) < len(names):
        raise word.error(
            need="streams under different names", got=f"{sides[-1].name!r} twice", next_step="Name one otherwise: AS b."
        )
    columns = {column.lower() for side in sides for column in side.columns}
    for side in sides:
        if side.name.lower() in columns:
            raise word.error(
                need="names that no joined column has",
                got=f"{side.name!r}, which is a column too",
                next_step=f"Give the stream another name: {side.name} AS s.",
            )


def _band(within: Within | None, sides: Sequence[Side]) -> Band | None:
    if within is None or within.bounds is None:
        return None
    words = {token.value.lower() for said in within.bounds for token in said.tokens if token.is_name}
    right = sides[-1].name.lower() in words
    left = any(side.name.lower() in words for side in sides[:-1])
    if left == right:
        raise within.said.error(
            need=f"bounds from one side, such as {sides[0].name}.start",
            got="columns of both" if left else "columns without their side's name",
            next_step="Both bounds must come from the same side, with its name before the column.",
        )
    return Band(left, within.bounds[0].expression, within.bounds[1].expression)


def union(parts: list[tuple[Box, Fragment]]) -> Box:
    """UNION ALL of boxes, each with the text to point at. A union in a union is one union."""
    width = len(parts[0][0].columns)
    for box, said in parts:
        if len(box.columns) != width:
            raise said.error(
                need=f"{width} columns, as in the first part of the union",
                got=str(len(box.columns)),
                next_step="Select as many columns in each part; they are matched by place.",
            )
    return Union(tuple(inner for box, _ in parts for inner in (box.parts if isinstance(box, Union) else (box,))))


def where(box: Box, condition: Fragment) -> Box:
    none_in(condition, "WHERE", "Conditions on aggregates belong to HAVING.")
    return Filter(box, condition.expression)


def shaped(box: Box, scope: Scope, shape: Shape) -> Box:
    """What a select list, a window, GROUP BY and HAVING make of rows."""
    if shape.apply is not None:
        return applied_rows(box, scope, shape)
    found = [find(part) for part in (*(item.expression for item in shape.items), *shape.having)]
    aggregates = any(not isinstance(call.what, str) for calls in found for call in calls)
    if shape.group is not None or aggregates:
        groups = _aggregated(box, scope, shape)
        return groups if shape.qualify is None else first_rows(groups, shape.qualify)
    if shape.window is not None:
        raise shape.window.said.error(
            need="an aggregate such as count(*), or GROUP BY, to go with the window",
            got="neither",
            next_step="Aggregate the rows of each window, or leave the window out.",
        )
    if shape.having:
        raise shape.having[0].error(
            need="an aggregate or GROUP BY to go with HAVING", got="neither", next_step="Use WHERE."
        )
    for item, calls in zip(shape.items, found, strict=True):
        for call in calls:
            raise no_window(item.expression, call)
    if shape.qualify is not None:
        box = first_rows(box, shape.qualify)
    return _mapped(box, scope, shape.items)


def first_rows(box: Box, qualify: Fragment) -> Box:
    """QUALIFY: over the rows that were read, or over the results of aggregates, by the names that they got."""
    found = rank(qualify)
    return TopN(box, found.keys, found.order, bound(qualify, found.end))


def _mapped(box: Box, scope: Scope, items: tuple[Item, ...]) -> Box:
    if len(items) == 1 and _is_star(items[0], scope) and not scope.sides:
        return box
    return Map(box, _outputs(scope, items))


def _outputs(scope: Scope, items: tuple[Item, ...], ranked: Nested | None = None) -> tuple[Named, ...]:
    outputs: list[Named] = []
    said: list[tuple[str, Fragment]] = []
    for item in items:
        if ranked is not None and item is ranked.item:
            made = [Named(ranked.name, Expression(f"`{ranked.name}`", item.whole.at))]
        elif _is_star(item, scope):
            tokens = item.whole.tokens
            meant = scope.starred(tokens[0].value if len(tokens) == 3 else None) or []
            made = [Named(name, Expression(text, item.whole.at)) for name, text in meant]
        else:
            made = [Named(output_name(item), item.expression.expression)]
        outputs += made
        said += [(output.name, item.whole) for output in made]
    check_different(said)
    return tuple(outputs)


def _is_star(item: Item, scope: Scope) -> bool:
    tokens = item.whole.tokens
    if tokens[-1].word != "*" or len(tokens) not in (1, 3):
        return False
    if len(tokens) == 1:
        return True
    if tokens[1].word != "." or not tokens[0].is_name:
        return False
    if scope.starred(tokens[0].value) is None:
        known = [side.name for side in scope.sides] or [name for name in (scope.qualifier,) if name]
        raise item.whole.error(
            need=" or ".join(["*", *(f"{name}.*" for name in known)]),
            got=item.whole.squeezed,
            next_step="Fields of a struct must be named one by one.",
        )
    return True


def _aggregated(box: Box, scope: Scope, shape: Shape) -> Box:
    for item in shape.items:
        if _is_star(item, scope):
            raise item.whole.error(
                need="columns by name in an aggregate query",
                got=item.whole.squeezed,
                next_step="Name the grouping columns and the aggregates.",
            )
    keys = _keys(scope, shape)
    rewriter = Rewriter(scope, keys, windowed=shape.window is not None)
    outputs = tuple(Named(output_name(item), rewriter.rewrite(item.expression)) for item in shape.items)
    check_different([(output.name, item.whole) for output, item in zip(outputs, shape.items, strict=True)])
    aliases = {
        item.alias.lower(): output.expression.text
        for item, output in zip(shape.items, outputs, strict=True)
        if item.alias is not None
    }
    having = [rewriter.rewrite(condition, aliases) for condition in shape.having]
    named = tuple(Named(key.name, key.said.expression) for key in keys)
    window = shape.window.window if shape.window else None
    answer: Box = (
        Counts(box, window, named, rewriter.calls)
        if isinstance(window, RowWindow)
        else Aggregate(box, window, named, rewriter.calls)
    )
    for condition in having:
        answer = Filter(answer, condition)
    return Map(answer, outputs)


def _keys(scope: Scope, shape: Shape) -> tuple[Key, ...]:
    keys: dict[tuple[str, ...], Key] = {}
    for said in _grouped(scope, shape):
        none_in(said, "GROUP BY", "Group by columns of the rows; the window groups by itself.")
        meaning = scope.meaning(said)
        if meaning not in keys:
            keys[meaning] = Key(f"_k{len(keys)}", said, meaning, rank_of(bare(said)))
    return tuple(keys.values())


def _grouped(scope: Scope, shape: Shape) -> list[Fragment]:
    group = shape.group or ()
    if len(group) == 1 and [token.word for token in group[0].tokens] == ["ALL"] and not scope.has("all"):
        return [item.expression for item in shape.items if not find(item.expression)]
    return [_resolved(scope, shape.items, said) for said in group]


def _resolved(scope: Scope, items: tuple[Item, ...], said: Fragment) -> Fragment:
    """A grouping expression; a number stands for the select item at that place, an alias for the one of that name."""
    token = said.tokens[0]
    if len(said.tokens) > 1:
        return said
    if token.kind is Kind.NUMBER and re.fullmatch("[0-9]{1,9}", token.raw):
        if not 1 <= int(token.raw) <= len(items):
            raise said.error(
                need=f"the place of a select item, 1 to {len(items)}", got=token.raw, next_step="Count from 1."
            )
        return items[int(token.raw) - 1].expression
    if token.is_name and not scope.has(token.value):
        for item in items:
            if item.alias is not None and item.alias.lower() == token.value.lower():
                return item.expression
    return said
