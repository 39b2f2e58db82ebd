"""Committing a step: outputs, positions and buckets together, fenced.

A step has taken recorded buckets through some stores and queries and produced runs. Its commit checks,
in one transaction, that its engine still holds the lease and that every store and query is still at the
bucket where the step found it; then it makes the outputs visible and moves them on. Either all of that
happens or none of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import Catalog
from anabranch.log.clock import Clock
from anabranch.log.commit import Output, commit_runs
from anabranch.log.intents import end_intents, forget_ended, require_open
from anabranch.log.leases import Lease, require_lease
from anabranch.log.positions import Position, set_positions
from anabranch.log.timing import timed
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunHeader


@dataclass(frozen=True)
class Reading:
    """How far a reader has come with a stream: everything up to and with `end` is consumed."""

    stream_id: int
    reader: str
    end: int


@dataclass(frozen=True)
class Move:
    """A store or a query that goes from one bucket to a later one."""

    kind: str  # store, query
    id: int
    before: int | None
    after: int
    released: int | None = None  # queries: revisions are said up to this bucket
    dropped: int = 0  # queries: revisions that were not said, because they matter too little
    reach: tuple[int, int] | None = None  # queries: how far apart the partners of a Join by bounds can be, if it grew


@dataclass(frozen=True)
class Ended:
    """Intents that end with a step: those under which nothing was written, and those that leave nothing to sweep."""

    unused: Sequence[str] = ()
    swept: Sequence[str] = ()


NOTHING_ENDED = Ended()


def _moving(table: sa.Table, **more: Any) -> sa.Update:
    """To a later bucket, if it is where the step found it."""
    here = table.c.bucket.is_not_distinct_from(sa.bindparam("before", type_=sa.BigInteger))
    return table.update().where(table.c.id == sa.bindparam("its_id"), here).values(bucket=sa.bindparam("after"), **more)


_TABLES = {"store": tables.stores, "query": tables.queries}
_MOVING = {
    "store": _moving(tables.stores),
    "query": _moving(tables.queries, released=sa.func.coalesce(sa.bindparam("until"), tables.queries.c.released)),
}


def commit_step(
    catalog: Catalog,
    clock: Clock,
    lease: Lease,
    moves: Sequence[Move],
    readings: Sequence[Reading],
    outputs: Sequence[Output],
    ended: Ended = NOTHING_ENDED,
) -> list[RunHeader]:
    """Commit a step under the engine's lease."""
    now = clock()
    with timed("commit"), catalog.write() as connection:
        require_lease(connection, lease)
        for kind in _MOVING:
            _move(connection, kind, [move for move in moves if move.kind == kind])
        intents = list(dict.fromkeys(o.intent_id for o in outputs if o.intent_id is not None))
        if intents:
            again = "Advance again; nothing was committed."
            require_open(connection, *intents, now=now, place="step of the engine", next_step=again)
        for output in outputs:
            assert output.draft.bucket is not None, "a derived run belongs to a bucket"
            assert output.draft.stime is not None, "a derived run is not stamped by a clock"
        headers = commit_runs(connection, outputs, clock=now) if outputs else []
        if intents or ended.unused:
            end_intents(connection, *intents, *ended.unused)
        forget_ended(connection, ended.swept)
        set_positions(connection, [(r.stream_id, Position(r.reader, "query", r.end)) for r in readings])
    return headers


def _move(connection: sa.Connection, kind: str, moves: Sequence[Move]) -> None:
    """Move stores or queries, if each is where the step found it."""
    if not moves:
        return
    values = [{"its_id": m.id, "before": m.before, "after": m.after, "until": m.released} for m in moves]
    if kind == "store":
        values = [{name: value for name, value in one.items() if name != "until"} for one in values]
    if connection.execute(_MOVING[kind], values).rowcount < len(moves):
        raise _conflict(connection, kind, moves)
    table = _TABLES[kind]
    for move in moves:
        if move.dropped:
            here = table.c.id == move.id
            said = connection.execute(sa.select(table.c.definition).where(here)).scalar_one()
            more = {**said, "dropped": said.get("dropped", 0) + move.dropped}
            connection.execute(table.update().where(here).values(definition=more))
        if move.reach is not None:
            connection.execute(table.update().where(table.c.id == move.id).values(reach=list(move.reach)))


def _conflict(connection: sa.Connection, kind: str, moves: Sequence[Move]) -> AnabranchError:
    """What is not where the step found it. The others have been moved by now, to be moved back."""
    table = _TABLES[kind]
    rows = connection.execute(sa.select(table.c.id, table.c.bucket).where(table.c.id.in_([m.id for m in moves])))
    found = {row.id: row.bucket for row in rows}
    move = next((m for m in moves if m.id not in found or found[m.id] != m.after), moves[0])
    return AnabranchError(
        "POSITION_CONFLICT",
        place=f"step of {kind} number {move.id}",
        need=f"bucket {move.before}, where the step began",
        got=f"bucket {found[move.id]}" if move.id in found else "one that was dropped",
        next_step="Advance again; nothing was committed.",
    )
