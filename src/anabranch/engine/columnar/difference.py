"""What a bucket says, in DuckDB's words: `engine.changes`, over results that a task has at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.diagram.columnar.kinds import Kind, quoted
from anabranch.engine.changes import Emission
from anabranch.engine.columnar.answer import VERSION, WINDOW
from anabranch.engine.columnar.linear import INSTANT
from anabranch.model.run import ChangeType

RESULTS = "_results"  # the results of all versions


def first_said(ids: Mapping[str, Kind], columns: Mapping[str, Kind], bucket: int) -> str:
    """Every result is new: nothing was said before."""
    chosen = [*ids, *map(quoted, columns), f"MAKE_TIMESTAMP({INSTANT}) AS _event_time"]
    order = ", ".join([f"{INSTANT} NULLS FIRST", *(f"{name} NULLS FIRST" for name in ids)])
    sql = f"SELECT {', '.join(chosen)}, CAST({bucket} AS BIGINT) AS _bucket, '{ChangeType.INSERT}' AS _change_type"
    return f"{sql} FROM {RESULTS} ORDER BY {order}"


def difference(
    ids: Mapping[str, Kind],
    columns: Mapping[str, Kind],
    emissions: Sequence[Emission],
    closes: Sequence[int | None] | None,
) -> str:
    """The changes of all emissions: what is right now beside what was last said of it."""
    listed = ", ".join(f"({e.bucket}, {e.version}, {e.said}, {e.release})" for e in emissions)
    said = f"(VALUES {listed}) AS e(_to, _at, _said, _release)"
    closed = f"(SELECT *, {_first_closed(closes)} AS _closed FROM {RESULTS}) AS r"
    names = [*ids, INSTANT, *columns]
    mine = ", ".join(f"r.{quoted(name)}" for name in names)
    after = (
        f"SELECT CAST(e._to AS BIGINT) AS _to, {mine} FROM {closed} JOIN {said} "
        f"ON r.{VERSION} = e._at WHERE e._release OR r._closed = e._at"
    )
    before = (
        f"SELECT CAST(e._to AS BIGINT) AS _to, {mine} FROM {closed} JOIN {said} "
        f"ON r.{VERSION} = GREATEST(r._closed, e._said) WHERE e._release AND r._closed < e._at"
    )
    same_group = " AND ".join(["a._to = b._to", *(f"a.{i} IS NOT DISTINCT FROM b.{i}" for i in ids)])
    same = " AND ".join(f"a.{quoted(n)} IS NOT DISTINCT FROM b.{quoted(n)}" for n in [INSTANT, *columns])
    both = "a._to IS NOT NULL AND b._to IS NOT NULL"
    sides = ", ".join(f"{side}.{quoted(n)} AS {quoted(side + n)}" for side in "ab" for n in ["_to", *names])
    pairs = (
        f"SELECT {sides} FROM ({after}) AS a FULL JOIN ({before}) AS b ON {same_group} WHERE NOT ({both} AND {same})"
    )
    halves = [
        _half("b", "a", 0, ChangeType.DELETE, ChangeType.UPDATE_PREIMAGE, ids, columns),
        _half("a", "b", 1, ChangeType.INSERT, ChangeType.UPDATE_POSTIMAGE, ids, columns),
    ]
    order = ", ".join([f"{name} NULLS FIRST" for name in ("_bucket", "_place", *ids, "_rank")])
    return f"WITH _pairs AS MATERIALIZED ({pairs}) {' UNION ALL '.join(halves)} ORDER BY {order}"


def _half(
    side: str, other: str, rank: int, alone: ChangeType, paired: ChangeType,
    ids: Mapping[str, Kind], columns: Mapping[str, Kind],
) -> str:  # fmt: skip
    """One image of each change. The two images of an update stand together, at the time of the second."""
    chosen = [f"{quoted(side + name)} AS {quoted(name)}" for name in (*ids, *columns)]
    chosen.append(f"MAKE_TIMESTAMP({quoted(side + INSTANT)}) AS _event_time")
    chosen.append(f"{quoted(side + '_to')} AS _bucket")
    chosen.append(f"CASE WHEN {quoted(other + '_to')} IS NULL THEN '{alone}' ELSE '{paired}' END AS _change_type")
    chosen.append(f"COALESCE({quoted('a' + INSTANT)}, {quoted('b' + INSTANT)}) AS _place")
    chosen.append(f"{rank} AS _rank")
    return f"SELECT {', '.join(chosen)} FROM _pairs WHERE {quoted(side + '_to')} IS NOT NULL"


def _first_closed(closes: Sequence[int | None] | None) -> str:
    """The first version in which a result's window is closed."""
    if closes is None:
        return "0"
    never = sum(1 for close in closes if close is None)
    late = [f"CASE WHEN {close} < {WINDOW} THEN 1 ELSE 0 END" for close in closes if close is not None]
    return " + ".join([str(never), *late])
