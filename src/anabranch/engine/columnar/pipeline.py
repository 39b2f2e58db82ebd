"""From the rows of a leaf to partial results, as one SELECT of DuckDB's.

The boxes between are linear, so each way from a leaf to the aggregate can be computed by itself: the partial results
of a union are those of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.columnar import over_groups
from anabranch.diagram.columnar.casts import modulo
from anabranch.diagram.columnar.kinds import BIGINT, INT, TIMESTAMP, Kind, NotProven, known, quoted
from anabranch.diagram.stages import Leaf
from anabranch.engine.columnar.linear import INSTANT, Rows, through, times_of_utc
from anabranch.engine.groups import Recipe, arguments
from anabranch.engine.resets import RESET
from anabranch.model.schema import Schema

SEGMENTS = "_segments"  # where a task puts what it reads: the leaf's columns, and what rows carry
WEIGHT, BUCKET = "_weight", "_bucket"


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


def pipelines(
    box: Partials, recipe: Recipe, schema_of: Callable[[Leaf], Schema], settings: Mapping[str, str]
) -> tuple[Pipeline, ...]:
    """The ways into some partials; NotProven says what is in the way."""
    utc = times_of_utc(settings)
    ways = _ways(box.input, schema_of, utc)
    return tuple(_pipeline(leaf, below, rows, box, recipe, utc) for leaf, below, rows in ways)


def _ways(box: Box, schema_of: Callable[[Leaf], Schema], utc: bool) -> list[tuple[Leaf, Mapping[str, Kind], Rows]]:
    """Each leaf, what is known of its columns, and its rows where the boxes end."""
    if isinstance(box, Source | Keep):
        rows = _leaf(box, schema_of(box))
        return [(box, rows.kinds, rows)]
    return [
        (leaf, kinds, through(box, rows, utc))
        for inner in box.inputs
        for leaf, kinds, rows in _ways(inner, schema_of, utc)
    ]


def _leaf(leaf: Leaf, schema: Schema) -> Rows:
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
    return Rows(f"SELECT * FROM {SEGMENTS} AS _rows", kinds, names, alias, (INSTANT, WEIGHT, BUCKET))


def _pipeline(leaf: Leaf, below: Mapping[str, Kind], rows: Rows, box: Partials, recipe: Recipe, utc: bool) -> Pipeline:
    prepared = _prepared(rows, box, recipe, utc)
    lowered = recipe.lowered
    over = over_groups({**prepared.kinds, WEIGHT: INT})
    items = {f"_i{at}": over.translate(sql) for at, sql in enumerate(lowered.sets)}
    over = over_groups({**prepared.kinds, WEIGHT: INT, **{n: known(item.kind, n) for n, item in items.items()}})
    measures = {m.name: over.translate(m.partial) for m in lowered.measures}
    keys = [key.name for key in box.keys]
    inner = prepared.source
    if items:
        made = ", ".join(f"{item.sql} AS {name}" for name, item in items.items())
        inner = f"(SELECT *, {made} FROM {prepared.source})"
    sql = _grouped(inner, [BUCKET, "_pane", *keys], list(items), {n: m.sql for n, m in measures.items()})
    kinds = {BUCKET: BIGINT, "_pane": TIMESTAMP, **{key: prepared.kinds[key] for key in keys}}
    if items:
        kinds |= {name: known(item.kind, name) for name, item in items.items()} | {"_set": INT}
    kinds |= {name: known(measure.kind, name) for name, measure in measures.items()}
    fails = prepared.fails or any(typed.fails for typed in (*items.values(), *measures.values()))
    return Pipeline(leaf, below, sql, kinds, fails)


def _prepared(rows: Rows, box: Partials, recipe: Recipe, utc: bool) -> Rows:
    """Keys, arguments and panes, in the types that Spark found for them."""
    over = rows.translator(utc)
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
