"""Committing a step: outputs and positions together, fenced.

A step has read some streams up to some positions and produced runs for others. Its commit checks, in
one transaction, that its engine still holds the lease and that each position is where the step found
it; then it makes the outputs visible, numbers the bucket and moves the positions. Either all of that
happens or none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import Catalog
from anabranch.log.clock import Clock
from anabranch.log.commit import commit_run
from anabranch.log.intents import end_intent, require_open
from anabranch.log.leases import Lease, require_lease
from anabranch.log.positions import set_position
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunDraft, RunHeader


@dataclass(frozen=True)
class Reading:
    """What a step consumed of one stream: everything after `start`, up to and with `end`."""

    stream_id: int
    start: int
    end: int


@dataclass(frozen=True)
class Output:
    """A run that a step produced, and the intent under which its segments were written."""

    stream_id: int
    draft: RunDraft
    intent_id: str | None = None


@dataclass(frozen=True)
class CommittedStep:
    bucket: int
    headers: tuple[RunHeader, ...]


def commit_step(
    catalog: Catalog,
    clock: Clock,
    lease: Lease,
    reader: str,
    readings: Sequence[Reading],
    outputs: Sequence[Output],
) -> CommittedStep:
    """Commit a step of the query `reader`."""
    now = clock()
    with catalog.write() as connection:
        require_lease(connection, lease)
        _require_positions(connection, reader, readings)
        warehouse = tables.warehouse
        bucket = connection.execute(sa.select(warehouse.c.last_bucket)).scalar_one() + 1
        connection.execute(warehouse.update().values(last_bucket=bucket))
        stime = _latest_stime(connection, readings)
        headers = []
        for output in outputs:
            if output.intent_id is not None:
                require_open(connection, output.intent_id, now, f"step of {reader!r}")
            draft = replace(output.draft, bucket=bucket, stime=stime)
            headers.append(commit_run(connection, output.stream_id, draft, clock=now, intent_id=output.intent_id))
            if output.intent_id is not None:
                end_intent(connection, output.intent_id)
        for reading in readings:
            set_position(connection, reading.stream_id, reader, reading.end, "query")
    return CommittedStep(bucket, tuple(headers))


def _latest_stime(connection: sa.Connection, readings: Sequence[Reading]) -> int:
    """Derived runs are never stamped by a clock: they inherit the newest stamp of what was read."""
    runs = tables.runs
    stamps = [
        connection.execute(
            sa.select(runs.c.stime)
            .where(runs.c.stream_id == reading.stream_id, runs.c.position >= reading.end)
            .order_by(runs.c.position)
            .limit(1)
        ).scalar()
        for reading in readings
    ]
    return max((stamp for stamp in stamps if stamp is not None), default=0)


def _require_positions(connection: sa.Connection, reader: str, readings: Sequence[Reading]) -> None:
    table = tables.positions
    found: Mapping[int, int] = {
        row.stream_id: row.position for row in connection.execute(sa.select(table).where(table.c.name == reader))
    }
    for reading in readings:
        have = found.get(reading.stream_id, 0)
        if have != reading.start:
            raise AnabranchError(
                "POSITION_CONFLICT",
                place=f"step of {reader!r} on stream number {reading.stream_id}",
                need=f"position {reading.start}, where the step began",
                got=f"position {have}",
                next_step="Read the position again and redo the step; nothing was committed.",
            )
