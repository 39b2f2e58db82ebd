"""Deltas that a box ignores, because rows beyond its history bound would have to be read again (BOREALIS 3.3).

The bound is logical: what is ignored depends on event times and on progress before the bucket, never on which files
are still there. That holds for a deletion from a stream without a key too, which must find the row that it
removes. Progress only rises, so a pane that is out of reach stays so. A row that a Join ignores is no
partner later either: where such rows were set aside before, they are taken off the side that is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.diagram.bounds import EVER, age_of, normalised, stretch
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.reach import Interval
from anabranch.diagram.stages import Leaf, leaves_of
from anabranch.engine.emit import Written, write_buckets
from anabranch.engine.live import Live, Terms
from anabranch.engine.netting import WEIGHT
from anabranch.engine.relation import EXACT_JSON, Leaves, Relation, listed, quoted, told_apart
from anabranch.log.segments import SegmentLayout
from anabranch.model.run import ChangeType, Role
from anabranch.model.schema import Schema
from anabranch.model.time import duration_text

# What was ignored: the row as JSON, how it changed what, and why; of a Join the side, a hash to know the row again, and
# what to make it again of where it is not kept.
IGNORED = Schema.parse(
    {"row": "STRING", "_change_type": "STRING", "_event_time": "TIMESTAMP", "_reason": "STRING", "_side": "INT",
     "_hash": "BIGINT", "_exact": "STRING", "_of": "BIGINT"}, "ignored"
)  # fmt: skip
_BUCKET = [pa.field("_bucket", pa.int64())]


def bound_of(live: Live, box: Box, terms: Terms) -> int | None:
    """The normalised bound of a box that reads rows again; None if it has none, or reads nothing again."""
    if stretch(box) is None:
        return None
    ages: dict[Box, int] = {leaf: _age(live, leaf, terms) for leaf in leaves_of(box)}
    return normalised(box, _own(live, box, terms), ages=ages).get(box)


def _own(live: Live, box: Box, terms: Terms) -> int | None:
    """What the query declares, or the base streams that it reads, whichever is less."""
    direct = [leaf for leaf in leaves_of(box) if isinstance(leaf, Source) and live.query_of(leaf, terms) is None]
    declared = [terms.history, *(live.stream(leaf.stream).spec.history for leaf in direct if not leaf.messages)]
    return min((bound for bound in declared if bound is not None), default=None)


def rows_of(live: Live, box: Box, terms: Terms) -> dict[str, int]:
    """How many of the newest rows of each stream that a box reads directly count, where that is bounded."""
    if stretch(box) is None:
        return {}
    found: dict[str, int] = {}
    for leaf in leaves_of(box):
        if isinstance(leaf, Source) and not leaf.messages and live.query_of(leaf, terms) is None:
            declared = [terms.rows, live.stream(leaf.stream).spec.history_rows]
            if some := [rows for rows in declared if rows is not None]:
                found[leaf.stream] = min(some)
    return found


def _age(live: Live, leaf: Leaf, terms: Terms) -> int:
    query = live.query_of(leaf, terms)
    if query is None:
        return EVER
    ages: dict[Box, int] = {below: _age(live, below, query.terms) for below in leaves_of(query.plan)}
    return age_of(query.plan, _own(live, query.plan, query.terms), ages=ages)


@dataclass(frozen=True)
class Oldest:
    """For buckets of a step, the event time before which a box does not read rows again."""

    box: Box
    limits: tuple[tuple[int, int], ...]  # bucket, microseconds
    why: str  # what would have to be read again

    def concerns(self, times: Iterable[Interval]) -> bool:
        """Whether rows at these event times can be ignored at all."""
        last = max(limit for _, limit in self.limits)
        return any(low - (stretch(self.box) or 0) < last for low, _ in times)

    @property
    def beyond(self) -> str:
        """Whether rows that would have to be read again for a row could lie beyond the bound."""
        cases = " ".join(f"WHEN {bucket}L THEN {limit}L" for bucket, limit in self.limits)
        return f"COALESCE({self._first_read()} < CASE _bucket {cases} END, FALSE)"

    @property
    def condition(self) -> str:
        """Whether a row that came in one of the buckets is ignored."""
        only = "_weight < 0 AND " if isinstance(self.box, Partials | Source) else ""
        return f"({only}{self.beyond})"

    def _first_read(self) -> str:
        """The earliest event time at which rows would have to be read again."""
        if not isinstance(self.box, Partials):
            return f"UNIX_MICROS(_event_time) - {stretch(self.box) or 0}L"
        if self.box.pane is None:
            return f"-{EVER}L"
        return f"UNIX_MICROS(_event_time) - PMOD(UNIX_MICROS(_event_time) - {self.box.offset}L, {self.box.pane}L)"

    def kept(self, rows: Relation) -> Relation:
        """Rows without those that are ignored."""
        return replace(rows, sql=f"SELECT * FROM {rows.source} WHERE NOT {self.condition}")

    def ignored(self, rows: Relation, side: int = 0) -> str:
        """The rows that are ignored, as they are set aside."""
        kind = f"CASE WHEN _weight < 0 THEN '{ChangeType.DELETE}' ELSE '{ChangeType.INSERT}' END"
        reason = f"{self.why} would have to be read again"
        copies = "EXPLODE(SEQUENCE(1L, CAST(ABS(_weight) AS BIGINT))) AS _copy"
        return (
            f"SELECT {json_of(rows.columns)} AS row, {kind} AS _change_type, _event_time, '{reason}' AS _reason, "
            f"{side} AS _side, {hash_of(rows)} AS _hash, {_exact(rows)} AS _exact, "
            f"{'_of' if '_of' in rows.carried else 'CAST(NULL AS BIGINT) AS _of'}, _bucket, {copies} "
            f"FROM {rows.source} WHERE {self.condition} AND _weight <> 0"
        )


def json_of(columns: Sequence[str]) -> str:
    return f"TO_JSON(STRUCT({listed(columns)}))" if columns else "'{}'"


def _exact(rows: Relation) -> str:
    return told_apart(["_event_time", *rows.columns])


def hash_of(rows: Relation) -> str:
    return f"XXHASH64({_exact(rows)})"


def limits_by_time(bound: int | None, passed: Mapping[int, int | None]) -> dict[int, int]:
    """The limits of buckets, from how far event time had passed before each."""
    return {} if bound is None else {number: at - bound for number, at in passed.items() if at is not None}


def oldest(box: Box, by_time: Mapping[int, int], by_rows: Mapping[int, int], why: str) -> Oldest | None:
    """What a box ignores in some buckets: of two limits the later one counts."""
    numbers = sorted(by_time.keys() | by_rows.keys())
    both = [(n, max(limits[n] for limits in (by_time, by_rows) if n in limits)) for n in numbers]
    return Oldest(box, tuple(both), why) if both else None


def reason(bound: int | None, rows: int | None) -> str:
    """What lies beyond a bound, in words."""
    told = [f"more than {duration_text(bound)} behind progress"] if bound is not None else []
    told += [f"older than the newest {rows} row{'s' if rows != 1 else ''}"] if rows is not None else []
    return f"rows {' or '.join(told)}"


def write_ignored(frame: DataFrame | None, layout: SegmentLayout) -> list[Written]:
    """Keep what was ignored beside the stream."""
    if frame is None:
        return []
    few = frame.select(*IGNORED.names, "_bucket").coalesce(1).sortWithinPartitions("_bucket", "_event_time", "row")
    return write_buckets(few, layout, IGNORED, extra=_BUCKET, role=Role.IGNORED, ordinals=False)


def without(rows: Relation, ignored: Relation, side: int) -> Relation:
    """All rows of a side less those that were ignored before: one that equals each is taken off."""
    weight = f"SUM({WEIGHT})"
    before = f"SELECT _hash, {weight} AS _gone FROM {ignored.source} WHERE _side = {side} GROUP BY _hash"
    one = f"ROW_NUMBER() OVER (PARTITION BY {hash_of(rows)} ORDER BY _bucket) AS _first"
    hashed = f"SELECT *, {hash_of(rows)} AS _hash, {one} FROM {rows.source}"
    names = ", ".join(
        {"_weight": "-i._gone AS _weight", "_bucket": "0L AS _bucket"}.get(name, f"r.`{name}`") for name in rows.names
    )
    off = f"SELECT {names} FROM ({hashed}) AS r JOIN ({before}) AS i ON r._hash = i._hash WHERE r._first = 1"
    return replace(rows, sql=f"SELECT {listed(rows.names)} FROM {rows.source} UNION ALL {off}")


def without_made_again(leaves: Leaves, rows: Relation, ignored: Relation, side: int) -> Relation:
    """The same where rows are computed again: those whose deletion was ignored are not among them any more."""
    kinds = leaves.frame(rows.sql).select("_event_time", *rows.columns).schema
    before = leaves.frame(f"SELECT * FROM {ignored.source} WHERE _side = {side}")
    made = before.withColumn("_made", F.from_json("_exact", kinds, EXACT_JSON))
    names = {"_weight": f"IF(_change_type = '{ChangeType.DELETE}', 1, -1)", "_bucket": "0L", "_of": "_of"}
    chosen = ", ".join(f"{names.get(name, f'_made.{quoted(name)}')} AS {quoted(name)}" for name in rows.names)
    off = f"SELECT {chosen} FROM {leaves.add(made)}"
    return replace(rows, sql=f"SELECT {listed(rows.names)} FROM {rows.source} UNION ALL {off}")
