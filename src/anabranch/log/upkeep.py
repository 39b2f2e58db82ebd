"""Upkeep of the catalog: short transactions of bounded size, for whoever advances.

What changes how the past can be asked for, folding, checks the lease, so that an engine that was paused and replaced
folds nothing. Compaction and collection need none: what they replace they compare, and what they remove nobody
refers to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import sqlalchemy as sa

from anabranch.log import compaction, folding, gc, header_folding, tables
from anabranch.log.branches import Branches
from anabranch.log.buckets import BASE, last_recorded
from anabranch.log.catalog import Catalog
from anabranch.log.clock import Clock
from anabranch.log.folding import Grid
from anabranch.log.horizon import compaction_horizon, horizon
from anabranch.log.leases import Lease, require_lease
from anabranch.log.queries import DERIVED, KEPT
from anabranch.log.recording import record_for_folding
from anabranch.log.storage import Storage
from anabranch.log.stream_state import STREAMS, StreamState, state_from

# Streams that have rows and runs of their own; partial results are reduced instead.
_LOGGED = (BASE, DERIVED, KEPT)

Cursors = Mapping[int, int]


class Upkeep:
    """What can be kept up in one warehouse, or on a branch of it."""

    def __init__(
        self, catalog: Catalog, storage: Storage, clock: Clock, branches: Branches, generation: str | None
    ) -> None:
        self.catalog = catalog
        self.storage = storage
        self.clock = clock
        self.branches = branches
        self.generation = generation

    def streams(self) -> list[StreamState]:
        """All streams that have rows of their own, also those behind queries."""
        with self.catalog.read() as connection:
            logged = tables.streams.c.role.in_(_LOGGED)
            return [state_from(row) for row in connection.execute(STREAMS.where(logged).order_by(tables.streams.c.id))]

    # Collection.

    def collect(self, grace_us: int = gc.GRACE_US) -> Iterator[gc.Collected]:
        """Remove what nobody will refer to any more, some at a time; of main also the branches that have ended."""
        if self.generation is None and (ended := self.branches.collect()):
            yield gc.Collected(branches=ended)
        held_from = self.branches.held_from(self.catalog, self.generation)
        yield from gc.collect_in_portions(self.catalog, self.storage, self.clock(), grace_us, held_from)

    # Compaction.

    def plan_compaction(self, streams: Sequence[StreamState]) -> list[tuple[StreamState, compaction.CompactionPlan]]:
        """What is due, by size and age, in those of some streams that are still there."""
        ids = [stream.id for stream in streams]
        with self.catalog.read() as connection:
            rows = connection.execute(sa.select(tables.streams).where(tables.streams.c.id.in_(ids))).all()
            plans = {row.id: compaction.plan_tiers(connection, row) for row in rows}
        return [(s, plans[s.id]) for s in streams if s.id in plans and plans[s.id].segments]

    # Folding.

    def fold_buckets(self, lease: Lease, grid: Grid, after: int, needed: int) -> int | None:
        """Fold some buckets after one, none after the last that nobody needs; the last that was decided, if any was."""
        with self.catalog.write() as connection:
            require_lease(connection, lease)
            return folding.fold_buckets(connection, grid, after, min(needed, last_recorded(connection)))

    def first_within(self, grid: Grid) -> int:
        """The bucket from which on a grid is the first that matters."""
        with self.catalog.read() as connection:
            return folding.first_within(connection, grid)

    def fold_runs(self, lease: Lease, grid: Grid, after: Cursors) -> dict[int, int]:
        """Fold some headers of some streams, each after a position; how far they have come, where any was decided."""
        came: dict[int, int] = {}
        with self.catalog.write() as connection:
            require_lease(connection, lease)
            record_for_folding(connection, self.clock())
            streams = connection.execute(sa.select(tables.streams).where(tables.streams.c.id.in_(list(after)))).all()
            for stream in streams:
                is_base = stream.role == BASE
                up_to = (compaction_horizon if is_base else horizon)(connection, stream)
                if is_base:  # a bucket takes what headers say of sources and stamps
                    up_to = min(up_to, stream.bucket_position)
                reached = header_folding.fold_runs(connection, stream.id, grid, after[stream.id], up_to)
                if reached is not None:
                    came[stream.id] = reached
        return came
