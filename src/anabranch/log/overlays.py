"""What is tentative: the items of open speculative units of work, and what was derived from them.

An item of a unit of work is an overlay row of its base stream. Partial results of it are an overlay row of
their store with the same generation, so that the end of the unit, by commit, abort or lapse, removes
them together. What a query has said of them is undone by the next engine that advances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import Catalog
from anabranch.log.clock import Clock
from anabranch.log.commit import NO_SOURCE, commit_run
from anabranch.log.headers import insert_segments, logged_from, note_classes, segment_values
from anabranch.log.intents import OPEN, end_intents, require_open
from anabranch.log.leases import Lease, require_lease
from anabranch.log.queries import StoredQuery
from anabranch.model.progress import evaluate
from anabranch.model.run import LoggedSegment, RunDraft, RunKind, Segment
from anabranch.model.stream import StreamSpec

_AGAIN = "Advance again; nothing was committed."


@dataclass(frozen=True)
class OverlayItem:
    """One append of a speculative unit of work."""

    id: int
    stream_id: int
    generation: str
    ordinal: int
    source: str | None
    event_max: int | None
    revisions: bool
    segments: tuple[LoggedSegment, ...]


def open_items(connection: sa.Connection, stream_id: int, now: int) -> list[OverlayItem]:
    """The items of a stream whose units of work are open, in order."""
    overlay, intents, segments = tables.overlay, tables.intents, tables.segments
    rows = connection.execute(
        sa.select(overlay)
        .join(intents, intents.c.id == overlay.c.generation)
        .where(overlay.c.stream_id == stream_id, intents.c.state == OPEN, intents.c.expires_at > now)
        .order_by(overlay.c.id)
    ).all()
    if not rows:
        return []
    files: dict[int, list[LoggedSegment]] = {}
    found = connection.execute(sa.select(segments).where(segments.c.overlay_id.in_([row.id for row in rows])))
    for row in found.all():
        files.setdefault(row.overlay_id, []).append(logged_from(row))
    return [
        OverlayItem(
            row.id, stream_id, row.generation, row.ordinal, row.source, row.event_max,
            row.kind == str(RunKind.REVISIONS), tuple(files.get(row.id, ())),
        )
        for row in rows
    ]  # fmt: skip


def tentative_progress(connection: sa.Connection, stream_id: int, items: Sequence[OverlayItem]) -> int | None:
    """The progress that a stream would have if its open units of work committed now."""
    streams, marks = tables.streams, tables.sources
    stream = connection.execute(sa.select(streams).where(streams.c.id == stream_id)).one()
    spec = StreamSpec.from_json(stream.spec)
    known: dict[str, int] = {
        row.source: row.mark for row in connection.execute(sa.select(marks).where(marks.c.stream_id == stream_id))
    }
    for item in items:
        if item.event_max is not None:
            source, mark = item.source or NO_SOURCE, item.event_max - spec.slack
            known[source] = max(mark, known.get(source, mark))
    lowest, highest = min(known.values(), default=None), max(known.values(), default=None)
    return evaluate(stream.bucket_progress, lowest, highest, spec.drift)


def add_derived(
    connection: sa.Connection, stream_id: int, item: OverlayItem, site: str, written: Sequence[Segment], intent: str
) -> None:
    """Keep the partial results of an overlay item for as long as the item is there."""
    made = connection.execute(
        tables.overlay.insert().values(
            stream_id=stream_id,
            generation=item.generation,
            ordinal=item.id,
            site=site,
            base_position=0,
            source=item.source,
            kind=str(RunKind.PARTIALS),
            rows=sum(s.rows for s in written),
        )
    ).inserted_primary_key
    assert made is not None
    insert_segments(connection, [segment_values(s, stream_id, intent, None, None, overlay_id=made[0]) for s in written])
    note_classes(connection, stream_id, written)


class Overlays:
    """Transactions on what is tentative in one warehouse."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self.catalog = catalog
        self.clock = clock

    def anything_open(self) -> bool:
        with self.catalog.read() as connection:
            return connection.execute(sa.select(tables.overlay.c.id).limit(1)).first() is not None

    def overlay_of(self, stream_id: int) -> tuple[tuple[OverlayItem, ...], int | None]:
        """The open items of a base stream, and the progress with them."""
        with self.catalog.read() as connection:
            items = open_items(connection, stream_id, self.clock())
            return tuple(items), tentative_progress(connection, stream_id, items)

    def derived_of(self, stream_id: int) -> set[int]:
        """The base items of which a store has partial results."""
        overlay = tables.overlay
        with self.catalog.read() as connection:
            query = sa.select(overlay.c.ordinal).where(overlay.c.stream_id == stream_id)
            return set(connection.execute(query).scalars())

    def derived_ranges(self, stream_id: int) -> list[tuple[int, int]]:
        """The event times of the tentative partial results of a store."""
        segments = tables.segments
        with self.catalog.read() as connection:
            query = sa.select(segments.c.event_min, segments.c.event_max).where(
                segments.c.stream_id == stream_id, segments.c.overlay_id.is_not(None)
            )
            rows = connection.execute(query).all()
        return [(row.event_min, row.event_max) if row.event_min is not None else (-(1 << 62), 1 << 62) for row in rows]

    def add_derived(
        self, lease: Lease, stream_id: int, item: OverlayItem, site: str, written: Sequence[Segment], intent_id: str
    ) -> bool:
        """Keep partial results of an item; False if its unit has ended meanwhile."""
        now = self.clock()
        with self.catalog.write() as connection:
            require_lease(connection, lease)
            place = "partial results of a speculative unit of work"
            require_open(connection, intent_id, now=now, place=place, next_step=_AGAIN)
            there = connection.execute(sa.select(tables.overlay.c.id).where(tables.overlay.c.id == item.id)).first()
            if there is not None:
                add_derived(connection, stream_id, item, site, written, intent_id)
            end_intents(connection, intent_id)
        return there is not None

    def say_tentative(
        self, lease: Lease, query: StoredQuery, draft: RunDraft | None, intent_id: str, said: Mapping[str, Any]
    ) -> None:
        """Commit what a query says tentatively, and remember that it did."""
        self._commit(lease, query, draft, intent_id, said)

    def undo(self, lease: Lease, query: StoredQuery, draft: RunDraft | None, intent_id: str | None) -> None:
        """Commit the inverse of what a query has said tentatively."""
        self._commit(lease, query, draft, intent_id, None)

    def _commit(
        self, lease: Lease, query: StoredQuery, draft: RunDraft | None, intent_id: str | None,
        said: Mapping[str, Any] | None,
    ) -> None:  # fmt: skip
        now = self.clock()
        queries = tables.queries
        with self.catalog.write() as connection:
            require_lease(connection, lease)
            if intent_id is not None:
                place = f"tentative answer of {query.name!r}"
                require_open(connection, intent_id, now=now, place=place, next_step=_AGAIN)
            position = None
            if draft is not None:
                position = commit_run(connection, query.feed_id, draft, clock=now, intent_id=intent_id).position
            if intent_id is not None:
                end_intents(connection, intent_id)
            value = None if said is None else {**said, "position": position}
            connection.execute(queries.update().where(queries.c.id == query.id).values(tentative=value))

    def stime_of(self, bucket: int) -> int:
        with self.catalog.read() as connection:
            query = sa.select(tables.buckets.c.stime).where(tables.buckets.c.number == bucket)
            return int(connection.execute(query).scalar_one())
