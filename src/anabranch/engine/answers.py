"""The answer of a diagram at one or more moments, from the partial results that are kept.

A *version* is a moment: the buckets that count, and the progress that the base streams had. An answer is
computed for several versions at once, with the version as one more column to group by: what was said
before a bucket and what is to be said after it are two versions of the same plan, and the difference
between them is what the bucket emits. Only windows that are closed in a version are part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.progress import progress_into
from anabranch.engine.aggregates import Lowered
from anabranch.engine.groups import Recipe, finished, merged, partial, prepared, windowed
from anabranch.engine.guard import FAILED, NO_GUARD, Guard
from anabranch.engine.relation import Relation, listed, nulls
from anabranch.engine.resets import counting
from anabranch.engine.rows import lower_linear
from anabranch.model.window import Window

_FOREVER = 1 << 62


@dataclass(frozen=True)
class Version:
    """A moment: everything up to and with a bucket, and the progress of the base streams."""

    bucket: int
    progress: Mapping[str, int | None]
    open: bool = False  # whether windows that are not closed count as well


NOTHING_SAID = Version(-1, {})


@dataclass(frozen=True)
class Kept:
    """Partial results that are to be read, and how they were made."""

    rows: Relation  # _bucket, _pane in microseconds, keys, measures
    lowered: Lowered
    fresh: Relation | None = None  # those that came since the first version: only their groups can have changed
    together: bool = False  # whether what is left of the rows is best handled in one task
    resets: bool = False  # whether some of them may say that earlier ones count no more


class Answers:
    """Lowers diagrams whose rows have one of several versions."""

    def __init__(
        self,
        versions: Sequence[Version],
        kept: Callable[[Partials], Kept],
        recipe: Callable[[Aggregate, Relation], Recipe],
        guard: Guard = NO_GUARD,
    ) -> None:
        self.versions = tuple(versions)
        self.kept = kept
        self.recipe = recipe
        self.guard = guard

    def lower(self, box: Box) -> Relation:
        """The rows of a box in all versions: `_version`, `_event_time`, `_id` of the group, its columns."""
        match box:
            case Consolidate():
                return self._consolidate(box)
            case Aggregate():
                return self._gathered(box)
        return lower_linear(box, self.lower, self.guard)

    def _consolidate(self, box: Consolidate) -> Relation:
        kept = self.kept(box.input)
        lowered = kept.lowered.narrowed([call for _, call in box.calls])
        keys = [name for name, _ in box.keys]
        measures = [c for c in kept.rows.carried if c.startswith(("_m", "_i", "_set")) or c == "_n"]
        source, also = kept.rows, ["_bucket"]
        if kept.resets:  # of the partials' own groups, before they are rolled up
            source, also = self._versioned(source, ["_bucket"]), ["_version"]
            source = counting(source, ["_version", "_pane", *(key.name for key in box.input.keys)])
        renamed = [f"{inner} AS {name}" for name, inner in box.keys]
        sql = f"SELECT {', '.join([*also, '_pane', *renamed, *measures])} FROM {source.source}"
        rows = Relation(sql, (*also, "_pane", *keys, *measures))
        ends: list[str] = []
        if box.window is not None:
            rows, ends = windowed(rows, box.window, "_pane"), ["_open", "_close"]
        if kept.fresh is not None:
            rows = self._changed(rows, kept.fresh, box, kept.together)
        rows = rows if kept.resets else self._versioned(rows)
        if box.window is not None:
            rows = self._closed(rows, box)
        by = ["_version", *ends, *keys]
        alone = not ends and not keys
        if alone:
            rows = self._with_nothing(rows)
        below = box.input
        meant = {key.name: str(key.expression) for key in below.keys} | {call.name: str(call) for call in below.calls}
        said = {name: meant[inner] for name, inner in (*box.keys, *box.calls)}
        groups = finished(merged(rows, lowered, by), lowered, by, box.calls, self.guard, said, empty=alone)
        return self._identified(groups, box.window, keys, said)

    def _changed(self, rows: Relation, fresh: Relation, box: Consolidate, together: bool) -> Relation:
        """Only groups that can differ between the versions: of windows that close, or with new rows."""
        keys = [name for name, _ in box.keys]
        renamed = ", ".join(["_pane", *(f"{inner} AS {name}" for name, inner in box.keys)])
        new = Relation(f"SELECT {renamed} FROM {fresh.source}", ("_pane", *keys))
        matches = [f"r.{key} <=> f.{key}" for key in keys]
        closing = "FALSE"
        chosen = keys
        if box.window is not None:
            was = progress_into(box, self.versions[0].progress)
            if was is None:
                return rows
            new = windowed(new, box.window, "_pane")
            matches.append("r._open = f._open")
            closing, chosen = f"r._close > {was}L", ["_open", *keys]
        if not chosen:
            return rows
        groups = f"SELECT DISTINCT {listed(chosen)}, TRUE AS _hit FROM {new.source}"
        columns = ", ".join(f"r.{name}" for name in rows.carried)
        hints = "BROADCAST(f), REPARTITION(1)" if together else "BROADCAST(f)"
        sql = (
            f"SELECT /*+ {hints} */ {columns} FROM ({rows.sql}) AS r LEFT JOIN ({groups}) AS f "
            f"ON {' AND '.join(matches)} WHERE {closing} OR f._hit"
        )
        return replace(rows, sql=sql)

    def _gathered(self, box: Aggregate) -> Relation:
        """An aggregate over finished results: its input's rows are small, and computed anew."""
        below = self.lower(box.input)
        made_of = self.recipe(box, below)
        sql = f"SELECT {listed(below.names)}, 1 AS _weight, UNIX_MICROS(_event_time) AS _instant FROM {below.source}"
        rows = replace(below, sql=sql, carried=(*below.carried, "_weight", "_instant"))
        ends: list[str] = []
        if box.window is not None:
            rows, ends = self._closed(windowed(rows, box.window, "_instant"), box), ["_open", "_close"]
        keys = [key.name for key in box.keys]
        made = prepared(rows, box.keys, box.calls, made_of.ties, self.guard, ends)
        by = ["_version", *ends, *keys]
        groups = partial(made, made_of.lowered, ["_version", *ends], keys)
        alone = not ends and not keys
        if alone:
            groups = merged(self._with_nothing(groups), made_of.lowered, by)
        results = [(call.name, call.name) for call in box.calls]
        said = {key.name: str(key.expression) for key in box.keys} | {call.name: str(call) for call in box.calls}
        found = finished(groups, made_of.lowered, by, results, self.guard, said, empty=alone)
        return self._identified(found, box.window, keys, said)

    def _versioned(self, rows: Relation, also: Sequence[str] = ()) -> Relation:
        """Each partial result once for every version in which it counts."""
        kept = [name for name in rows.carried if name != "_bucket" or name in also]
        if len(self.versions) == 1:
            version = "0"
        else:
            bounds = ", ".join(f"{version.bucket}L" for version in self.versions)
            first = f"SIZE(FILTER(ARRAY({bounds}), b -> b < _bucket))"
            version = f"EXPLODE(SEQUENCE({first}, {len(self.versions) - 1}))"
        sql = (
            f"SELECT {listed(kept)}, {version} AS _version FROM {rows.source} "
            f"WHERE _bucket <= {self.versions[-1].bucket}L"
        )
        return Relation(sql, (*kept, "_version"))

    def _closed(self, rows: Relation, box: Box) -> Relation:
        """Only windows that are closed in a row's version."""
        reached = [_FOREVER if v.open else progress_into(box, v.progress) for v in self.versions]
        limits = ", ".join("NULL" if r is None else f"{r}L" for r in reached)
        limit = f"ELEMENT_AT(ARRAY({limits}, CAST(NULL AS BIGINT)), _version + 1)"
        return replace(rows, sql=f"SELECT * FROM {rows.source} WHERE _close <= {limit}")

    def _with_nothing(self, rows: Relation) -> Relation:
        """A running aggregate without keys has an answer before there is a row: it counts none."""
        said = ", ".join(f"({at})" for at, version in enumerate(self.versions) if version.bucket >= 0)
        if not said:
            return rows
        zero = {"_version": "v", "_n": "0L", "_set": "0"}
        nothing = ", ".join(f"{zero.get(name, 'NULL')} AS {name}" for name in rows.carried)
        sql = f"SELECT {listed(rows.carried)} FROM {rows.source} UNION ALL SELECT {nothing} FROM VALUES {said} AS t(v)"
        return replace(rows, sql=sql)

    def _identified(
        self, rows: Relation, window: Window | None, keys: Sequence[str], said: Mapping[str, str]
    ) -> Relation:
        """Give the rows of an aggregate their identity, their event time, and windows that are instants.

        `said` is what people call its columns, for rows that must be quoted.
        """
        close = "0L" if window is None else "_close"
        fields = "".join(f", '{key}', {key}" for key in keys) + f", 'n', {nulls(keys)}"
        extra = [f"NAMED_STRUCT('w', {close}{fields}) AS _id"]
        if window is None:
            extra.append("CAST(NULL AS TIMESTAMP) AS _event_time")
        else:
            extra.append("TIMESTAMP_MICROS(_close - 1) AS _event_time")
            extra += [f"TIMESTAMP_MICROS({end} - {window.offset}L) AS {end}" for end in ("_open", "_close")]
        kept = [name for name in rows.carried if name not in ("_open", "_close")]
        ends = () if window is None else ("_open", "_close")
        sql = f"SELECT {', '.join([*kept, *extra])} FROM {rows.source}"
        carried = [name for name in ("_version", FAILED) if name in kept]
        shown = tuple(name for name in kept if name not in carried)
        made = Relation(sql, (*carried, "_id", "_event_time", *ends, *shown))
        return self.guard.begin(made, {"_close": "cq_close(*)", **said})
