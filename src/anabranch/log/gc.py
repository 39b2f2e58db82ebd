"""Garbage collection: files that nobody will ever refer to.

There are two kinds. Orphans: files in the directory of an intent that has ended or lapsed, to which no
header refers; their writer died, aborted, or tried a task twice. Released files: segments that the
compactor replaced or that retention removed; they wait for a grace period, so that readers who planned
before can finish, and for the branches that were forked before they were released: these may read them. Files
of open intents are never touched, so collecting while others write is safe.

An intent that has ended is looked at once and forgotten: what refers to its files can only shrink from then on,
and whatever is let go of later is released. So the work is in proportion to what has ended and what was released
since the last time, in portions of a bounded size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import Catalog
from anabranch.log.fork_order import RELEASE
from anabranch.log.intents import ENDED, LAPSED, OPEN, drop_overlay
from anabranch.log.staging import files_of_intents
from anabranch.log.storage import Storage

GRACE_US = 600_000_000
NOT_HELD = 1 << 62
# So many intents, or files, at once.
_BATCH = 500


@dataclass(frozen=True)
class Collected:
    """What a collection did."""

    lapsed_intents: int = 0
    orphans: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()  # the names, or generations, of those that are gone

    def __add__(self, other: Collected) -> Collected:
        return Collected(
            self.lapsed_intents + other.lapsed_intents,
            self.orphans + other.orphans,
            self.released + other.released,
            self.branches + other.branches,
        )


def collect_garbage(
    catalog: Catalog, storage: Storage, now: int, grace_us: int = GRACE_US, held_from: int = NOT_HELD
) -> Collected:
    """Remove the garbage that there is at `now`, but what was released at the order `held_from` or later."""
    return sum(collect_in_portions(catalog, storage, now, grace_us, held_from), Collected())


def collect_in_portions(
    catalog: Catalog, storage: Storage, now: int, grace_us: int = GRACE_US, held_from: int = NOT_HELD
) -> Iterator[Collected]:
    """The same, a bounded amount of work at a time, for as long as somebody asks for the next."""
    lapsed = _lapse(catalog, now)
    if lapsed:
        yield Collected(lapsed_intents=lapsed)
    while (orphans := _sweep(catalog, storage)) is not None:
        yield Collected(orphans=tuple(orphans))
    while (released := _remove_released(catalog, storage, now - grace_us, held_from)) is not None:
        yield Collected(released=tuple(released))


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


def _sweep(catalog: Catalog, storage: Storage) -> list[str] | None:
    """Remove the orphans of some ended intents, and forget these; None if there are none."""
    intents = tables.intents
    with catalog.read() as connection:
        ended = connection.execute(
            sa.select(intents.c.id, intents.c.stream_id).where(intents.c.state.in_([ENDED, LAPSED])).limit(_BATCH)
        ).all()
    if not ended:
        return None
    files = {directory: storage.files(directory) for directory in (storage.directory(i.stream_id, i.id) for i in ended)}
    with catalog.read() as connection:
        needed = _referred_to(connection, [i.id for i in ended], [f for found in files.values() for f in found])
    removed = []
    for directory, found in files.items():
        removed += [file for file in found if file not in needed and storage.remove(file)]
        if not any(file in needed for file in found):
            storage.remove_directory(directory)
    with catalog.write() as connection:
        connection.execute(intents.delete().where(intents.c.id.in_([i.id for i in ended]), intents.c.state != OPEN))
    return removed


def _referred_to(connection: sa.Connection, intent_ids: Iterable[str], files: Iterable[str]) -> set[str]:
    """Those files of some intents that a header refers to, or that are released and wait for the end of their grace."""
    segments, garbage = tables.segments, tables.garbage
    referred = sa.select(segments.c.path).where(segments.c.intent_id.in_(list(intent_ids)))
    needed = set(connection.execute(referred).scalars()) | set(files_of_intents(connection, list(intent_ids)))
    others = [file for file in files if file not in needed]
    for start in range(0, len(others), _BATCH):
        waiting = sa.select(garbage.c.path).where(garbage.c.path.in_(others[start : start + _BATCH]))
        needed |= set(connection.execute(waiting).scalars())
    return needed


def _remove_released(catalog: Catalog, storage: Storage, before: int, held_from: int) -> list[str] | None:
    """Remove some released files; None if there are none."""
    garbage = tables.garbage
    with catalog.read() as connection:
        old = sa.select(garbage.c.path).where(garbage.c.released_at <= before, garbage.c.released_order < held_from)
        paths = connection.execute(old.order_by(garbage.c.released_at).limit(_BATCH)).scalars().all()
    if not paths:
        return None
    removed = [path for path in paths if storage.remove(path)]
    with catalog.write() as connection:
        connection.execute(garbage.delete().where(garbage.c.path.in_(paths)))
        _forget_empty(connection, storage, {path.rpartition("/")[0] for path in paths})
    return removed


def _forget_empty(connection: sa.Connection, storage: Storage, directories: set[str]) -> None:
    """Remove the directories of ended intents once nothing is left in them."""
    intents = tables.intents
    of_intents = {directory.rpartition("/")[2]: directory for directory in directories}
    still_open = set(
        connection.execute(
            sa.select(intents.c.id).where(intents.c.id.in_(list(of_intents)), intents.c.state == OPEN)
        ).scalars()
    )
    gone = [i for i, directory in of_intents.items() if i not in still_open and storage.remove_directory(directory)]
    connection.execute(intents.delete().where(intents.c.id.in_(gone)))


def release_files(connection: sa.Connection, paths: list[str], now: int) -> None:
    """Give files of removed segments to the collector."""
    if paths:
        connection.execute(RELEASE, [{"path": path, "released_at": now} for path in paths])
