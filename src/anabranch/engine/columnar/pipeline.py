"""From the rows of a leaf to partial results, as one SELECT of DuckDB's.

The boxes between are linear, so each way from a leaf to the aggregate can be computed by itself: the partial results
of a union are those of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.diagram.columnar import over_groups, over_rows
from anabranch.diagram.columnar.casts import modulo
from anabranch.diagram.columnar.expressions import Translator
from anabranch.diagram.columnar.kinds import BIGINT, INT, TIMESTAMP, Kind, NotProven, quoted
from anabranch.diagram.expression import Expression
from anabranch.diagram.stages import Leaf
from anabranch.engine.groups import Recipe, arguments
from anabranch.engine.resets import RESET
from anabranch.model.schema import Schema

SEGMENTS = "_segments"  # where a task puts what it reads: the leaf's columns, and what rows carry
INSTANT, WEIGHT, BUCKET = "_instant", "_weight", "_bucket"
_CARRIED = (INSTANT, WEIGHT, BUCKET)
_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")


@dataclass(frozen=True)
class Pipeline:
    """What a task computes of the segments of a leaf; `kinds` are the columns that come out."""

    leaf: Leaf
    columns: Mapping[str, Kind]  # of the leaf, as far as both engines know their types
    sql: str
    kinds: Mapping[str, Kind]
    fails: bool  # whether some expression can fail

    def require(self, schema: Schema) -> None:
        """Exactly the columns of partial results must come out, as Spark would make them."""
        wanted = {field.name: Kind.of(field.type) for field in schema if field.name != RESET}
        for name in sorted(wanted.keys() | self.kinds.keys()):
            if wanted.get(name) != self.kinds.get(name):
                raise NotProven(f"{name}, a {self.kinds.get(name)} here and a {wanted.get(name)} in Spark")


@dataclass(frozen=True)
class _Rows:
    """Rows on their way: a SELECT with its columns, and the name that qualifies them."""

    leaf: Leaf
    below: Mapping[str, Kind]
    sql: str
    kinds: Mapping[str, Kind]
    names: tuple[str, ...]  # all columns in order, also those of which the type is not known here
    alias: str
    fails: bool = False
    filters: int = 0
    failing_filter: bool = False

    @property
    def source(self) -> str:
        return f"({self.sql}) AS {quoted(self.alias)}"


def pipelines(
    box: Partials, recipe: Recipe, schema_of: Callable[[Leaf], Schema], settings: Mapping[str, str]
) -> tuple[Pipeline, ...]:
    """The ways into some partials; NotProven says what is in the way."""
    if settings.get("spark.sql.ansi.enabled", "true") != "true":
        raise NotProven("arithmetic without ANSI's errors")
    if settings.get("spark.sql.caseSensitive", "false") == "true":
        raise NotProven("names that differ by case")
    utc = settings.get("spark.sql.session.timeZone", "UTC") in _UTC
    return tuple(_pipeline(rows, box, recipe, utc) for rows in _lower(box.input, schema_of, utc))


def _lower(box: Box, schema_of: Callable[[Leaf], Schema], utc: bool) -> list[_Rows]:
    match box:
        case Source() | Keep():
            return [_leaf(box, schema_of(box))]
        case View():
            return [replace(rows, alias=box.name) for rows in _lower(box.input, schema_of, utc)]
        case Filter() | Split():
            return [_filtered(rows, box.predicate, utc) for rows in _lower(box.input, schema_of, utc)]
        case Map():
            return [_mapped(rows, box, utc) for rows in _lower(box.input, schema_of, utc)]
        case Union():
            parts = [_lower(part, schema_of, utc) for part in box.parts]
            names = parts[0][0].names
            return [_renamed(rows, names) for part in parts for rows in part]
    raise NotProven(f"the box {type(box).__name__}")


def _leaf(leaf: Leaf, schema: Schema) -> _Rows:
    if isinstance(leaf, Source) and leaf.messages:
        raise NotProven("a stream with a key")
    kinds: dict[str, Kind] = {}
    names = tuple(field.name for field in schema if not field.name.startswith("_"))
    for name in names:
        try:
            kinds[name] = Kind.of(schema[name].type)
        except NotProven:
            continue  # it does no harm unless somebody uses it
    alias = leaf.stream if isinstance(leaf, Source) else "_kept"
    return _Rows(leaf, kinds, f"SELECT * FROM {SEGMENTS} AS _rows", kinds, names, alias)


def _over(rows: _Rows, utc: bool) -> Translator:
    return over_rows(rows.kinds, rows.alias, utc=utc)


def _filtered(rows: _Rows, predicate: Expression, utc: bool) -> _Rows:
    found = _over(rows, utc).translate(predicate.text)
    if found.kind is not None and found.kind.name != "boolean":
        raise NotProven(f"{predicate}, which is no condition")
    # The order in which DuckDB looks at several filters is its own: none of them may fail.
    if rows.filters and (found.fails or rows.failing_filter):
        raise NotProven(f"{predicate}, which can fail, beside another filter")
    return replace(
        rows,
        sql=f"SELECT * FROM {rows.source} WHERE {found.sql}",
        fails=rows.fails or found.fails,
        filters=rows.filters + 1,
        failing_filter=rows.failing_filter or found.fails,
    )


def _mapped(rows: _Rows, box: Map, utc: bool) -> _Rows:
    over = _over(rows, utc)
    chosen, kinds, fails = [], {}, rows.fails
    for output in box.outputs:
        try:
            found = over.translate(output.expression.text)
        except NotProven:
            continue  # as with columns of unknown types
        if found.kind is not None:
            chosen.append(f"{found.sql} AS {quoted(output.name)}")
            kinds[output.name] = found.kind
            fails = fails or found.fails
    instant = quoted(INSTANT)
    if box.time is not None:
        time = over.translate(box.time.text)
        if time.kind != TIMESTAMP:
            raise NotProven(f"{box.time}, which is no instant")
        instant, fails = f"EPOCH_US({time.sql}) AS {INSTANT}", fails or time.fails
    sql = f"SELECT {', '.join([*chosen, instant, WEIGHT, BUCKET])} FROM {rows.source}"
    return replace(rows, sql=sql, kinds=kinds, names=box.columns, alias="_q", fails=fails)


def _renamed(rows: _Rows, names: Sequence[str]) -> _Rows:
    """The columns of a part of a union, matched by place."""
    pairs = [(old, new) for old, new in zip(rows.names, names, strict=True) if old in rows.kinds]
    chosen = [f"{quoted(old)} AS {quoted(new)}" for old, new in pairs]
    sql = f"SELECT {', '.join([*chosen, *_CARRIED])} FROM {rows.source}"
    kinds = {new: rows.kinds[old] for old, new in pairs}
    return replace(rows, sql=sql, kinds=kinds, names=tuple(names), alias="_q")


def _pipeline(rows: _Rows, box: Partials, recipe: Recipe, utc: bool) -> Pipeline:
    prepared = _prepared(rows, box, recipe, utc)
    lowered = recipe.lowered
    over = over_groups({**prepared.kinds, WEIGHT: INT})
    items = {f"_i{at}": over.translate(sql) for at, sql in enumerate(lowered.sets)}
    over = over_groups({**prepared.kinds, WEIGHT: INT, **{n: _known(item.kind, n) for n, item in items.items()}})
    measures = {m.name: over.translate(m.partial) for m in lowered.measures}
    keys = [key.name for key in box.keys]
    inner = prepared.source
    if items:
        made = ", ".join(f"{item.sql} AS {name}" for name, item in items.items())
        inner = f"(SELECT *, {made} FROM {prepared.source})"
    sql = _grouped(inner, [BUCKET, "_pane", *keys], list(items), {n: m.sql for n, m in measures.items()})
    kinds = {BUCKET: BIGINT, "_pane": TIMESTAMP, **{key: prepared.kinds[key] for key in keys}}
    if items:
        kinds |= {name: _known(item.kind, name) for name, item in items.items()} | {"_set": INT}
    kinds |= {name: _known(measure.kind, name) for name, measure in measures.items()}
    fails = prepared.fails or any(typed.fails for typed in (*items.values(), *measures.values()))
    return Pipeline(rows.leaf, rows.below, sql, kinds, fails)


def _known(kind: Kind | None, name: str) -> Kind:
    if kind is None:
        raise NotProven(f"a column without a type, {name}")
    return kind


def _prepared(rows: _Rows, box: Partials, recipe: Recipe, utc: bool) -> _Rows:
    """Keys, arguments and panes, in the types that Spark found for them."""
    over = _over(rows, utc)
    chosen, kinds, fails = [], {}, rows.fails
    for output in [*box.keys, *arguments(box.calls)]:
        found = over.translate(output.expression.text)
        kind = Kind.of(recipe.types[output.name])
        if found.kind not in (None, kind):
            raise NotProven(f"{output.expression}, a {found.kind} here and a {kind} in Spark")
        sql = found.as_kind(kind)
        if kind.floating and output in box.keys:  # one zero and one NaN, as in groups of Spark's
            cases = f"WHEN {sql} = 0 THEN CAST(0 AS {kind}) WHEN ISNAN({sql}) THEN CAST('NaN' AS {kind})"
            sql = f"CASE {cases} ELSE {sql} END"
        chosen.append(f"{sql} AS {quoted(output.name)}")
        kinds[output.name] = kind
        fails = fails or found.fails
    pane = "CAST(NULL AS BIGINT)"
    if box.pane is not None:
        pane = f"{INSTANT} - {modulo(f'({INSTANT} - {box.offset})', str(box.pane))}"
    sql = f"SELECT {', '.join([*chosen, f'{pane} AS _pane', WEIGHT, BUCKET])} FROM {rows.source}"
    return replace(rows, sql=sql, kinds=kinds, alias="_q", fails=fails)


def _grouped(inner: str, by: Sequence[str], items: Sequence[str], measures: Mapping[str, str]) -> str:
    """The same groups and sets as `engine.groups.partial` makes of rows in Spark."""
    made = [f"{sql} AS {name}" for name, sql in measures.items()]
    groups = ", ".join(map(quoted, by))
    if items:
        sets = ", ".join([f"({groups})", *(f"({groups}, {item})" for item in items)])
        cases = " ".join(f"WHEN GROUPING({item}) = 0 THEN {at + 1}" for at, item in enumerate(items))
        made = [*items, f"CAST(CASE {cases} ELSE 0 END AS INTEGER) AS _set", *made]
        grouping = f"GROUPING SETS ({sets})"
    else:
        grouping = groups
    chosen = ["MAKE_TIMESTAMP(_pane) AS _pane" if name == "_pane" else quoted(name) for name in by]
    ordered = f"SELECT {', '.join([*map(quoted, by), *made])} FROM {inner} GROUP BY {grouping}"
    rest = [*items, *(["_set"] if items else []), *measures]
    return f"SELECT {', '.join([*chosen, *map(quoted, rest)])} FROM ({ordered}) ORDER BY {groups}"
