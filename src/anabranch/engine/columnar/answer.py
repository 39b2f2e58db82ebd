"""From partial results to a query's results, in DuckDB's words.

The same steps as in `engine.answers` and `engine.groups`: windows, versions, merged, finished, and the linear boxes
above. What changes from step to step is put before them as tables of their own: what is kept, and the versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.columnar import over_groups, over_rows
from anabranch.diagram.columnar.casts import modulo
from anabranch.diagram.columnar.kinds import BIGINT, DOUBLE, INT, TIMESTAMP, Kind, NotProven, Typed, known, quoted
from anabranch.engine import exact
from anabranch.engine.aggregates import ROWS, Lowered
from anabranch.engine.columnar.hashes import require_hashable
from anabranch.engine.columnar.linear import INSTANT, Rows, through, times_of_utc
from anabranch.model.schema import Schema
from anabranch.model.window import Window

# The tables that a task makes, each from the one before.
KEPT, WINDOWS, COUNTED, GROUPS = "_kept", "_windows", "_counted", "_groups"
VERSION, WINDOW = "_version", "_w"
_MOST_KEYS = 62
_EXACT = re.compile(rf"({exact.SUM}|{exact.VARIANCE})\((_g\d+)(?:, (_\w+), (\d))?\)")
_LONG = re.compile(rf"CAST\({exact.DECIMAL}\((_m\d+), (_m\d+)\) AS DECIMAL\(38, (\d+)\)\)")
_BLOCKS = re.compile(r"COLLECT_LIST\(NAMED_STRUCT\(('e'.*)\)\) FILTER \(WHERE (.*)\)")
_FIELD = re.compile(r"'(\w+)', (_\w+)")
_COUNT = re.compile(r"COUNT\(1\) FILTER \(WHERE .*\)")


@dataclass(frozen=True)
class Finish:
    """A column that is put together outside of SQL: an exact sum or variance of the blocks of each group."""

    name: str
    blocks: str
    count: str | None = None  # of a variance, with what is subtracted from the count
    below: int = 0

    def of(self, groups: pa.Table) -> pa.Array:
        blocks = groups[self.blocks].combine_chunks()
        if self.count is None:
            return exact.sums(blocks)
        below = pa.array([self.below] * groups.num_rows, pa.int64())
        return exact.variances(blocks, groups[self.count].combine_chunks(), below)


@dataclass(frozen=True)
class FinishLong:
    """The same for the sum of a long decimal, from the sums of its two parts."""

    name: str
    above: str
    below: str
    scale: int

    def of(self, groups: pa.Table) -> pa.Array:
        texts = exact.decimals(groups[self.above].combine_chunks(), groups[self.below].combine_chunks())
        whole = 38 - self.scale
        large = [t for t in texts.to_pylist() if t is not None and len(t.lstrip("-").split(".")[0].lstrip("0")) > whole]
        if large:  # as DuckDB says it: whoever gets this error asks Spark
            import duckdb

            raise duckdb.OutOfRangeException(f"{large[0]} has more than 38 digits")
        return pc.cast(texts, pa.decimal128(38, self.scale))


@dataclass(frozen=True)
class Answer:
    """How the results of a query come from the partial results that it keeps."""

    box: Consolidate
    kept: Mapping[str, Kind]  # the columns of partial results that are read, as they are called there
    windows: str  # a SELECT over what is kept
    groups: str  # one over what counts in each version
    finishes: tuple[Finish | FinishLong, ...]
    results: str  # and one over the groups
    ids: Mapping[str, Kind]  # window and keys, which tell results apart
    columns: Mapping[str, Kind]
    fails: bool
    only_sums_fail: bool  # if something does, it is a sum that is too large, and Spark's fails as well

    def require(self, schema: Schema) -> None:
        """Exactly the columns that are said must come out, as Spark would make them."""
        for field in schema:
            if not field.name.startswith("_") and self.columns.get(field.name) != Kind.of(field.type):
                got = self.columns.get(field.name)
                raise NotProven(f"{field.name}, a {got} here and a {Kind.of(field.type)} in Spark")


def answer(plan: Box, lowered: Lowered, kept: Schema, settings: Mapping[str, str]) -> Answer:
    """The answer of a diagram of one aggregate and linear boxes above it; NotProven says what is in the way."""
    utc = times_of_utc(settings)
    box = bottom(plan)
    lowered = lowered.narrowed([call for _, call in box.calls])
    kinds = {name: Kind.of(kept[inner].type) for name, inner in box.keys}
    for kind in kinds.values():
        require_hashable(kind)
    if len(kinds) > _MOST_KEYS:
        raise NotProven(f"more than {_MOST_KEYS} keys")
    items = {f"_i{number - 1}": Kind.of(kept[f"_i{number - 1}"].type) for number in lowered.used}
    stored = {m.name: Kind.of(kept[m.name].type) for m in lowered.measures}
    over = over_groups(stored)
    merged = {m.name: over.translate(m.reduce) for m in lowered.measures}
    by = [VERSION, *(["_open", "_close"] if box.window else []), *kinds]
    finishes, finals = _finals(box, lowered, {**kinds, **{n: known(m.kind, n) for n, m in merged.items()}})
    groups = _grouped(by, lowered, list(items), {n: m.sql for n, m in merged.items()})
    ids = {WINDOW: BIGINT} | {f"_id{n}": kinds[name] for n, (name, _) in enumerate(box.keys)}
    failing = any(typed.fails for typed in finals.values())
    rows = through_all(plan, box, _results(box, kinds, finals, ids, failing), utc)
    fails = rows.fails or any(typed.fails for typed in merged.values())
    only_sums_fail = not (rows.fails or any(isinstance(finish, FinishLong) for finish in finishes))
    read = {inner: kinds[name] for name, inner in box.keys} | items | ({"_set": INT} if lowered.sets else {}) | stored
    return Answer(box, read, _windows(box, [*items, *(["_set"] if lowered.sets else []), *stored]),
                  groups, finishes, rows.sql, ids, rows.kinds, fails, only_sums_fail)  # fmt: skip


def bottom(plan: Box) -> Consolidate:
    """The aggregate of a diagram that has one, below linear boxes."""
    box = plan
    while not isinstance(box, Consolidate):
        if isinstance(box, Aggregate) or len(box.inputs) != 1:
            raise NotProven(f"the box {type(box).__name__} over aggregates")
        box = box.inputs[0]
    return box


def through_all(plan: Box, bottom: Box, rows: Rows, utc: bool) -> Rows:
    """Rows of the box at the bottom after all boxes above it."""
    return rows if plan is bottom else through(plan, through_all(plan.inputs[0], bottom, rows, utc), utc)


def _windows(box: Consolidate, measures: Sequence[str]) -> str:
    """Each partial result once for every window that holds its pane."""
    chosen = [*(f"{quoted(inner)} AS {quoted(name)}" for name, inner in box.keys), *measures, "_bucket"]
    if box.window is None:
        return f"SELECT {', '.join(chosen)} FROM {KEPT}"
    sql = f"SELECT {', '.join(chosen)}, {_opens(box.window, box.input)} AS _open FROM {KEPT}"
    return f"SELECT *, _open + {box.window.size} AS _close FROM ({sql})"


def _opens(window: Window, panes: Partials) -> str:
    if window.tumbles and (window.size, window.offset) == (panes.pane, panes.offset):
        return "_pane"

    def before(instant: str) -> str:
        return f"({instant} - {modulo(f'({instant} - {window.offset})', str(window.advance))})"

    if window.tumbles:
        return before("_pane")
    first = f"{before(f'(_pane - {window.size})')} + {window.advance}"
    return f"UNNEST(RANGE({first}, {before('_pane')} + 1, {window.advance}))"


def _grouped(by: Sequence[str], lowered: Lowered, items: Sequence[str], merged: Mapping[str, str]) -> str:
    """Partial results of the same group made one, and one row for each group."""
    where = f" WHERE _set IN ({', '.join(map(str, [0, *lowered.used]))})" if lowered.sets else ""
    groups = [*map(quoted, by), *(["_set", *items] if lowered.sets else [])]
    made = ", ".join([*groups, *(f"{sql} AS {name}" for name, sql in merged.items())])
    sql = f"SELECT {made} FROM {COUNTED}{where} GROUP BY {', '.join(groups)}"
    if not (lowered.sets or lowered.gathered):
        return sql
    if not lowered.sets:
        sql = f"SELECT *, 0 AS _set FROM ({sql})"
    plain = [f"ANY_VALUE({m.name}) FILTER (WHERE _set = 0) AS {m.name}" for m in lowered.measures if m.set == 0]
    gathered = [f"{_gathered(sql)} AS {name}" for name, sql in lowered.gathered]
    own = ", ".join(map(quoted, by))
    return f"SELECT {', '.join([own, *plain, *gathered])} FROM ({sql}) GROUP BY {own}"


def _gathered(sql: str) -> str:
    """What the items of a group come to: how many there are, or the blocks of an exact sum."""
    if _COUNT.fullmatch(sql):
        return sql
    blocks = _BLOCKS.fullmatch(sql)
    if blocks is None:
        raise NotProven(sql.split("(")[0].lower())
    fields = ", ".join(f"'{name}': {column}" for name, column in _FIELD.findall(blocks[1]))
    return f"LIST({{{fields}}}) FILTER (WHERE {blocks[2]})"


def _finals(
    box: Consolidate, lowered: Lowered, kinds: Mapping[str, Kind]
) -> tuple[tuple[Finish | FinishLong, ...], dict[str, Typed]]:
    """The results of the calls, over groups in which exact sums are columns."""
    finishes: dict[str, Finish | FinishLong] = {}

    def column(found: re.Match[str]) -> str:
        made = Finish(f"_s{len(finishes)}", found[2], found[3], int(found[4] or 0))
        return finishes.setdefault(found[0], made).name

    def long(found: re.Match[str]) -> str:
        made = FinishLong(f"_s{len(finishes)}", found[1], found[2], int(found[3]))
        return finishes.setdefault(found[0], made).name

    texts = {name: _LONG.sub(long, _EXACT.sub(column, lowered.finals[call])) for name, call in box.calls}
    counts = {name: BIGINT for name, sql in lowered.gathered if _COUNT.fullmatch(sql)}
    made = {f.name: Kind("decimal", 38, f.scale) if isinstance(f, FinishLong) else DOUBLE for f in finishes.values()}
    over = over_rows({**kinds, **counts, **made})
    return tuple(finishes.values()), {name: over.translate(text) for name, text in texts.items()}


def _results(
    box: Consolidate, keys: Mapping[str, Kind], finals: Mapping[str, Typed], ids: Iterable[str], fails: bool
) -> Rows:
    """The rows of the aggregate itself, with their identity and event time."""
    window = box.window
    made = [f"{'CAST(0 AS BIGINT)' if window is None else '_close'} AS {WINDOW}"]
    made += [f"{quoted(key)} AS {name}" for key, name in zip(keys, [n for n in ids if n != WINDOW], strict=True)]
    made.append(f"{'CAST(NULL AS BIGINT)' if window is None else '_close - 1'} AS {INSTANT}")
    kinds: dict[str, Kind] = {}
    if window is not None:
        made += [f"MAKE_TIMESTAMP({end} - {window.offset}) AS {end}" for end in ("_open", "_close")]
        kinds |= {"_open": TIMESTAMP, "_close": TIMESTAMP}
    kinds |= {**keys, **{name: known(final.kind, name) for name, final in finals.items()}}
    made += [*map(quoted, keys), *(f"{final.sql} AS {quoted(name)}" for name, final in finals.items())]
    alone = window is None and not keys
    where = "" if alone else f" WHERE {ROWS} > 0"
    sql = f"SELECT {VERSION}, {', '.join(made)} FROM {GROUPS}{where}"
    return Rows(sql, kinds, tuple(kinds), "_q", (VERSION, *ids, INSTANT), fails)
