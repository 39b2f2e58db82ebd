"""A stream with a key under a history bound: rows that lie beyond it are final (BOREALIS 3.2).

A *revision* by key is a message that would take the place of a row, or take it away: its version is higher than that of
the row that counted before the bucket. It is ignored, and set aside, if that row lies beyond the bound, or the
row that it brings: neither can be found in the history any more. The bound is that of the bucket, as everywhere, so
what is ignored depends on the log alone. An insertion, however late, is none: there is no row that it would revise.

Which row counts is told by the partial results of the latest messages, the index of live rows, as they were before the
step; in the buckets of the step it follows from one message to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import MESSAGE_COLUMNS, Source
from anabranch.engine.bounds import Oldest, json_of
from anabranch.engine.groups import Recipe
from anabranch.engine.netting import STAMP_TYPE
from anabranch.engine.paths import literal_path
from anabranch.engine.read import spark_schema
from anabranch.engine.relation import Leaves, Relation, listed, quoted
from anabranch.model.run import ChangeType, Segment
from anabranch.model.schema import Schema

_MESSAGE = f"STRUCT<b: BIGINT, s: {STAMP_TYPE}, t: BIGINT, gone: BOOLEAN>"
# The bucket, the event time of the row that counted before it, and of the one that counts now, with its version.
_STATE = f"STRUCT<b: BIGINT, before: BIGINT, t: BIGINT, s: {STAMP_TYPE}, ignored: ARRAY<{STAMP_TYPE}>>"


@dataclass(frozen=True)
class Final:
    """What is final in the buckets of a step, and where the rows are found that counted before it."""

    oldest: Oldest
    event_time: str
    schema: Schema
    segments: tuple[Segment, ...]


def source_of(box: Partials) -> Source | None:
    """The stream with a key of whose messages a box keeps the latest; None if it does something else."""
    latest = all(call.function == "latest" for call in box.calls)
    return box.input if latest and isinstance(box.input, Source) and box.input.messages else None


def apart(
    leaves: Leaves, box: Partials, recipe: Recipe, messages: Relation, final: Final, root: str
) -> tuple[Relation, str]:
    """Messages without the revisions that are ignored, and these as they are set aside."""
    keys = [key.name for key in box.keys]
    made = ", ".join(f"({key.expression.text}) AS {quoted(key.name)}" for key in box.keys)
    chosen = f"SELECT *, {made} FROM {messages.source}"
    one = "NAMED_STRUCT('b', _bucket, 's', _stamp, 't', UNIX_MICROS(_event_time), 'gone', _gone)"
    events = (
        f"SELECT {listed(keys)}, ARRAY_SORT(COLLECT_LIST(CAST({one} AS {_MESSAGE}))) AS _events "
        f"FROM ({chosen}) GROUP BY {listed(keys)}"
    )
    same = " AND ".join(f"e.{quoted(key)} <=> c.{quoted(key)}" for key in keys)
    counted = _counted(leaves, box, recipe, final, root)
    ignored = (
        f"SELECT EXPLODE({_fold(final.oldest)}) AS _stamp FROM ({events}) AS e LEFT JOIN ({counted}) AS c ON {same}"
    )
    name = leaves.add(leaves.frame(ignored))
    rest = f"SELECT m.* FROM ({messages.sql}) AS m LEFT ANTI JOIN {name} AS i ON m._stamp <=> i._stamp"
    gone = f"SELECT m.* FROM ({messages.sql}) AS m LEFT SEMI JOIN {name} AS i ON m._stamp <=> i._stamp"
    columns = [column for column in messages.columns if column not in MESSAGE_COLUMNS]
    kind = f"IF(_gone, '{ChangeType.DELETE}', '{ChangeType.UPDATE_POSTIMAGE}')"
    reason = f"'{final.oldest.why} are final'"
    aside = (
        f"SELECT {json_of(columns)} AS row, {kind} AS _change_type, _event_time, {reason} AS _reason, "
        f"0 AS _side, CAST(NULL AS BIGINT) AS _hash, CAST(NULL AS STRING) AS _exact, CAST(NULL AS BIGINT) AS _of, "
        f"_bucket FROM ({gone})"
    )
    return replace(messages, sql=rest), aside


def _counted(leaves: Leaves, box: Partials, recipe: Recipe, final: Final, root: str) -> str:
    """The row of each key that counted before the step: its version, and its event time if it is alive."""
    source = source_of(box)
    assert source is not None
    keys = listed([key.name for key in box.keys])
    (call,) = box.calls
    stamp = next(m.name for m in recipe.lowered.measures if m.partial == "MAX(_stamp)")
    latest = f"MAX_BY({recipe.lowered.finals[call.name]}, {stamp})"
    place = f"c{source.names.index(final.event_time)}"
    newest = f"SELECT {keys}, MAX({stamp}) AS _s, {latest} AS _x FROM {_read(leaves, final, root)} GROUP BY {keys}"
    return f"SELECT {keys}, _s, IF(_x.gone, NULL, UNIX_MICROS(_x.row.{place})) AS _t FROM ({newest})"


def _read(leaves: Leaves, final: Final, root: str) -> str:
    spark: SparkSession = leaves.spark
    schema = spark_schema(final.schema)
    paths = [literal_path(f"{root}/{segment.path}") for segment in final.segments]
    return leaves.add(spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema))


def _fold(oldest: Oldest) -> str:
    """The versions of a key's messages that are ignored, from one message to the next."""
    before = "IF(m.b = a.b, a.before, a.t)"
    limit = f"CASE m.b {' '.join(f'WHEN {bucket}L THEN {limit}L' for bucket, limit in oldest.limits)} END"
    wins = "(a.s IS NULL OR m.s > a.s)"
    beyond = f"({before} < {limit} OR (NOT m.gone AND m.t < {limit}))"
    ignored = f"COALESCE({before} IS NOT NULL AND {wins} AND {beyond}, FALSE)"
    counts = f"({wins} AND NOT {ignored})"
    state = (
        f"NAMED_STRUCT('b', m.b, 'before', {before}, 't', IF({counts}, IF(m.gone, NULL, m.t), a.t), "
        f"'s', IF({counts}, m.s, a.s), 'ignored', IF({ignored}, CONCAT(a.ignored, ARRAY(m.s)), a.ignored))"
    )
    first = "NAMED_STRUCT('b', -1L, 'before', NULL, 't', c._t, 's', c._s, 'ignored', ARRAY())"
    cast = [f"CAST({sql} AS {_STATE})" for sql in (first, state)]
    return f"AGGREGATE(e._events, {cast[0]}, (a, m) -> {cast[1]}, a -> a.ignored)"
