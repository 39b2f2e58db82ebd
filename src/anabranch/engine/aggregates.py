"""How Spark computes aggregates from partial results.

A call needs *measures*: columns that one row per pane and group keeps, each with a partial form over rows
and a reduce form over measures. Some need *items* beside them: a value, or a block of an exact sum, of
which there may be many per group; these are rows of their own with a weight. All items of one
expression are a *set*, and set 0 is the measures. So the partial results of a query are one table,

    pane, keys, set, items, measures

computed by one GROUP BY GROUPING SETS, reduced by another GROUP BY, and finished per window and group.
Calls that need the same measure share it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import types as T

from anabranch.diagram.aggregates import LAWS, Grade
from anabranch.diagram.boxes.aggregate import Call
from anabranch.diagram.functions import EVENT_TIME
from anabranch.engine import exact, quantiles
from anabranch.engine.functions import APPLY
from anabranch.model.errors import AnabranchError

ROWS = "_n"  # the measure that says how many rows a group has


@dataclass(frozen=True)
class Measure:
    """A column of partial results: over rows, and over itself."""

    name: str
    set: int
    partial: str
    reduce: str


@dataclass
class Lowered:
    """What the calls of one aggregate need, gathered call by call."""

    measures: list[Measure] = field(default_factory=list)
    sets: list[str] = field(default_factory=list)  # SQL of each set's item, over the arguments
    gathered: list[tuple[str, str]] = field(default_factory=list)  # columns made from items, per group
    finals: dict[str, str] = field(default_factory=dict)  # SQL of each call's result
    overflowing: set[str] = field(default_factory=set)  # calls whose result may be too large for its type
    wide: bool = True  # whether decimals of any length add up; not so in what older versions have stored

    @property
    def used(self) -> list[int]:
        """The numbers of the sets of which something is needed."""
        return sorted({m.set for m in self.measures if m.set})

    def narrowed(self, calls: Sequence[str]) -> Lowered:
        """What only some of the calls need of it."""
        finals = {name: self.finals[name] for name in calls}
        words = _words(finals.values())
        gathered = [(name, sql) for name, sql in self.gathered if name in words]
        words |= _words(sql for _, sql in gathered) | {ROWS}
        words |= _words(m.reduce for m in self.measures if m.name in words)
        kept = [m for m in self.measures if m.name in words]
        return Lowered(kept, self.sets, gathered, finals, self.overflowing & finals.keys())

    def measure(self, partial: str, reduce: str = "SUM", set: int = 0) -> str:
        """The column of a measure; one that is there already is shared."""
        for known in self.measures:
            if (known.set, known.partial) == (set, partial):
                return known.name
        name = f"_m{len(self.measures)}"
        self.measures.append(Measure(name, set, partial, f"{reduce}({name})"))
        return name

    def item(self, sql: str) -> tuple[int, str]:
        """The number and the column of the set of an item."""
        if sql not in self.sets:
            self.sets.append(sql)
        at = self.sets.index(sql)
        return at + 1, f"_i{at}"

    def gather(self, sql: str) -> str:
        for name, known in self.gathered:
            if known == sql:
                return name
        name = f"_g{len(self.gathered)}"
        self.gathered.append((name, sql))
        return name


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"_\w+", text)}


@dataclass(frozen=True)
class Argument:
    """An argument of a call after it was computed: its column and type, or a constant's text."""

    column: str
    type: T.DataType
    text: str


def lower(
    calls: Sequence[Call], arguments: Mapping[str, Sequence[Argument]], ties: str, *, wide: bool = True
) -> Lowered:
    """Lower all calls of an aggregate. `ties` is the column that orders rows for first and last."""
    lowered = Lowered([Measure(ROWS, 0, "SUM(_weight)", f"SUM({ROWS})")], wide=wide)
    for call in calls:
        if call.function in ("sum", "avg") and isinstance(arguments[call.name][0].type, T.LongType | T.DecimalType):
            lowered.overflowing.add(call.name)
        lowered.finals[call.name] = _LOWERINGS[call.function](lowered, call, arguments[call.name], ties)
    return lowered


def takes_deletions(calls: Sequence[Call]) -> bool:
    """Whether partial results subtract; the latest of some messages is never deleted from."""
    return all(LAWS[c.function].grade is not Grade.MERGEABLE or c.function == "latest" for c in calls)


def _weight_where(condition: str) -> str:
    return f"SUM(CASE WHEN {condition} THEN _weight ELSE 0 END)"


def _present(arguments: Sequence[Argument]) -> str:
    return " AND ".join(f"{a.column} IS NOT NULL" for a in arguments)


def _signed(value: str) -> str:
    return f"CASE WHEN _weight < 0 THEN -{value} ELSE {value} END"


def _count(lowered: Lowered, call: Call, arguments: Sequence[Argument], ties: str) -> str:
    return f"COALESCE({lowered.measure(_weight_where(_present(arguments))) if arguments else ROWS}, 0)"


def _count_if(lowered: Lowered, call: Call, arguments: Sequence[Argument], ties: str) -> str:
    return f"COALESCE({lowered.measure(_weight_where(arguments[0].column))}, 0)"


def _sum(lowered: Lowered, call: Call, arguments: Sequence[Argument], ties: str) -> str:
    x = arguments[0]
    some = lowered.measure(_weight_where(_present(arguments)))
    if isinstance(x.type, T.FloatType | T.DoubleType):
        return f"CASE WHEN {some} > 0 THEN {_double_sum(lowered, x)} END"
    total = _whole_sum(lowered, call, x)
    kept = "BIGINT" if not isinstance(x.type, T.DecimalType) else _decimal(min(38, x.type.precision + 10), x.type.scale)
    return f"CASE WHEN {some} > 0 THEN CAST({total} AS {kept}) END"


def _decimal(precision: int, scale: int) -> str:
    return f"DECIMAL({precision}, {scale})"


def _whole_sum(lowered: Lowered, call: Call, x: Argument) -> str:
    """The exact sum of integers or decimals."""
    if isinstance(x.type, T.ByteType | T.ShortType | T.IntegerType):
        return lowered.measure(f"SUM(CAST({x.column} AS BIGINT) * _weight)")
    if isinstance(x.type, T.LongType):
        # Two halves, so that no order of adding overflows where the sum itself does not.
        top = lowered.measure(f"SUM(SHIFTRIGHT({x.column}, 32) * _weight)")
        bottom = lowered.measure(f"SUM(({x.column} & 4294967295) * _weight)")
        return f"(CAST({top} AS DECIMAL(20, 0)) * 4294967296BD + CAST({bottom} AS DECIMAL(20, 0)))"
    if isinstance(x.type, T.DecimalType):
        kept = _decimal(38, x.type.scale)
        if lowered.wide and x.type.precision > exact.PLAIN_DIGITS:
            above, below = exact.parts(x.column, x.type.scale)
            whole = lowered.measure(f"CAST(SUM({_signed(above)}) AS {_decimal(38, 0)})")
            rest = lowered.measure(f"CAST(SUM({_signed(below)}) AS {kept})")
            return f"CAST({exact.DECIMAL}({whole}, {rest}) AS {kept})"
        return lowered.measure(f"CAST(SUM({_signed(x.column)}) AS {kept})")
    raise _wrong_type(call, x, "numbers")


def _double_sum(lowered: Lowered, x: Argument) -> str:
    d = f"DOUBLE({x.column})"
    nan = lowered.measure(_weight_where(f"ISNAN({d})"))
    up = lowered.measure(_weight_where(f"{d} = DOUBLE('Infinity')"))
    down = lowered.measure(_weight_where(f"{d} = DOUBLE('-Infinity')"))
    blocks = _blocks(lowered, d, squares=False)
    return (
        f"CASE WHEN {nan} > 0 OR ({up} > 0 AND {down} > 0) THEN DOUBLE('NaN') "
        f"WHEN {up} > 0 THEN DOUBLE('Infinity') WHEN {down} > 0 THEN DOUBLE('-Infinity') "
        f"ELSE {exact.SUM}({blocks}) END"
    )


def _blocks(lowered: Lowered, d: str, *, squares: bool) -> str:
    """The column that gathers a group's blocks of an exact sum."""
    number, column = lowered.item(exact.block(d))
    whole = exact.scaled(d, column)
    h, l = exact.high(whole), exact.low(whole)  # noqa: E741
    kept = {"h": lowered.measure(f"SUM({h} * _weight)", set=number),
            "l": lowered.measure(f"SUM({l} * _weight)", set=number)}  # fmt: skip
    if squares:
        for name, product in (("hh", f"{h} * {h}"), ("hl", f"{h} * {l}"), ("ll", f"{l} * {l}")):
            big = f"CAST(SUM(CAST({product} AS DECIMAL(19, 0)) * _weight) AS DECIMAL(38, 0))"
            kept[name] = lowered.measure(big, set=number)
    fields = ", ".join(f"'{name}', {measure}" for name, measure in kept.items())
    listed = f"COLLECT_LIST(NAMED_STRUCT('e', {column}, {fields}))"
    return lowered.gather(f"{listed} FILTER (WHERE _set = {number} AND {column} IS NOT NULL)")


def _avg(lowered: Lowered, call: Call, arguments: Sequence[Argument], ties: str) -> str:
    x = arguments[0]
    some = lowered.measure(_weight_where(_present(arguments)))
    if isinstance(x.type, T.FloatType | T.DoubleType):
        mean = f"{_double_sum(lowered, x)} / {some}"
    elif isinstance(x.type, T.DecimalType):
        p, s = x.type.precision, x.type.scale
        total = f"CAST({_whole_sum(lowered, call, x)} AS {_decimal(min(38, p + 10), s)})"
        mean = f"CAST({total} / CAST({some} AS DECIMAL(20, 0)) AS {_decimal(min(38, p + 4), min(38, s + 4))})"
    else:
        mean = f"DOUBLE({_whole_sum(lowered, call, x)}) / {some}"
    return f"CASE WHEN {some} > 0 THEN {mean} END"


def _variance(below: int, root: bool) -> Callable[[Lowered, Call, Sequence[Argument], str], str]:
    def lowering(lowered: Lowered, call: Call, arguments: Sequence[Argument], ties: str) -> str:
        d = f"DOUBLE({arguments[0].column})"
        some = lowered.measure(_weight_where(_present(arguments)))
        odd = lowered.measure(_weight_where(f"ISNAN({d}) OR ABS({d}) = DOUBLE('Infinity')"))
        blocks = _blocks(lowered, d, squares=True)
        value = f"{exact.VARIANCE}({blocks}, {some}, {below})"
        value = f"SQRT({value})" if root else value
        return f"CASE WHEN {some} <= {below} THEN NULL WHEN {odd} > 0 THEN DOUBLE('NaN') ELSE {value} END"

    return lowering


def _extreme(function: str) -> Callable[[Lowered, Call, Sequence[Argument], str], str]:
    def lowering(lowered: Lowered, call: Call, arguments: Sequence[Argument], ties: str) -> str:
        x = arguments[0].column
        if isinstance(arguments[0].type, T.FloatType | T.DoubleType):
            x = f"CASE WHEN {x} = 0 THEN ABS({x}) ELSE {x} END"  # -0.0 equals 0.0: which one comes out must not vary
        return lowered.measure(f"{function}({x})", function)

    return lowering


def _by_time(function: str) -> Callable[[Lowered, Call, Sequence[Argument], str], str]:
    def lowering(lowered: Lowered, call: Call, arguments: Sequence[Argument], ties: str) -> str:
        chosen = f"NAMED_STRUCT('t', {ties}, 'x', {arguments[0].column})"
        if call.where is not None:
            chosen = f"CASE WHEN {arguments[1].column} THEN {chosen} END"
        return f"{lowered.measure(f'{function}({chosen})', function)}.x"

    return lowering


def _latest(lowered: Lowered, call: Call, arguments: Sequence[Argument], ties: str) -> str:
    """Of all versions the one with the highest stamp, whatever was in it."""
    stamp = lowered.measure("MAX(_stamp)", "MAX")
    x = arguments[0].column
    for known in lowered.measures:
        if known.partial == f"MAX_BY({x}, _stamp)":
            return known.name
    name = f"_m{len(lowered.measures)}"
    lowered.measures.append(Measure(name, 0, f"MAX_BY({x}, _stamp)", f"MAX_BY({name}, {stamp})"))
    return name


def _top(lowered: Lowered, call: Call, arguments: Sequence[Argument], ties: str) -> str:
    """The first rows in an order, as a list: of lists, the first of all together."""
    x, most, words = arguments[0], arguments[1].text, arguments[2].text.strip("'").split()
    kind = x.type
    assert isinstance(kind, T.StructType)
    row = kind["row"].dataType
    assert isinstance(row, T.StructType)
    order = "0"
    for column in reversed([f for f in row if not has_map(f.dataType)]):  # ties, by the other columns in order
        order = _compared(f"row.{column.name}", "AF", order)
    for n, word in reversed(list(enumerate(words))):
        order = _compared(f"o{n}", word, order)

    def first(rows: str) -> str:
        return f"SLICE(ARRAY_SORT(FLATTEN(COLLECT_LIST({rows})), (a, b) -> {order}), 1, {most})"

    name = f"_m{len(lowered.measures)}"
    rows = f"ARRAY_REPEAT({x.column}, CAST(_weight AS INT))"
    lowered.measures.append(Measure(name, 0, first(rows), first(name)))
    return name


def _compared(field: str, word: str, otherwise: str) -> str:
    """A comparison of a and b: -1, 0 or 1; ascending or descending, nulls first or last."""
    low, high = ("1", "-1") if word[0] == "D" else ("-1", "1")
    null, known = ("1", "-1") if word[1] == "L" else ("-1", "1")
    return (
        f"CASE WHEN a.{field} <=> b.{field} THEN {otherwise} WHEN a.{field} IS NULL THEN {null} "
        f"WHEN b.{field} IS NULL THEN {known} WHEN a.{field} < b.{field} THEN {low} ELSE {high} END"
    )


def has_map(kind: T.DataType) -> bool:
    """Whether there is a map in values of a type: these have no order."""
    if isinstance(kind, T.ArrayType):
        return has_map(kind.elementType)
    if isinstance(kind, T.StructType):
        return any(has_map(f.dataType) for f in kind)
    return isinstance(kind, T.MapType | T.VariantType)


def _approx_count_distinct(lowered: Lowered, call: Call, arguments: Sequence[Argument], ties: str) -> str:
    x = arguments[0].column
    hashed = f"CASE WHEN {x} IS NULL THEN NULL ELSE XXHASH64({x}) END"
    sketch = lowered.measure(f"THETA_SKETCH_AGG({hashed})", "THETA_UNION_AGG")
    # Every sketch passes through a union at the end, so that the estimate does not depend on how many there were.
    merged = lowered.gather(f"THETA_UNION_AGG({sketch}) FILTER (WHERE _set = 0)")
    return f"THETA_SKETCH_ESTIMATE({merged})"


def _weights(lowered: Lowered, item: str) -> tuple[str, str, str]:
    """The set of an item with the weight of each value: its column, the weight's, and the condition to use them."""
    number, column = lowered.item(item)
    weight = lowered.measure("SUM(_weight)", set=number)
    return column, weight, f"_set = {number} AND {weight} > 0 AND {column} IS NOT NULL"


def _count_distinct(lowered: Lowered, call: Call, arguments: Sequence[Argument], ties: str) -> str:
    columns = [a.column for a in arguments]
    value = columns[0] if len(columns) == 1 else f"STRUCT({', '.join(columns)})"
    item = value if len(columns) == 1 else f"CASE WHEN {_present(arguments)} THEN {value} END"
    _, _, usable = _weights(lowered, item)
    return lowered.gather(f"COUNT(1) FILTER (WHERE {usable})")


def _percentile(lowered: Lowered, call: Call, arguments: Sequence[Argument], ties: str) -> str:
    x = arguments[0]
    if not isinstance(x.type, T.NumericType):
        raise _wrong_type(call, x, "numbers")
    column, weight, usable = _weights(lowered, x.column)
    share = "0.5D" if call.function == "median" else f"({arguments[1].text})"
    return lowered.gather(f"PERCENTILE({column}, {share}, {weight}) FILTER (WHERE {usable})")


def _approx_percentile(lowered: Lowered, call: Call, arguments: Sequence[Argument], ties: str) -> str:
    x = arguments[0]
    if not isinstance(x.type, T.NumericType):
        raise _wrong_type(call, x, "numbers")
    if isinstance(arguments[1].type, T.ArrayType):
        raise _wrong_type(call, arguments[1], "one percentage; write one call for each")
    column, weight, usable = _weights(lowered, quantiles.cell(f"DOUBLE({x.column})"))
    cells = lowered.gather(f"COLLECT_LIST(NAMED_STRUCT('c', {column}, 'w', {weight})) FILTER (WHERE {usable})")
    value = quantiles.at(cells, f"({arguments[1].text})")
    whole = isinstance(x.type, T.IntegralType)
    return f"CAST({f'ROUND({value})' if whole else value} AS {x.type.simpleString()})"


def _apply(lowered: Lowered, call: Call, arguments: Sequence[Argument], ties: str) -> str:
    """A function of the user's own, over all rows of the group."""
    names, path, kind = (argument.text.strip("'") for argument in arguments[-3:])
    given = zip(names.split(","), arguments[:-3], strict=call.where is None)
    fields = "".join(f", '{name}', {argument.column}" for name, argument in given)
    item = f"NAMED_STRUCT('{EVENT_TIME}', _event_time{fields})"
    if call.where is not None:
        item = f"CASE WHEN {arguments[-4].column} THEN {item} END"
    column, weight, usable = _weights(lowered, item)
    rows = lowered.gather(f"COLLECT_LIST(NAMED_STRUCT('i', {column}, 'w', {weight})) FILTER (WHERE {usable})")
    return f"FROM_JSON({APPLY}('{path}', {rows}), 'STRUCT<v: {kind}>', MAP('mode', 'FAILFAST')).v"


def _wrong_type(call: Call, x: Argument, need: str) -> AnabranchError:
    return AnabranchError(
        "WRONG_TYPE", place=str(call), need=need, got=f"{x.text} of type {x.type.simpleString().upper()}",
        next_step="Cast the argument.",
    )  # fmt: skip


_LOWERINGS: Mapping[str, Callable[[Lowered, Call, Sequence[Argument], str], str]] = {
    "count": _count,
    "count_if": _count_if,
    "sum": _sum,
    "avg": _avg,
    "var_samp": _variance(1, root=False),
    "var_pop": _variance(0, root=False),
    "stddev_samp": _variance(1, root=True),
    "stddev_pop": _variance(0, root=True),
    "min": _extreme("MIN"),
    "max": _extreme("MAX"),
    "bool_and": _extreme("MIN"),
    "bool_or": _extreme("MAX"),
    "first": _by_time("MIN"),
    "last": _by_time("MAX"),
    "latest": _latest,
    "top": _top,
    "apply": _apply,
    "approx_count_distinct": _approx_count_distinct,
    "approx_percentile": _approx_percentile,
    "count_distinct": _count_distinct,
    "median": _percentile,
    "percentile": _percentile,
}
assert _LOWERINGS.keys() == LAWS.keys(), "every aggregate has one lowering"
