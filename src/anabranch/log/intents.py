"""Intents: a writer says that it will write before it does.

An intent names the directory that the writer will use. While it is open nobody removes a file from
there; once it has ended, files that no header refers to are garbage. An open intent has a lease that
its process keeps renewing; one that was silent for a whole lease has lapsed, its unit of work is
aborted, and a commit under it fails. So garbage collection needs no knowledge of who is alive, and a
writer that was paused cannot commit a run whose files are gone.

Appends share one open intent per stream and process, which saves a transaction on each; a unit of
work has its own.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from dataclasses import dataclass

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import Catalog
from anabranch.log.clock import Clock
from anabranch.model.errors import AnabranchError

LEASE_US = 60_000_000
OPEN, ENDED, LAPSED = "open", "ended", "lapsed"


def this_process() -> str:
    """Who we are, for people who look into the catalog."""
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass
class Intent:
    id: str
    stream_id: int
    expires_at: int


class Intents:
    """The open intents of one process, kept alive by one thread."""

    def __init__(self, catalog: Catalog, clock: Clock, lease_us: int = LEASE_US) -> None:
        self.catalog = catalog
        self.clock = clock
        self.lease_us = lease_us
        self._open: dict[str, Intent] = {}
        self._shared: dict[int, Intent] = {}
        self._lock = threading.Lock()
        self._keeper: threading.Thread | None = None
        self._stop = threading.Event()

    def begin(self, stream_id: int) -> Intent:
        """Register an intent; it is durable when this returns."""
        intent = Intent(uuid.uuid4().hex, stream_id, self.clock() + self.lease_us)
        with self.catalog.write() as connection:
            connection.execute(
                tables.intents.insert().values(
                    id=intent.id,
                    stream_id=stream_id,
                    holder=this_process(),
                    state=OPEN,
                    expires_at=intent.expires_at,
                    swept=False,
                )
            )
        with self._lock:
            self._open[intent.id] = intent
            self._start_keeper()
        return intent

    def shared(self, stream_id: int) -> Intent:
        """The intent under which this process appends to a stream."""
        with self._lock:
            intent = self._shared.get(stream_id)
        if intent is not None and intent.expires_at - self.clock() > self.lease_us // 4:
            return intent
        if intent is not None:
            self.end(intent)
        intent = self.begin(stream_id)
        with self._lock:
            self._shared[stream_id] = intent
        return intent

    def end(self, intent: Intent) -> None:
        """No more files will come; what no header refers to may be removed."""
        self.forget(intent)
        with self.catalog.write() as connection:
            end_intent(connection, intent.id)

    def forget(self, intent: Intent) -> None:
        with self._lock:
            self._open.pop(intent.id, None)
            if self._shared.get(intent.stream_id) is intent:
                del self._shared[intent.stream_id]

    def renew(self) -> None:
        """Extend every open intent that has not lapsed. The keeper calls this; tests may too."""
        with self._lock:
            held = list(self._open.values())
        if not held:
            return
        now = self.clock()
        table = tables.intents
        with self.catalog.write() as connection:
            connection.execute(
                table.update()
                .where(table.c.id.in_([i.id for i in held]), table.c.state == OPEN, table.c.expires_at > now)
                .values(expires_at=now + self.lease_us)
            )
        for intent in held:
            if intent.expires_at > now:
                intent.expires_at = now + self.lease_us

    def close(self) -> None:
        """End all that is open: plain appends are done, units of work are aborted by their owners."""
        self._stop.set()
        with self._lock:
            keeper, self._keeper = self._keeper, None
            held = list(self._open.values())
            self._open.clear()
            self._shared.clear()
        if keeper is not None:
            keeper.join()
        if held:
            with self.catalog.write() as connection:
                for intent in held:
                    end_intent(connection, intent.id)

    def _start_keeper(self) -> None:
        if self._keeper is None:
            self._stop.clear()
            self._keeper = threading.Thread(target=self._keep, name="anabranch-intents", daemon=True)
            self._keeper.start()

    def _keep(self) -> None:
        while not self._stop.wait(self.lease_us / 3_000_000):
            try:
                self.renew()
            except AnabranchError:
                # The catalog is out of reach for now. If it stays so for a whole lease, the intents lapse
                # and the writers' commits say so.
                continue


def end_intent(connection: sa.Connection, intent_id: str) -> None:
    table = tables.intents
    connection.execute(table.update().where(table.c.id == intent_id, table.c.state == OPEN).values(state=ENDED))


def require_open(connection: sa.Connection, intent_id: str, now: int, place: str) -> None:
    """Inside a commit: fail if the intent has lapsed, and keep it from lapsing until the commit is done."""
    table = tables.intents
    found = connection.execute(
        sa.select(table.c.state, table.c.expires_at).where(table.c.id == intent_id).with_for_update()
    ).first()
    if found is None or found.state != OPEN or found.expires_at <= now:
        raise AnabranchError(
            "INTENT_LAPSED",
            place=place,
            need="a writer that was heard from within its lease",
            got="one that was silent for longer, so that its unit of work was aborted",
            next_step="Append the rows again; nothing was committed.",
        )
