"""Which columns of a pair are equal: what lets a Join find its partners by a hash instead of looking at all rows.

Of a condition count only the conjuncts `l.x = r.y` of plain columns, and of those only where both columns come
unchanged from the streams at the bottom, and have types whose equal values have equal hashes. Whole numbers of all
widths do, as the widest; otherwise both must have the same type, and never one of floating numbers.
What is not certain is left out, and then more rows are looked at than need be, never fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.diagram.stages import Leaf, leaves_of
from anabranch.model.schema import Schema

Path = tuple[str, ...]  # a column, or a field of one


@dataclass(frozen=True)
class Equalities:
    """For the left and the right input: the keys of its rows, and what they are on each leaf's rows, as SQL."""

    keys: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    leaves: tuple[Mapping[Leaf, tuple[str, ...]], Mapping[Leaf, tuple[str, ...]]] = field(
        default_factory=lambda: ({}, {})
    )


def equalities(box: Join, schema_of: Callable[[Leaf], Schema]) -> Equalities:
    """The equalities of a Join's condition by which its inputs can be spread."""
    keys: tuple[list[str], list[str]] = ([], [])
    leaves: tuple[dict[Leaf, list[str]], dict[Leaf, list[str]]] = ({}, {})
    for pair in _pairs(box):
        found = [_traced(part, path, schema_of) for part, path in zip(box.parts, pair, strict=True)]
        kinds = {_kind(kind) for of_side in found for _, kind in of_side.values()}
        complete = all(set(f) == set(leaves_of(part)) for f, part in zip(found, box.parts, strict=True))
        kind = next(iter(kinds)) if len(kinds) == 1 else None
        if not complete or kind is None:
            continue
        for side, path in enumerate(pair):
            keys[side].append(_hashable(path, kind))
            for leaf, (at, _) in found[side].items():
                leaves[side].setdefault(leaf, []).append(_hashable(at, kind))
    as_tuples = [{leaf: tuple(found) for leaf, found in of_side.items()} for of_side in leaves]
    return Equalities((tuple(keys[0]), tuple(keys[1])), (as_tuples[0], as_tuples[1]))


def _hashable(path: Path, kind: pa.DataType) -> str:
    sql = ".".join(f"`{name}`" for name in path)
    return f"CAST({sql} AS BIGINT)" if kind == pa.int64() else sql


def _kind(kind: pa.DataType) -> pa.DataType | None:
    """A type as it is hashed; None if equal values of it may have different hashes."""
    if pa.types.is_integer(kind):
        return pa.int64()
    plain = (pa.types.is_string, pa.types.is_date, pa.types.is_timestamp, pa.types.is_boolean, pa.types.is_decimal)
    return kind if any(known(kind) for known in plain) else None


def _pairs(box: Join) -> Iterator[tuple[Path, Path]]:
    """The plain columns that must be equal, of the left input and of the right one."""
    if box.on is None:
        return
    for first, second in _equal_columns(box.on.text):
        one, other = _place(box, first), _place(box, second)
        if one is not None and other is not None and one[0] != other[0]:
            yield (one[1], other[1]) if one[0] == 0 else (other[1], one[1])


@lru_cache(maxsize=1_000)
def _equal_columns(text: str) -> tuple[tuple[Path, Path], ...]:
    """The conjuncts of a condition that say that two columns are equal."""
    try:
        tree = sqlglot.parse_one(text, read="spark")
    except SqlglotError:
        return ()
    waiting: list[exp.Expr] = [tree]
    found = []
    while waiting:
        node = waiting.pop().unnest()
        if isinstance(node, exp.And):
            waiting += [node.right, node.left]
        elif isinstance(node, exp.EQ):
            sides = [_column(side.unnest()) for side in (node.left, node.right)]
            if sides[0] is not None and sides[1] is not None:
                found.append((sides[0], sides[1]))
    return tuple(found)


def _column(node: exp.Expr) -> Path | None:
    """A column, with what it is qualified by; None for anything else."""
    if not isinstance(node, exp.Column) or node.args.get("db") or not isinstance(node.this, exp.Identifier):
        return None
    return (node.table, node.name) if node.table else (node.name,)


def _place(box: Join, column: Path) -> tuple[int, Path] | None:
    """On which side a column is, and which column of that input, or field of one, it is."""
    if len(column) == 1:
        matching = [pair for pair in box.alone if pair[1].lower() == column[0].lower()]
        if len(matching) != 1:
            return None
        column = matching[0]
    sides = [side for side in box.sides if side.name.lower() == column[0].lower()]
    names = [name for side in sides for name in side.columns if name.lower() == column[1].lower()]
    if len(sides) != 1 or len(names) != 1:
        return None
    if sides[0] is box.sides[-1]:
        return 1, (names[0],)
    return 0, (names[0],) if len(box.sides) == 2 else (sides[0].name, names[0])


def _traced(part: Box, path: Path, schema_of: Callable[[Leaf], Schema]) -> dict[Leaf, tuple[Path, pa.DataType]]:
    """Where a column of an input comes from, on each leaf from which it comes unchanged."""
    if isinstance(part, Source | Keep):
        kind = _type_at(schema_of(part), path)
        return {} if kind is None else {part: (path, kind)}
    if isinstance(part, View | Filter | Split):
        return _traced(part.input, path, schema_of)
    if isinstance(part, Map):
        below = _named(part, path[0])
        return {} if below is None else _traced(part.input, (*below, *path[1:]), schema_of)
    if isinstance(part, Union) and path[0] in part.columns:
        at = part.columns.index(path[0])
        found: dict[Leaf, tuple[Path, pa.DataType]] = {}
        for below_it in part.parts:
            for leaf, place in _traced(below_it, (below_it.columns[at], *path[1:]), schema_of).items():
                if found.setdefault(leaf, place) != place:
                    return {}  # one stream that comes in two ways
        return found
    return {}


def _named(part: Map, name: str) -> Path | None:
    """The column below a Map that one of its outputs is, unchanged."""
    text = next((output.expression.text for output in part.outputs if output.name == name), None)
    found = None if text is None else _plain(text)
    there = part.input.columns
    if found is None or (len(found) == 1 and found[0] not in there):
        return None
    if len(found) == 1 or found[0] in there:
        return found
    return (found[1],) if found[1] in there else None


@lru_cache(maxsize=1_000)
def _plain(text: str) -> Path | None:
    try:
        return _column(sqlglot.parse_one(text, read="spark"))
    except SqlglotError:
        return None


def _type_at(schema: Schema, path: Path) -> pa.DataType | None:
    if path[0] not in schema.names:
        return None
    kind = schema[path[0]].arrow.type
    for name in path[1:]:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(name).type
    return kind
