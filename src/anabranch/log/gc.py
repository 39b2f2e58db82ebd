"""Garbage collection: files that nobody will ever refer to.

There are two kinds. Orphans: files in the directory of an intent that has ended or lapsed, to which no
header refers; their writer died, aborted, or tried a task twice. Released files: segments that the
compactor replaced or that retention removed; they wait for a grace period, so that readers who planned
before can finish, and for the branches that were forked before they were released: these may read them. Files
of open intents are never touched, so collecting while others write is safe.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import Catalog
from anabranch.log.fork_order import RELEASE
from anabranch.log.intents import LAPSED, OPEN, drop_overlay
from anabranch.log.staging import files_of_intent
from anabranch.log.storage import Storage

GRACE_US = 600_000_000
NOT_HELD = 1 << 62
_BATCH = 500


@dataclass(frozen=True)
class Collected:
    """What a collection did."""

    lapsed_intents: int
    orphans: tuple[str, ...]
    released: tuple[str, ...]
    branches: tuple[str, ...] = ()  # the names, or generations, of those that are gone


def collect_garbage(
    catalog: Catalog, storage: Storage, now: int, grace_us: int = GRACE_US, held_from: int = NOT_HELD
) -> Collected:
    """Remove the garbage that there is at `now`, but what was released at the order `held_from` or later."""
    lapsed = _lapse(catalog, now)
    orphans = _sweep(catalog, storage)
    released = _remove_released(catalog, storage, now - grace_us, held_from)
    return Collected(lapsed, tuple(orphans), tuple(released))


def _lapse(catalog: Catalog, now: int) -> int:
    """End the intents of silent writers, and abort their speculative units of work."""
    intents = tables.intents
    with catalog.write() as connection:
        silent = connection.execute(
            sa.select(intents.c.id).where(intents.c.state == OPEN, intents.c.expires_at <= now)
        ).scalars().all()  # fmt: skip
        for intent_id in silent:
            drop_overlay(connection, intent_id)
            connection.execute(intents.update().where(intents.c.id == intent_id).values(state=LAPSED))
    return len(silent)


def _sweep(catalog: Catalog, storage: Storage) -> list[str]:
    intents, segments, garbage = tables.intents, tables.segments, tables.garbage
    with catalog.read() as connection:
        ended = connection.execute(
            sa.select(intents.c.id, intents.c.stream_id).where(intents.c.state != OPEN, intents.c.swept.is_(False))
        ).all()
    removed = []
    for intent in ended:
        directory = storage.directory(intent.stream_id, intent.id)
        # The intent has ended, so what refers to its files can only shrink from here on.
        with catalog.read() as connection:
            kept = set(
                connection.execute(sa.select(segments.c.path).where(segments.c.intent_id == intent.id)).scalars()
            )
            kept |= set(files_of_intent(connection, intent.id))
            files = storage.files(directory)
            kept |= set(
                connection.execute(sa.select(garbage.c.path).where(garbage.c.path.like(f"{directory}/%"))).scalars()
            )
        removed += [file for file in files if file not in kept and storage.remove(file)]
        with catalog.write() as connection:
            if kept:
                connection.execute(intents.update().where(intents.c.id == intent.id).values(swept=True))
            elif storage.remove_directory(directory):
                connection.execute(intents.delete().where(intents.c.id == intent.id))
    return removed


def _remove_released(catalog: Catalog, storage: Storage, before: int, held_from: int) -> list[str]:
    garbage = tables.garbage
    free = (garbage.c.released_at <= before) & (garbage.c.released_order < held_from)
    removed: list[str] = []
    while True:
        with catalog.read() as connection:
            paths = connection.execute(
                sa.select(garbage.c.path).where(free).order_by(garbage.c.path).limit(_BATCH)
            ).scalars().all()  # fmt: skip
        if not paths:
            return removed
        removed += [path for path in paths if storage.remove(path)]
        with catalog.write() as connection:
            connection.execute(garbage.delete().where(garbage.c.path.in_(paths)))
            _forget_empty(connection, storage, {path.rpartition("/")[0] for path in paths})


def _forget_empty(connection: sa.Connection, storage: Storage, directories: set[str]) -> None:
    """Remove the directories of ended intents once nothing is left in them."""
    intents = tables.intents
    for directory in sorted(directories):
        intent_id = directory.rpartition("/")[2]
        is_open = connection.execute(
            sa.select(intents.c.id).where(intents.c.id == intent_id, intents.c.state == OPEN)
        ).first()
        if is_open is None and storage.remove_directory(directory):
            connection.execute(intents.delete().where(intents.c.id == intent_id))


def release_files(connection: sa.Connection, paths: list[str], now: int) -> None:
    """Give files of removed segments to the collector."""
    if paths:
        connection.execute(RELEASE, [{"path": path, "released_at": now} for path in paths])
