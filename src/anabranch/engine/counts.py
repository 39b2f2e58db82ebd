"""Windows of rows as SQL: rows are numbered, and numbers make windows.

A group is numbered from an anchor on: the last window that was said and that lies wholly before everything that
changed. It says which window comes next, from which instant rows must be read, and how many rows of the
group are before that instant. A group without an anchor is numbered from its first row.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.diagram.boxes.counts import PLACE_COLUMNS, Counts, RowWindow
from anabranch.engine.groups import Recipe, finished, partial, prepared
from anabranch.engine.guard import FAILED, NO_GUARD, Guard
from anabranch.engine.moment import Moment
from anabranch.engine.netting import present
from anabranch.engine.relation import Relation, listed, nulls, quoted

_PLAIN = ("open", "number", "before")  # of a window that was said, under the names that it is kept by


def arguments(box: Counts, rows: Relation, recipe: Recipe, guard: Guard = NO_GUARD) -> Relation:
    """Rows with their keys and the arguments of all calls, and what orders those of one instant."""
    return prepared(rows, box.keys, box.calls, recipe.ties, guard, tied=True)


def touched(box: Counts, parts: Sequence[Relation]) -> Relation:
    """The groups that some rows are of, and in each the first instant of those rows."""
    keys = [key.name for key in box.keys]
    rows = " UNION ALL ".join(f"SELECT {listed([*keys, '_event_time'])} FROM {part.source}" for part in parts)
    grouped = f"GROUP BY {listed(keys)}" if keys else "HAVING COUNT(*) > 0"
    chosen = ", ".join([*map(quoted, keys), "MIN(_event_time) AS _since"])
    return Relation(f"SELECT {chosen} FROM ({rows}) {grouped}", (*keys, "_since"))


def anchored(box: Counts, groups: Relation, said: Relation) -> Relation:
    """Groups with their anchors, found among the windows that were said."""
    keys = [key.name for key in box.keys]
    plain = [key.strip("_") for key in keys]
    there = present(said.source, [*plain, *_PLAIN, "_event_time"])
    matches = [*(f"g.{key} <=> w.{name}" for key, name in zip(keys, plain, strict=True)), "w._event_time < g._since"]
    of_group = ", ".join([*(f"g.{key}" for key in keys), "g._since"])
    fields = ", ".join(f"'{name}', w.{name}" for name in _PLAIN)
    last = f"MAX_BY(NAMED_STRUCT({fields}), w.number)"
    inner = (
        f"SELECT {of_group}, {last} AS _last FROM ({groups.sql}) AS g LEFT JOIN ({there}) AS w "
        f"ON {' AND '.join(matches)} GROUP BY {of_group}"
    )
    first = "_last.open AS _from, _last.number + 1L AS _next, _last.before AS _base"
    chosen = ", ".join([*map(quoted, keys), first])
    return Relation(f"SELECT {chosen} FROM ({inner})", (*keys, "_from", "_next", "_base"))


def of_groups(box: Counts, rows: Relation, groups: Relation) -> Relation:
    """The rows of anchored groups, from their anchors on."""
    keys = [key.name for key in box.keys]
    matches = " AND ".join(f"r.{key} <=> g.{key}" for key in keys) or "TRUE"
    columns = ", ".join([*(f"r.{quoted(name)}" for name in rows.names), "g._next", "g._base"])
    sql = (
        f"SELECT /*+ BROADCAST(g) */ {columns} FROM ({rows.sql}) AS r JOIN ({groups.sql}) AS g ON {matches} "
        "WHERE g._from IS NULL OR r._event_time >= g._from"
    )
    return Relation(sql, (*rows.names, "_next", "_base"))


def at_moments(rows: Relation, moments: Sequence[Moment]) -> Relation:
    """Each row once for every moment at which it counts; the moment's place is `_version`."""
    bounds = ", ".join(f"{moment.bucket}L" for moment in moments)
    first = f"SIZE(FILTER(ARRAY({bounds}), b -> b < _bucket))"
    sql = (
        f"SELECT *, EXPLODE(SEQUENCE({first}, {len(moments) - 1})) AS _version FROM {rows.source} "
        f"WHERE _bucket <= {moments[-1].bucket}L"
    )
    return Relation(sql, (*rows.names, "_version"))


def windows(
    box: Counts, rows: Relation, recipe: Recipe, progress: Sequence[int | None], guard: Guard = NO_GUARD
) -> Relation:
    """The results of the windows that are full, and that progress has reached, in every version."""
    keys = [key.name for key in box.keys]
    values = [name for name in rows.names if name.startswith("_x")]
    content = ["_version", "_event_time", "_ties", *keys, *values, "_next", "_base"]
    each = f"SELECT {listed(content)}, EXPLODE(SEQUENCE(1L, _net)) AS _copy FROM ({present(rows.source, content)})"
    group = f"PARTITION BY {listed(['_version', *keys])}"
    numbered = (
        f"SELECT *, ROW_NUMBER() OVER ({group} ORDER BY _ties) - 1L + COALESCE(_base, 0L) AS _r, "
        f"RANK() OVER ({group} ORDER BY _event_time) - 1L + COALESCE(_base, 0L) AS _r0 FROM ({each})"
    )
    inside = f"SELECT *, EXPLODE({_numbers(box.window)}) AS _number FROM ({numbered})"
    window = f"OVER (PARTITION BY {listed(['_version', *keys, '_number'])})"
    whole = (
        f"SELECT *, 1 AS _weight, COUNT(*) {window} AS _size, MIN(_event_time) {window} AS _open, "
        f"MAX(_event_time) {window} AS _close, MIN(_r0) {window} AS _before FROM ({inside})"
    )
    limits = ", ".join("NULL" if reached is None else f"{reached}L" for reached in progress)
    reached = f"ELEMENT_AT(ARRAY({limits}, CAST(NULL AS BIGINT)), _version + 1)"
    closed = f"SELECT * FROM ({whole}) WHERE _size = {box.window.size} AND UNIX_MICROS(_close) <= {reached}"
    by = ["_version", *PLACE_COLUMNS]
    made = partial(Relation(closed, (*keys, *values)), recipe.lowered, by, keys)
    results = [(call.name, call.name) for call in box.calls]
    return finished(made, recipe.lowered, [*by, *keys], results, guard, {call.name: str(call) for call in box.calls})


def _numbers(window: RowWindow) -> str:
    """The windows that a row is in, by its number in the group; not those before the anchor's next one."""
    size, advance = window.size, window.advance
    reaching = f"CASE WHEN _r < {size} THEN 0L ELSE (_r - {size}L + {advance}L) DIV {advance}L END"
    first = f"GREATEST(COALESCE(_next, 0L), {reaching})"
    last = f"(_r DIV {advance}L)"
    return f"CASE WHEN {first} <= {last} THEN SEQUENCE({first}, {last}) ELSE ARRAY() END"


def differences(box: Counts, results: Relation, moments: Sequence[Moment]) -> Relation:
    """What each moment adds to the one before it, and takes away."""
    items = []
    for n, moment in enumerate(moments):
        said = [f"NAMED_STRUCT('_bucket', {moment.bucket}L, '_weight', 1)"] if n else []
        if n + 1 < len(moments):
            said.append(f"NAMED_STRUCT('_bucket', {moments[n + 1].bucket}L, '_weight', -1)")
        items.append(f"ARRAY({', '.join(said)})")
    listing = f"INLINE(ELEMENT_AT(ARRAY({', '.join(items)}), _version + 1))"
    keys = [key.name for key in box.keys]
    of = f"XXHASH64({listed([*keys, '_number'])}, {nulls(keys)}) AS _of"
    failed = [FAILED] if FAILED in results.carried else []
    chosen = listed([*box.columns, *failed])
    sql = f"SELECT _close AS _event_time, {of}, {chosen}, {listing} FROM {results.source}"
    return Relation(sql, ("_event_time", "_of", "_bucket", "_weight", *failed), box.columns)


def untouched(box: Counts, rows: Relation, recipe: Recipe) -> Relation:
    """What comes out of such windows over rows that are none, for its types."""
    given = arguments(box, rows, recipe)
    sql = f"SELECT *, 0 AS _version, CAST(NULL AS BIGINT) AS _next, CAST(NULL AS BIGINT) AS _base FROM {given.source}"
    results = windows(box, Relation(sql, (*given.names, "_version", "_next", "_base")), recipe, [None])
    return differences(box, results, [Moment(0, None), Moment(1, None)])
