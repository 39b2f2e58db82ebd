"""Deletions under aggregates whose partial results merge but do not subtract: min, max, first, last, sketches.

Where a row goes, the partial results of its pane and group are made again from the rows that are left, and a
*reset* beside them says that whatever was kept before its bucket counts no more. Everything else, also in the
same step, is added as always. A pane of which no row is left has only its reset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.engine.aggregates import ROWS
from anabranch.engine.relation import Relation, listed, quoted

RESET = "_reset"
_NEEDED = ("_bucket", "_pane", "_event_time", "_ties")


def remade(new: Relation, every: Relation, keys: Sequence[str]) -> tuple[Relation, Relation]:
    """The rows to make partial results of, and where these are resets, as `_bucket`, `_pane` and keys.

    `new` are the rows that came, `every` all rows of the same panes with theirs; both with keys and arguments.
    """
    place = ["_pane", *keys]
    gone = f"SELECT DISTINCT {listed(['_bucket', *place])} FROM {new.source} WHERE _weight < 0"
    same = " AND ".join(f"r.{quoted(name)} <=> g.{quoted(name)}" for name in place)
    names = [name for name in (*_NEEDED, *new.columns) if name in new.names]
    rest = (
        f"SELECT {listed([*names, '_weight'])} FROM ({new.sql}) AS r "
        f"LEFT ANTI JOIN ({gone}) AS g ON r._bucket = g._bucket AND {same}"
    )
    again = ", ".join("g._bucket" if name == "_bucket" else f"r.{quoted(name)}" for name in names)
    left = (
        f"SELECT {again}, SUM(r._weight) AS _weight FROM ({every.sql}) AS r "
        f"JOIN ({gone}) AS g ON r._bucket <= g._bucket AND {same} GROUP BY {again} HAVING SUM(r._weight) > 0"
    )
    rows = replace(
        new, sql=f"{rest} UNION ALL {left}", carried=(*(n for n in names if n not in new.columns), "_weight")
    )
    return rows, Relation(gone, ("_bucket", *place))


def with_resets(partials: Relation, places: Relation, names: Sequence[str]) -> Relation:
    """Partial results and the resets among them, with columns in the order of `names`."""
    nothing = {RESET: "TRUE", ROWS: "0L", "_set": "0"} | {name: quoted(name) for name in places.carried}
    reset = ", ".join(f"{nothing.get(name, 'NULL')} AS {quoted(name)}" for name in names)
    return Relation(f"{unreset(partials, names).sql} UNION ALL SELECT {reset} FROM {places.source}", tuple(names))


def unreset(partials: Relation, names: Sequence[str]) -> Relation:
    """Partial results that reset nothing."""
    chosen = ", ".join("FALSE AS _reset" if name == RESET else quoted(name) for name in names)
    return Relation(f"SELECT {chosen} FROM {partials.source}", tuple(names))


def counting(rows: Relation, by: Sequence[str]) -> Relation:
    """Only the partial results that count: not those of a place that was reset in a later bucket."""
    since = f"MAX(CASE WHEN {RESET} THEN _bucket END) OVER (PARTITION BY {listed(by)})"
    inner = f"SELECT *, {since} AS _since FROM {rows.source}"
    return replace(rows, sql=f"SELECT {listed(rows.names)} FROM ({inner}) WHERE _since IS NULL OR _bucket >= _since")
