"""Intents: a writer says that it will write before it does.

An intent names the directory that the writer will use. While it is open nobody removes a file from
there; once it has ended, files that no header refers to are garbage. An open intent has a lease that
its process keeps renewing; one that was silent for a whole lease has lapsed, its unit of work is
aborted, and a commit under it fails. So garbage collection needs no knowledge of who is alive, and a
writer that was paused cannot commit a run whose files are gone.

Single appends share one open intent per stream and process, which saves a transaction on each; a unit
of work of many appends has its own. Whoever got an intent gives it back with `release`, which ends it when nobody needs
it any more.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import Catalog
from anabranch.log.clock import Clock
from anabranch.log.fork_order import RELEASE
from anabranch.model.errors import AnabranchError

LEASE_US = 60_000_000
OPEN, ENDED, LAPSED = "open", "ended", "lapsed"
_IDS: sa.BindParameter[str] = sa.bindparam("ids", expanding=True)
_FOUND = (
    sa.select(tables.intents.c.state, tables.intents.c.expires_at)
    .where(tables.intents.c.id.in_(_IDS))
    .with_for_update()
)
_END = tables.intents.update().where(tables.intents.c.id.in_(_IDS), tables.intents.c.state == OPEN).values(state=ENDED)
_IN_OVERLAY = sa.select(tables.overlay.c.id).where(tables.overlay.c.generation.in_(_IDS))


def this_process() -> str:
    """Who we are, for people who look into the catalog."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_dead(holder: str) -> bool:
    """Whether a holder was a process of this machine that has ended; of other machines nobody can say."""
    host, _, number = holder.rpartition(":")
    if host != socket.gethostname() or not number.isdigit():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


@dataclass(eq=False)
class Intent:
    id: str
    stream_id: int
    expires_at: int
    users: int = 0
    shared: bool = False


class Intents:
    """The open intents of one process, kept alive by one thread."""

    def __init__(self, catalog: Catalog, clock: Clock, lease_us: int = LEASE_US) -> None:
        self.catalog = catalog
        self.clock = clock
        self.lease_us = lease_us
        self._open: dict[str, Intent] = {}
        self._shared: dict[int, Intent] = {}
        self._lock = threading.RLock()
        self._keeper: threading.Thread | None = None
        self._stop = threading.Event()

    def begin(self, stream_id: int) -> Intent:
        """Register an intent of one's own; it is durable when this returns."""
        (intent,) = self.begin_all([stream_id])
        return intent

    def begin_all(self, stream_ids: Iterable[int]) -> list[Intent]:
        """Register intents of one's own, one for each stream, in one transaction."""
        expires = self.clock() + self.lease_us
        intents = [Intent(uuid.uuid4().hex, stream_id, expires, users=1) for stream_id in stream_ids]
        self._register(intents)
        with self._lock:
            self._open |= {intent.id: intent for intent in intents}
            self._start_keeper()
        return intents

    def _register(self, intents: Sequence[Intent]) -> None:
        if not intents:
            return
        same = {"holder": this_process(), "state": OPEN, "swept": False}
        rows = [{**same, "id": i.id, "stream_id": i.stream_id, "expires_at": i.expires_at} for i in intents]
        with self.catalog.write() as connection:
            connection.execute(tables.intents.insert(), rows)

    def entrust(self, stream_id: int, lease_us: int) -> Intent:
        """Register an intent for other processes, which nobody renews: it must outlast what they do under it."""
        intent = Intent(uuid.uuid4().hex, stream_id, self.clock() + lease_us)
        self._register([intent])
        return intent

    @contextmanager
    def lasting(self, stream_id: int) -> Iterator[Intent]:
        """An intent of one's own for a block that ends it by its commit; if the block fails, it is given back."""
        intent = self.begin(stream_id)
        try:
            yield intent
        except BaseException:
            self.release(intent)
            raise
        self.forget(intent)

    def share(self, stream_id: int) -> Intent:
        """The intent under which this process appends to a stream; a fresh one if it may soon lapse."""
        with self._lock:
            intent = self._shared.get(stream_id)
            if intent is not None and intent.expires_at - self.clock() > self.lease_us // 4:
                intent.users += 1
                return intent
            if intent is not None:
                self._retire(intent)
            intent = self.begin(stream_id)
            intent.shared = True
            self._shared[stream_id] = intent
            return intent

    def _retire(self, intent: Intent) -> None:
        """Share it no more; other threads may still be writing under it."""
        del self._shared[intent.stream_id]
        intent.shared = False
        if intent.users == 0:
            self._end(intent)

    def release(self, intent: Intent) -> None:
        """Give an intent back. It ends, and its overlay with it, unless it goes on being shared."""
        with self._lock:
            intent.users -= 1
            if intent.users > 0 or intent.shared:
                return
        self._end(intent)

    def lapsed(self, intent: Intent) -> None:
        """A commit has found that an intent has lapsed: share it no more."""
        with self._lock:
            if self._shared.get(intent.stream_id) is intent:
                del self._shared[intent.stream_id]
            intent.shared = False

    def forget(self, intent: Intent) -> None:
        """Stop renewing an intent that has ended, or that is given up to lapse by itself."""
        with self._lock:
            self._open.pop(intent.id, None)
            if self._shared.get(intent.stream_id) is intent:
                del self._shared[intent.stream_id]
            intent.shared = False

    def end(self, intent_id: str) -> None:
        """End an intent by its number: what was written under it and not committed is garbage."""
        with self.catalog.write() as connection:
            end_intents(connection, intent_id)

    def _end(self, intent: Intent) -> None:
        self.forget(intent)
        try:
            with self.catalog.write() as connection:
                end_intents(connection, intent.id)
        except AnabranchError:
            return  # out of reach: it is not renewed any more, and lapses by itself

    def renew(self) -> None:
        """Extend every open intent that has not lapsed. The keeper calls this; tests may too."""
        with self._lock:
            held = list(self._open.values())
        if not held:
            return
        now = self.clock()
        table = tables.intents
        with self.catalog.write() as connection:
            renewed = set(
                connection.execute(
                    table.update()
                    .where(table.c.id.in_([i.id for i in held]), table.c.state == OPEN, table.c.expires_at > now)
                    .values(expires_at=now + self.lease_us)
                    .returning(table.c.id)
                ).scalars()
            )
        for intent in held:
            # One that could not be renewed has lapsed: say so to whoever would share it.
            intent.expires_at = now + self.lease_us if intent.id in renewed else 0

    def close(self) -> None:
        """End all that is open: what was not committed is aborted."""
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
                    end_intents(connection, intent.id)

    def _start_keeper(self) -> None:
        if self._keeper is None:
            self._stop.clear()
            self._keeper = threading.Thread(target=self._keep, name="anabranch-intents", daemon=True)
            self._keeper.start()

    def _keep(self) -> None:
        while not self._stop.wait(self.lease_us / 3_000_000):
            try:
                self.renew()
            except Exception:
                # The catalog is out of reach for now. If it stays so for a whole lease, the intents lapse
                # and the writers' commits say so.
                continue


def end_intents(connection: sa.Connection, *intent_ids: str) -> None:
    """End intents: what they still have in the overlay is aborted, and their orphans are garbage."""
    drop_overlay(connection, *intent_ids)
    connection.execute(_END, {"ids": intent_ids})


def forget_ended(connection: sa.Connection, intent_ids: Sequence[str]) -> None:
    """Forget intents that have ended, if it is known that they have left no orphans."""
    if intent_ids:
        table = tables.intents
        connection.execute(table.delete().where(table.c.id.in_(intent_ids), table.c.state == ENDED))


def drop_overlay(connection: sa.Connection, *intent_ids: str) -> None:
    """Remove what units of work have in the overlay, and what was derived from it; the files become garbage."""
    overlay, segments = tables.overlay, tables.segments
    items = connection.execute(_IN_OVERLAY, {"ids": intent_ids}).scalars().all()
    if not items:
        return
    derived = sa.select(segments.c.path).where(
        segments.c.overlay_id.in_(items),
        sa.or_(segments.c.intent_id.is_(None), segments.c.intent_id.not_in(intent_ids)),
    )
    released = [{"path": path, "released_at": 0} for path in connection.execute(derived).scalars()]
    if released:
        connection.execute(RELEASE, released)
    connection.execute(segments.delete().where(segments.c.overlay_id.in_(items)))
    connection.execute(overlay.delete().where(overlay.c.id.in_(items)))


def require_open(connection: sa.Connection, *intent_ids: str, now: int, place: str, next_step: str) -> None:
    """Inside a commit: fail if an intent has lapsed, and keep it from lapsing until the commit is done.

    `next_step` says what whoever commits does about it: an append is sent again, a step is taken by the next advance.
    """
    found = connection.execute(_FOUND, {"ids": intent_ids}).all()
    if len(found) < len(intent_ids) or any(row.state != OPEN or row.expires_at <= now for row in found):
        raise AnabranchError(
            "INTENT_LAPSED",
            place=place,
            need="a writer that was heard from within its lease",
            got="one that was silent for longer, so that what it wrote was given up",
            next_step=next_step,
        )
