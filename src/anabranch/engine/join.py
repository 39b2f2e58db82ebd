"""Join on Spark: new rows of either side against the rows of the other.

Pairs are bilinear: the pair of a row of bucket a and one of bucket b comes with the later of the two, and its
weight is the product of theirs. So what a step adds is the new left rows with all right ones, and the old
left rows with the new right ones. A band limits which segments of the other side are opened.

Left rows without a partner are recomputed where they may have changed: those that are new, those that pair
with new right rows, and those whose band has just passed. Before and after each bucket a row counts as
often as it is there, if it has no partner and its band has passed; the difference is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.diagram.boxes.join import Join
from anabranch.diagram.reach import BEGINNING, END, EVERYTHING, Interval, join
from anabranch.engine.guard import FAILED, NO_GUARD, QUOTED, Guard
from anabranch.engine.moment import Moment
from anabranch.engine.netting import there
from anabranch.engine.relation import Relation, listed, quoted, told_apart

_INNER, _BESIDE = "JOIN", "LEFT JOIN"


@dataclass(frozen=True)
class Sides:
    """The inputs of a Join in a step: what is new, and what there is at the event times that matter."""

    new: tuple[Relation, Relation]
    every: tuple[Relation, Relation]
    came: int  # up to this bucket rows are old
    few: bool = False  # so few rows that each of these is in one partition


def around(intervals: Sequence[Interval], within: int | None) -> tuple[Interval, ...]:
    """The event times at which partners can be."""
    if within is None:
        return EVERYTHING
    return join((max(low - within, BEGINNING), min(high + within, END)) for low, high in intervals)


def sources(box: Join, left: Relation, right: Relation, kind: str = "CROSS JOIN") -> str:
    """Both sides under their names, as they stand after FROM."""
    left = replace(left, alias=box.sides[0].name if len(box.sides) == 2 else "_left")
    return f"{left.source} {kind} {replace(right, alias=box.sides[-1].name).source}"


def paired(
    box: Join,
    left: Relation,
    right: Relation,
    guard: Guard = NO_GUARD,
    *,
    kind: str = _INNER,
    hashed: int | None = None,
) -> Relation:
    """The pairs of two relations: the columns of a Join, and what a row carries; one side may be hashed as it comes."""
    l, r = (quoted(name) for name in aliases(box))  # noqa: E741
    carried = {
        "_event_time": f"GREATEST({l}._event_time, {r}._event_time)",
        "_weight": f"{l}._weight * COALESCE({r}._weight, 1)",
        "_bucket": f"GREATEST({l}._bucket, {r}._bucket)",
        "_of": f"CASE WHEN {l}._of IS NOT NULL AND {r}._of IS NOT NULL THEN XXHASH64({l}._of, {r}._of) END",
    }
    condition = "FALSE" if kind == _BESIDE else matches(box, guard)
    if guard.aside:
        carried[FAILED] = guard.first_failing([box.on.text] if box.on else [])
        carried[QUOTED] = f"CONCAT_WS(' and ', {l}.{QUOTED}, {r}.{QUOTED})"
    if len(box.sides) == 2:
        columns = [_struct(side.name, side.columns) for side in box.sides]
    else:
        columns = [*(quoted(side.name) for side in box.sides[:-1]), _struct(box.sides[-1].name, box.sides[-1].columns)]
    columns += [f"{quoted(side)}.{quoted(column)}" for side, column in box.alone]
    made = [f"{sql} AS {name}" for name, sql in carried.items()]
    hint = "" if hashed is None else f"/*+ SHUFFLE_HASH({(l, r)[hashed]}) */ "
    sql = f"SELECT {hint}{', '.join([*made, *columns])} FROM {sources(box, left, right, kind)} ON {condition}"
    return Relation(sql, tuple(carried), box.columns)


def aliases(box: Join) -> tuple[str, str]:
    """The names of the two sides, as expressions of the user's know them."""
    return (box.sides[0].name if len(box.sides) == 2 else "_left"), box.sides[-1].name


def _struct(name: str, columns: Sequence[str]) -> str:
    return f"STRUCT({', '.join(f'{quoted(name)}.{quoted(c)}' for c in columns)}) AS {quoted(name)}"


def matches(box: Join, guard: Guard = NO_GUARD) -> str:
    """The condition on a pair: the user's, and the band."""
    l, r = (quoted(name) for name in aliases(box))  # noqa: E741
    terms = [f"({guard.keeps_pair(box.on.text)})"] if box.on else []
    if box.within is not None:
        apart = f"UNIX_MICROS({l}._event_time) - UNIX_MICROS({r}._event_time)"
        terms.append(f"{apart} BETWEEN -{box.within}L AND {box.within}L")
    if box.between is not None:
        other = r if box.between.of_left else l
        terms.append(f"{other}._event_time BETWEEN ({box.between.low}) AND ({box.between.high})")
    return " AND ".join(terms) or "TRUE"


def added(box: Join, sides: Sides, guard: Guard = NO_GUARD) -> Relation:
    """The pairs that a step adds, or takes away."""
    old = replace(sides.every[0], sql=f"SELECT * FROM {sides.every[0].source} WHERE _bucket <= {sides.came}L")
    # What is in one partition on both sides needs no exchange, and is one job of Spark's from here to the end.
    hashed = (0, 1) if sides.few else (None, None)
    first = paired(box, sides.new[0], sides.every[1], guard, hashed=hashed[0])
    second = paired(box, old, sides.new[1], guard, hashed=hashed[1])
    sql = f"{first.sql} UNION ALL {second.sql}"
    return replace(first, sql=f"SELECT /*+ COALESCE(1) */ * FROM ({sql})" if sides.few else sql)


def without_partner(box: Join, sides: Sides, moments: Sequence[Moment], guard: Guard = NO_GUARD) -> Relation:
    """How often left rows without a partner are said, as differences from moment to moment."""
    alias = aliases(box)[0]
    left, right = replace(sides.every[0], alias=alias), sides.every[1]
    content = ["_event_time", "_of", *left.columns]
    counts = _partners(box, _touched(box, left, sides, moments, content, guard), right, moments, content, guard)
    said = [f"CASE WHEN _p{n} <= 0 AND {_passed(box, m)} THEN _w{n} ELSE 0 END" for n, m in enumerate(moments)]
    steps = ", ".join(
        f"NAMED_STRUCT('_bucket', {m.bucket}L, '_weight', ({said[n + 1]}) - ({said[n]}))"
        for n, m in enumerate(moments[1:])
    )
    listing = f"INLINE(FILTER(ARRAY({steps}), s -> s._weight <> 0))"
    alone = f"SELECT {listed(content)}, {listing} FROM ({counts}) AS {quoted(alias)}"
    rows = Relation(alone, ("_event_time", "_of", "_bucket", "_weight"), left.columns)
    return paired(box, rows, right, kind=_BESIDE)


def _touched(
    box: Join, left: Relation, sides: Sides, moments: Sequence[Moment], content: Sequence[str], guard: Guard
) -> Relation:
    """The left rows that may be said otherwise than before, and how often each is there at every moment."""
    hashed = f"XXHASH64({told_apart(content)})"
    known = replace(left, sql=f"SELECT *, {hashed} AS _hash FROM {left.source}", carried=(*left.carried, "_hash"))
    new = f"SELECT {hashed} AS _hash FROM {sides.new[0].source}"
    pairs = f"{sources(box, known, sides.new[1], _INNER)} ON {matches(box, guard)}"
    chosen = f"_hash IN (SELECT _hash FROM ({new} UNION ALL SELECT {quoted(left.alias)}._hash FROM {pairs}))"
    if passing := _passing(box, moments):
        chosen = f"({chosen} OR {passing})"
    weights = ", ".join(
        f"{there(f'SUM(_weight) FILTER (WHERE _bucket <= {m.bucket}L)')} AS _w{n}" for n, m in enumerate(moments)
    )
    by = listed(content)
    return Relation(f"SELECT {by}, {weights} FROM {known.source} WHERE {chosen} GROUP BY {by}", columns=left.columns)


def _partners(
    box: Join, there: Relation, right: Relation, moments: Sequence[Moment], content: Sequence[str], guard: Guard
) -> str:
    """How many partners each left row has at every moment."""
    l, r = (quoted(name) for name in aliases(box))  # noqa: E741
    counted = ", ".join(
        f"COALESCE(SUM({r}._weight) FILTER (WHERE {r}._bucket <= {m.bucket}L), 0) AS _p{n}"
        for n, m in enumerate(moments)
    )
    kept = ", ".join([*(f"{l}.{quoted(c)}" for c in content), *(f"{l}._w{n}" for n in range(len(moments)))])
    both = f"{sources(box, there, right, _BESIDE)} ON {matches(box, guard)}"
    return f"SELECT {kept}, {counted} FROM {both} GROUP BY {kept}"


def _passed(box: Join, moment: Moment) -> str:
    """Whether the band of a left row has passed."""
    if not box.banded:
        return "TRUE"
    by_left = box.between is not None and box.between.of_left
    if moment.progress is None:
        return f"{_end_of(box)} IS NULL" if by_left else "FALSE"
    # A row whose own bound is missing can have no partner, now or ever.
    return f"COALESCE({_end_of(box)} < {moment.progress}L, {by_left})"


def _passing(box: Join, moments: Sequence[Moment]) -> str | None:
    """The left rows whose band passes between the first and the last moment."""
    if not box.banded or moments[-1].progress is None:
        return None
    first = moments[0].progress
    after = "" if first is None else f" AND {_end_of(box)} >= {first}L"
    return f"({_end_of(box)} < {moments[-1].progress}L{after})"


def _end_of(box: Join) -> str:
    if box.within is not None:
        return f"UNIX_MICROS(_event_time) + {box.within}L"
    assert box.between is not None
    return f"UNIX_MICROS({box.between.high})" if box.between.of_left else "UNIX_MICROS(_event_time)"
