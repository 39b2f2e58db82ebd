"""Rows to groups, as SQL: keys and arguments, windows, partial results made, merged and finished.

Steps that compose, so that an aggregate can stop after any of them:

    prepared   rows                 -> keys, arguments            (one projection)
    partial    keys, arguments      -> partial results            (one GROUP BY, over grouping sets)
    merged     partial results      -> fewer partial results      (one GROUP BY)
    finished   partial results      -> results                    (one projection, one GROUP BY if there are items)

Each takes the columns by which to group beside the keys: panes, windows, buckets, versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from anabranch.diagram.boxes.aggregate import Call
from anabranch.diagram.expression import Expression, Named
from anabranch.engine.aggregates import ROWS, Argument, Lowered, has_map, lower
from anabranch.engine.guard import FAILED, NO_GUARD, Guard
from anabranch.engine.relation import Relation, listed, quoted
from anabranch.engine.rows import mapped
from anabranch.model.window import Window

if TYPE_CHECKING:
    from anabranch.engine.columnar.pipeline import Pipeline

# How many arguments are computed for each row; those after them are constants.
_CONSTANTS = {"apply": -3, "top": 1, "percentile": 1, "approx_percentile": 1, "approx_count_distinct": 1}
_TIED = ("first", "last")
# To these a row that FILTER leaves out is none, and nulls are values.
_EVERY_ROW = (*_TIED, "apply")


@dataclass(frozen=True)
class Recipe:
    """How the calls of an aggregate are computed, once the types of their arguments are known."""

    lowered: Lowered
    ties: tuple[str, ...]  # the columns that order rows of one instant, for first and last
    types: Mapping[str, str] = field(default_factory=dict)  # of keys and arguments
    columnar: tuple[Pipeline, ...] | str = "not looked at"  # how the columnar kernel does it, or why it does not


def arguments(calls: Sequence[Call]) -> list[Named]:
    """What is computed for each row, for all calls together."""
    return list(_arguments(calls)[0].values())


def _arguments(calls: Sequence[Call]) -> tuple[dict[str, Named], dict[str, list[str]]]:
    """The arguments to compute, each once, and which of them each call has."""
    outputs: dict[str, Named] = {}
    of_call: dict[str, list[str]] = {}
    for call in calls:
        arguments = call.arguments[: _CONSTANTS.get(call.function)]
        if not arguments and call.where is not None:
            arguments = (Expression("1", call.at),)
        of_call[call.name] = []
        for text, at in _texts(call, arguments):
            name = outputs.setdefault(text, Named(f"_x{len(outputs)}", Expression(text, at))).name
            of_call[call.name].append(name)
    return outputs, of_call


def _texts(call: Call, arguments: Sequence[Expression]) -> list[tuple[str, int | None]]:
    """What is computed for a call. A row that FILTER leaves out has no value."""
    if call.where is None:
        return [(argument.text, argument.at) for argument in arguments]
    made = [(f"CASE WHEN {call.where} THEN {argument} END", argument.at) for argument in arguments]
    return [*made, (call.where.text, call.where.at)] if call.function in _EVERY_ROW else made


def prepared(
    rows: Relation,
    keys: Sequence[Named],
    calls: Sequence[Call],
    ties: Sequence[str],
    guard: Guard = NO_GUARD,
    also: Sequence[str] = (),
    *,
    tied: bool = False,
) -> Relation:
    """Compute the keys and the arguments of all calls; with what orders rows of one instant where that matters."""
    outputs, _ = _arguments(calls)
    if tied or any(call.function in _TIED for call in calls):
        fields = "".join(f", 'c{at}', {quoted(c)}" for at, c in enumerate(ties))
        sql = f"SELECT *, NAMED_STRUCT('t', _event_time{fields}) AS _ties FROM {rows.source}"
        rows = Relation(sql, (*rows.carried, "_ties"), rows.columns, rows.alias)
    return mapped(rows, [*keys, *outputs.values()], guard, also)


def recipe(
    rows: Relation,
    keys: Sequence[Named],
    calls: Sequence[Call],
    schema_of: Callable[[str], T.StructType],
    *,
    tied: bool = False,
    wide: bool = True,
) -> Recipe:
    """Let Spark say the types of all arguments, and lower the calls accordingly."""
    _, of_call = _arguments(calls)
    ties: tuple[str, ...] = ()
    if tied or any(call.function in _TIED for call in calls):
        types = {f.name: f.dataType for f in schema_of(rows.sql)}
        ties = tuple(c for c in rows.columns if not has_map(types[c]))  # maps have no order
    made = {f.name: f.dataType for f in schema_of(prepared(rows, keys, calls, ties).sql)}
    found: dict[str, list[Argument]] = {}
    for call in calls:
        texts = [e.text for e in call.expressions] or ["*"]
        found[call.name] = [Argument(n, made[n], t) for n, t in zip(of_call[call.name], texts, strict=False)]
        for constant in call.arguments[_CONSTANTS.get(call.function, len(call.arguments)) :]:
            kind = schema_of(f"SELECT ({constant.text}) AS c")["c"].dataType
            found[call.name].append(Argument("", kind, constant.text))
    types = {name: kind.simpleString() for name, kind in made.items()}
    return Recipe(lower(calls, found, "_ties", wide=wide), ties, types)


def partial(rows: Relation, lowered: Lowered, by: Sequence[str], keys: Sequence[str]) -> Relation:
    """Partial results of prepared rows, grouped by some columns and the keys."""
    grouping = [*by, *keys]
    measures = [f"{m.partial} AS {m.name}" for m in lowered.measures]
    where = f" WHERE {FAILED} IS NULL" if FAILED in rows.carried else ""
    if not lowered.sets:
        groups = f" GROUP BY {listed(grouping)}" if grouping else ""
        sql = f"SELECT {', '.join([*map(quoted, grouping), *measures])} FROM {rows.source}{where}{groups}"
        return Relation(sql, (*grouping, *(m.name for m in lowered.measures)))
    items = [f"_i{at}" for at in range(len(lowered.sets))]
    made = ", ".join(f"{sql} AS {item}" for item, sql in zip(items, lowered.sets, strict=True))
    inner = f"(SELECT *, {made} FROM {rows.source}{where})"
    sets = ", ".join(f"({listed(s)})" for s in [grouping, *([*grouping, item] for item in items)])
    # A column that is no part of a set is null in it, and an item may be null too: the set's number tells them apart.
    cases = " ".join(f"WHEN GROUPING({item}) = 0 THEN {at + 1}" for at, item in enumerate(items))
    chosen = [*map(quoted, grouping), *items, f"CASE {cases} ELSE 0 END AS _set", *measures]
    sql = f"SELECT {', '.join(chosen)} FROM {inner} GROUP BY GROUPING SETS ({sets})"
    return Relation(sql, (*grouping, *items, "_set", *(m.name for m in lowered.measures)))


def merged(partials: Relation, lowered: Lowered, by: Sequence[str], also: Sequence[str] = ()) -> Relation:
    """Partial results of the same group made one: still partial."""
    items: list[str] = []
    where = ""
    if lowered.sets:
        items = ["_set", *(f"_i{number - 1}" for number in lowered.used)]
        where = f" WHERE _set IN ({', '.join(map(str, [0, *lowered.used]))})"
    reduced = [*also, *(f"{m.reduce} AS {m.name}" for m in lowered.measures)]
    groups = [*by, *items]
    grouped = f" GROUP BY {listed(groups)}" if groups else ""
    sql = f"SELECT {', '.join([*map(quoted, groups), *reduced])} FROM {partials.source}{where}{grouped}"
    return Relation(sql, (*groups, *(m.name for m in lowered.measures)))


def finished(
    partials: Relation,
    lowered: Lowered,
    by: Sequence[str],
    results: Sequence[tuple[str, str]],
    guard: Guard = NO_GUARD,
    called: Mapping[str, str] | None = None,
    *,
    empty: bool = False,
) -> Relation:
    """Results from merged partial results: `results` names them, and the calls that they are of.

    A group of which no row remains has no result, unless `empty` asks for it; negative counts are held, never said.
    Under a guard a result that is too large for its type is null; where groups are to be set aside, they carry which
    of their results was the first such one, as it is `called`.
    """
    if lowered.gathered or lowered.sets:
        partials = _gathered(partials, lowered, by)
    where = "" if empty else f" WHERE {ROWS} > 0"
    finals = {name: lowered.finals[call] for name, call in results}
    large = {name: finals[name] for name, call in results if call in lowered.overflowing}
    made = [f"{guard.result(sql) if name in large else sql} AS {quoted(name)}" for name, sql in finals.items()]
    names = [*by, *finals]
    if guard.aside and large:
        made.append(f"{guard.first_failing(large.values(), [(called or {}).get(n, n) for n in large])} AS {FAILED}")
        names.append(FAILED)
    return Relation(f"SELECT {', '.join([*map(quoted, by), *made])} FROM {partials.source}{where}", tuple(names))


def _gathered(partials: Relation, lowered: Lowered, by: Sequence[str]) -> Relation:
    """One row per group: its measures, and what its items amount to."""
    plain = [m.name for m in lowered.measures if m.set == 0]
    if not lowered.sets:
        partials = Relation(f"SELECT *, 0 AS _set FROM {partials.source}")
    picked = [f"ANY_VALUE({name}) FILTER (WHERE _set = 0) AS {name}" for name in plain]
    gathered = [f"{sql} AS {name}" for name, sql in lowered.gathered]
    grouped = f" GROUP BY {listed(by)}" if by else ""
    return Relation(f"SELECT {', '.join([*map(quoted, by), *picked, *gathered])} FROM {partials.source}{grouped}")


def windowed(rows: Relation, window: Window, instant: str) -> Relation:
    """Each row once for every window that holds its instant, with `_open` and `_close` in microseconds."""
    if window.tumbles:
        opens = f"{instant} - PMOD({instant} - {window.offset}L, {window.size}L)"
    else:
        after = f"({instant} - {window.size}L)"
        first = f"{after} - PMOD({after} - {window.offset}L, {window.advance}L) + {window.advance}L"
        last = f"{instant} - PMOD({instant} - {window.offset}L, {window.advance}L)"
        opens = f"EXPLODE(SEQUENCE({first}, {last}, {window.advance}L))"
    kept = [name for name in rows.carried if name not in ("_open", "_close")]
    inner = f"SELECT {listed([*kept, *rows.columns])}, {opens} AS _open FROM {rows.source}"
    sql = f"SELECT *, _open + {window.size}L AS _close FROM ({inner}) AS {quoted(rows.alias)}"
    return Relation(sql, (*kept, "_open", "_close"), rows.columns, rows.alias)
