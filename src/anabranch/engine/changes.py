"""What a bucket emits: the difference between what was said and what is right now.

Rows of the same group in two versions are compared as a whole. A group that is new is inserted, one that
is gone is deleted, one that is different is a pair of images, and one that is the same says nothing:
nothing is retracted and said again unchanged.

Revisions may be deferred: then a bucket says only the windows that closed in it, and the bucket that
releases says, for every window, the difference to what was last said of it: at the last release, or
when it closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import types as T

from anabranch.engine.aggregates import has_map
from anabranch.engine.guard import FAILED
from anabranch.engine.relation import Relation, listed, quoted
from anabranch.model.run import ChangeType

ORDER = ("_bucket", "_at", "_id", "_rank")
# What a result is about, from step to step: its window and group.
OF_GROUP = "XXHASH64(_id)"


@dataclass(frozen=True)
class Emission:
    """A bucket that says something: its version, and the version up to which revisions were said before it."""

    bucket: int
    version: int
    said: int
    release: bool


def difference(
    rows: Relation, emissions: Sequence[Emission], closes: Sequence[int | None] | None, kinds: T.StructType
) -> Relation:
    """The changes of all emissions, from the rows of all versions.

    `closes` is, for each version, the progress that closes the windows of the answer; None if it has none. `kinds`
    are the types of the columns.
    """
    versions = max(e.version for e in emissions) + 1
    # Places, not names: a column may be called anything.
    fields = "".join(f", 'c{n}', {quoted(name)}" for n, name in enumerate(rows.columns))
    where = f" WHERE {FAILED} IS NULL" if FAILED in rows.carried else ""
    said = f"NAMED_STRUCT('_event_time', _event_time{fields})"
    each = f"SELECT _id, _version, {said} AS _said FROM {rows.source}{where}"
    in_version = ", ".join(f"ANY_VALUE(_said) FILTER (WHERE _version = {v}) AS _v{v}" for v in range(versions))
    groups = f"SELECT _id, {in_version} FROM ({each}) GROUP BY _id"
    compared = f"SELECT *, {first_closed(closes)} AS _closed FROM ({groups})"
    items = ", ".join(item for emission in emissions for item in _items(emission, versions, kinds))
    listing = f"INLINE(FILTER(ARRAY({items}), i -> i._change_type IS NOT NULL))"
    flat = f"SELECT _id, {listing} FROM ({compared})"
    said = "".join(f", _said.c{n} AS {quoted(name)}" for n, name in enumerate(rows.columns))
    sql = f"SELECT {listed(ORDER)}, _change_type, {OF_GROUP} AS _of, _said._event_time{said} FROM ({flat})"
    return Relation(sql, (*ORDER, "_change_type", "_of", "_event_time"), rows.columns)


def first_said(rows: Relation, bucket: int) -> Relation:
    """The changes of a bucket before which nothing was said: every row is new, and nothing has to be compared."""
    made = {"_bucket": f"{bucket}L", "_at": "_event_time", "_id": "_id", "_rank": "1",
            "_change_type": f"'{ChangeType.INSERT}'", "_of": OF_GROUP, "_event_time": "_event_time"}  # fmt: skip
    carried = ", ".join(f"{sql} AS {name}" for name, sql in made.items())
    columns = "".join(f", {quoted(name)}" for name in rows.columns)
    return Relation(f"SELECT {carried}{columns} FROM {rows.source}", tuple(made), rows.columns)


def comparable(value: str, kind: T.DataType) -> str:
    """A value in a form that can be compared and ordered: maps as their entries, in order."""
    if not has_map(kind):
        return value
    if isinstance(kind, T.MapType):
        entry = f"STRUCT(e.key AS k, {comparable('e.value', kind.valueType)} AS v)"
        return f"SORT_ARRAY(TRANSFORM(MAP_ENTRIES({value}), e -> {entry}))"
    if isinstance(kind, T.ArrayType):
        return f"TRANSFORM({value}, x -> {comparable('x', kind.elementType)})"
    assert isinstance(kind, T.StructType)
    fields = ", ".join(f"'{n}', {comparable(f'({value}).{quoted(f.name)}', f.dataType)}" for n, f in enumerate(kind))
    return f"CASE WHEN ({value}) IS NOT NULL THEN NAMED_STRUCT({fields}) END"


def first_closed(closes: Sequence[int | None] | None) -> str:
    """The first version in which a row's window is closed."""
    if closes is None:
        return "0"
    limits = ", ".join("NULL" if c is None else f"{c}L" for c in closes)
    return f"SIZE(FILTER(ARRAY({limits}, CAST(NULL AS BIGINT)), c -> c IS NULL OR c < _id.w)) - 1"


def _items(emission: Emission, versions: int, kinds: T.StructType) -> list[str]:
    after = f"_v{emission.version}"
    concerns = "TRUE"
    if not emission.release:
        before, concerns = f"IF(FALSE, {after}, NULL)", f"_closed = {emission.version}"
    elif emission.said == emission.version - 1:
        before = f"_v{emission.said}"
    else:
        # What was last said of this group: at the last release, or when its window closed, whichever was later.
        every = ", ".join(f"_v{v}" for v in range(versions))
        last_said = f"ELEMENT_AT(ARRAY({every}), GREATEST(_closed, {emission.said}) + 1)"
        before = f"CASE WHEN _closed < {emission.version} THEN {last_said} END"
    same = f"{comparable(f'({before})', kinds)} <=> {comparable(after, kinds)}"
    quiet = f"NOT ({concerns}) OR ({same})"

    def item(rank: int, value: str, other: str, alone: ChangeType, paired: ChangeType) -> str:
        kind = (
            f"CASE WHEN ({value}) IS NULL OR {quiet} THEN NULL "
            f"WHEN ({other}) IS NULL THEN '{alone}' ELSE '{paired}' END"
        )
        # The two images of an update stand together, at the time of the second.
        at = f"COALESCE(({after})._event_time, ({before})._event_time)"
        return (
            f"NAMED_STRUCT('_bucket', {emission.bucket}L, '_at', {at}, '_rank', {rank}, "
            f"'_change_type', {kind}, '_said', {value})"
        )

    return [
        item(0, before, after, ChangeType.DELETE, ChangeType.UPDATE_PREIMAGE),
        item(1, after, before, ChangeType.INSERT, ChangeType.UPDATE_POSTIMAGE),
    ]
