"""One engine advances a warehouse at a time.

The lease has an epoch that only grows. It is free when it has run out, or when its holder was a process of
this machine that is no more. Whoever takes the lease over gets the next epoch, and every step
commits only if its epoch is still the current one, checked in the same transaction. So an engine that
was paused, lost its lease and wakes up cannot commit, whatever it believes and whatever its clock says.

A catalog can go out of reach while a lease is taken or given back, and nobody knows then whether it was. What may
be left behind so is remembered here: its own process takes it over at once, and others when it has run out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import Catalog
from anabranch.log.clock import Clock
from anabranch.log.intents import is_dead, this_process
from anabranch.model.errors import AnabranchError
from anabranch.model.time import instant_text

LEASE_US = 30_000_000
ENGINE = "engine"
_HELD = sa.select(tables.leases).where(tables.leases.c.name == ENGINE).with_for_update()


@dataclass(frozen=True)
class Lease:
    """The right to advance a warehouse, in one epoch of it."""

    epoch: int
    holder: str
    expires_at: int


class Leases:
    def __init__(self, catalog: Catalog, clock: Clock, lease_us: int = LEASE_US) -> None:
        self.catalog = catalog
        self.clock = clock
        self.lease_us = lease_us
        self._left: set[tuple[int, int | None]] = set()  # epochs that may be ours still, some with when they run out

    def acquire(self, holder: str | None = None) -> Lease:
        """Take the lease if it is free or has run out; otherwise say who has it."""
        holder = holder or this_process()
        expires = self.clock() + self.lease_us
        wanted: Lease | None = None
        try:
            with self.catalog.write() as connection:
                row = connection.execute(sa.select(tables.leases).where(tables.leases.c.name == ENGINE)).first()
                self._require_free(row)
                wanted = Lease(1 if row is None else row.epoch + 1, holder, expires)
                values = {"epoch": wanted.epoch, "holder": wanted.holder, "expires_at": wanted.expires_at}
                if row is None:
                    connection.execute(tables.leases.insert().values(name=ENGINE, **values))
                else:
                    connection.execute(tables.leases.update().where(tables.leases.c.name == ENGINE).values(**values))
        except Exception:
            if wanted is not None:  # the commit may have happened: then the row is as we wanted it
                self._left.add((wanted.epoch, wanted.expires_at))
            raise
        self._left.clear()
        return wanted

    def _require_free(self, row: sa.Row[Any] | None) -> None:
        if row is None or row.expires_at <= self.clock() or is_dead(row.holder):
            return
        if not self._left.isdisjoint({(row.epoch, None), (row.epoch, row.expires_at)}):
            return
        raise AnabranchError(
            "LEASE_HELD",
            place=f"warehouse {self.catalog.root}",
            need="a warehouse that no other engine advances",
            got=f"{row.holder} holds the lease until {instant_text(row.expires_at)}",
            next_step="Stop that engine, or wait until its lease has run out.",
        )

    def renew(self, lease: Lease) -> Lease:
        """Extend the lease; fails if it was taken over."""
        with self.catalog.write() as connection:
            return self._extend(connection, lease, self.clock() + self.lease_us)

    def release(self, lease: Lease) -> None:
        """Let the next engine in at once. Harmless if the lease was lost already, or the catalog is out of reach."""
        try:
            with self.catalog.write() as connection:
                self._extend(connection, lease, 0)
        except AnabranchError as error:
            if error.id != "FENCED":
                self._left.add((lease.epoch, None))

    def _extend(self, connection: sa.Connection, lease: Lease, until: int) -> Lease:
        require_lease(connection, lease)
        connection.execute(tables.leases.update().where(tables.leases.c.name == ENGINE).values(expires_at=until))
        return Lease(lease.epoch, lease.holder, until)


def require_lease(connection: sa.Connection, lease: Lease) -> None:
    """Inside a commit: fail if another engine has taken over."""
    row = connection.execute(_HELD).first()
    if row is None or row.epoch != lease.epoch:
        raise AnabranchError(
            "FENCED",
            place=f"engine {lease.holder}",
            need=f"the lease of epoch {lease.epoch}",
            got="none" if row is None else f"epoch {row.epoch}, held by {row.holder}",
            next_step="Stop this engine; the other one goes on from the last committed step. Nothing was committed.",
        )
