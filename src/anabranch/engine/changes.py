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

from anabranch.engine.guard import FAILED
from anabranch.engine.relation import Relation, listed, quoted
from anabranch.model.run import ChangeType

ORDER = ("_bucket", "_event_time", "_id", "_rank")


@dataclass(frozen=True)
class Emission:
    """A bucket that says something: its version, and the version up to which revisions were said before it."""

    bucket: int
    version: int
    said: int
    release: bool


def difference(
    rows: Relation, emissions: Sequence[Emission], closes: Sequence[int | None] | None, *, comparable: bool = True
) -> Relation:
    """The changes of all emissions, from the rows of all versions.

    `closes` is, for each version, the progress that closes the windows of the answer; None if it has none. Rows
    with maps are not comparable as they are, and are compared as JSON.
    """
    versions = max(e.version for e in emissions) + 1
    fields = ", ".join(f"'{name}', {quoted(name)}" for name in rows.columns)
    where = f" WHERE {FAILED} IS NULL" if FAILED in rows.carried else ""
    each = f"SELECT _id, _event_time, _version, NAMED_STRUCT({fields}) AS _said FROM {rows.source}{where}"
    in_version = ", ".join(f"ANY_VALUE(_said) FILTER (WHERE _version = {v}) AS _v{v}" for v in range(versions))
    groups = f"SELECT _id, _event_time, {in_version} FROM ({each}) GROUP BY _id, _event_time"
    compared = f"SELECT *, {_closed(closes)} AS _closed FROM ({groups})"
    items = ", ".join(item for emission in emissions for item in _items(emission, versions, comparable))
    listing = f"INLINE(FILTER(ARRAY({items}), i -> i._change_type IS NOT NULL))"
    flat = f"SELECT _id, _event_time, {listing} FROM ({compared})"
    said = ", ".join(f"_said.{quoted(name)} AS {quoted(name)}" for name in rows.columns)
    return Relation(f"SELECT {listed(ORDER)}, _change_type, {said} FROM ({flat})", (*ORDER, "_change_type"))


def _closed(closes: Sequence[int | None] | None) -> str:
    """The first version in which a row's window is closed."""
    if closes is None:
        return "0"
    limits = ", ".join("NULL" if c is None else f"{c}L" for c in closes)
    return f"SIZE(FILTER(ARRAY({limits}, CAST(NULL AS BIGINT)), c -> c IS NULL OR c < _id.w)) - 1"


def _items(emission: Emission, versions: int, comparable: bool) -> list[str]:
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
    same = f"({before}) <=> {after}" if comparable else f"TO_JSON({before}) <=> TO_JSON({after})"
    quiet = f"NOT ({concerns}) OR ({same})"

    def item(rank: int, value: str, other: str, alone: ChangeType, paired: ChangeType) -> str:
        kind = (
            f"CASE WHEN ({value}) IS NULL OR {quiet} THEN NULL "
            f"WHEN ({other}) IS NULL THEN '{alone}' ELSE '{paired}' END"
        )
        return f"NAMED_STRUCT('_bucket', {emission.bucket}L, '_rank', {rank}, '_change_type', {kind}, '_said', {value})"

    return [
        item(0, before, after, ChangeType.DELETE, ChangeType.UPDATE_PREIMAGE),
        item(1, after, before, ChangeType.INSERT, ChangeType.UPDATE_POSTIMAGE),
    ]
