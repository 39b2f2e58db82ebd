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
from anabranch.log.commit import commit_run
from anabranch.log.intents import end_intents, require_open
from anabranch.log.leases import Lease, require_lease
from anabranch.log.positions import set_position
from anabranch.log.timing import timed
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunDraft, RunHeader


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


@dataclass(frozen=True)
class Output:
    """A run that a step produced, and the intent under which its segments were written."""

    stream_id: int
    draft: RunDraft
    intent_id: str | None = None


def commit_step(
    catalog: Catalog,
    clock: Clock,
    lease: Lease,
    moves: Sequence[Move],
    readings: Sequence[Reading],
    outputs: Sequence[Output],
) -> list[RunHeader]:
    """Commit a step under the engine's lease."""
    now = clock()
    with timed("commit"), catalog.write() as connection:
        require_lease(connection, lease)
        for move in moves:
            _move(connection, move)
        intents = list(dict.fromkeys(o.intent_id for o in outputs if o.intent_id is not None))
        if intents:
            require_open(connection, *intents, now=now, place="step of the engine")
        headers = []
        for output in outputs:
            assert output.draft.bucket is not None, "a derived run belongs to a bucket"
            assert output.draft.stime is not None, "a derived run is not stamped by a clock"
            headers.append(
                commit_run(connection, output.stream_id, output.draft, clock=now, intent_id=output.intent_id)
            )
        if intents:
            end_intents(connection, *intents)
        for reading in readings:
            set_position(connection, reading.stream_id, reading.reader, reading.end, "query")
    return headers


def _move(connection: sa.Connection, move: Move) -> None:
    table = tables.stores if move.kind == "store" else tables.queries
    values: dict[str, Any] = {"bucket": move.after}
    if move.kind == "query" and move.released is not None:
        values["released"] = move.released
    if move.dropped:
        said = connection.execute(sa.select(table.c.definition).where(table.c.id == move.id)).scalar_one()
        values["definition"] = {**said, "dropped": said.get("dropped", 0) + move.dropped}
    here = (table.c.id == move.id) & table.c.bucket.is_not_distinct_from(move.before)
    if not connection.execute(table.update().where(here).values(**values)).rowcount:
        found = connection.execute(sa.select(table.c.bucket).where(table.c.id == move.id)).first()
        raise AnabranchError(
            "POSITION_CONFLICT",
            place=f"step of {move.kind} number {move.id}",
            need=f"bucket {move.before}, where the step began",
            got="one that was dropped" if found is None else f"bucket {found.bucket}",
            next_step="Advance again; nothing was committed.",
        )
