"""From weighted rows to changes: what a bucket's rows amount to.

Within a bucket only the net weight of a row counts (`netting`): a row that is taken away and given again says nothing.
What is left over is said as insertions and deletions; a deletion and an insertion that are about the same
thing, because one message or one group made both, are the two images of an update. Items are ordered by
event time, then by the rest, so they do not depend on how the rows were spread over tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types as T

from anabranch.engine.changes import comparable
from anabranch.engine.netting import copies, net
from anabranch.engine.relation import Relation, listed, quoted
from anabranch.model.run import ChangeType

ORDER = ("_bucket", "_at", "_of", "_content", "_pair", "_rank")


def settled(rows: Relation, columns: Sequence[str], kinds: T.StructType) -> Relation:
    """The changes that rows with `_bucket`, `_event_time`, `_of` and `_weight` amount to, with their order."""
    content = ["_event_time", *columns]
    by = ["_bucket", "_of", *content]
    each = copies(net(rows.source, by), by)
    # Rows that are about nothing in particular are spread by what is in them.
    plain = ", ".join(comparable(quoted(name), kinds[name].dataType) for name in content)
    about = f"_bucket, _of, CASE WHEN _of IS NULL THEN XXHASH64({plain}) END"
    ordered = f"{plain}, _copy"
    numbered = (
        f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {about}, _sign ORDER BY {ordered}) AS _pair, "
        f"COUNT_IF(_sign < 0) OVER (PARTITION BY {about}) AS _gone, "
        f"COUNT_IF(_sign > 0) OVER (PARTITION BY {about}) AS _came FROM ({each})"
    )
    paired = "_of IS NOT NULL AND _pair <= LEAST(_gone, _came)"
    kind = (
        f"CASE WHEN {paired} THEN IF(_sign < 0, '{ChangeType.UPDATE_PREIMAGE}', '{ChangeType.UPDATE_POSTIMAGE}') "
        f"ELSE IF(_sign < 0, '{ChangeType.DELETE}', '{ChangeType.INSERT}') END"
    )
    together = f"MAX(IF(_sign > 0, _event_time, NULL)) OVER (PARTITION BY {about}, _pair)"
    at = f"CASE WHEN {paired} THEN {together} ELSE _event_time END"
    chosen = ["_bucket", "_of", "_event_time", *columns, "_pair"]
    by_content = f"CASE WHEN _of IS NULL THEN STRUCT({plain}) END AS _content"
    made = f"{by_content}, {kind} AS _change_type, {at} AS _at, IF(_sign < 0, 0, 1) AS _rank"
    sql = f"SELECT {listed(chosen)}, {made} FROM ({numbered})"
    return Relation(sql, (*ORDER, "_change_type", "_event_time"), tuple(columns))
