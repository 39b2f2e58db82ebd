"""Taking runs from elsewhere: their rows are written here, or referred to, and the runs staged (see `staging`).

Call order: begin an intent and write segments under it, or make references; then `take`, which ends the intent. The
same identity again changes nothing, and the files that came with it are garbage.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import Catalog
from anabranch.log.clock import Clock
from anabranch.log.commit import Output, commit_runs
from anabranch.log.intents import end_intents, require_open
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunDraft, RunHeader
from anabranch.model.time import instant_text


class Copies:
    """Copied runs of one warehouse."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self.catalog = catalog
        self.clock = clock

    def expect(self, stream_id: int) -> None:
        """A base stream will take copies: its own runs too get positions when their bucket is recorded."""
        with self.catalog.write() as connection:
            begin_to_take(connection, stream_id)

    def take(
        self, stream_id: int, drafts: Sequence[RunDraft], *, intent_id: str | None = None, refuse_late: bool = False
    ) -> list[RunHeader]:
        """Stage runs that have an identity and a stamp; those that were taken before are marked as duplicates.

        `refuse_late` makes it an error that a new one belongs to a bucket which is recorded already.
        """
        assert all(d.run_id is not None and d.stime is not None for d in drafts), "copies bring identity and stamp"
        now = self.clock()
        with self.catalog.write() as connection:
            if intent_id is not None:
                place = f"copies into stream number {stream_id}"
                again = "Take the runs again; nothing was staged."
                require_open(connection, intent_id, now=now, place=place, next_step=again)
            begin_to_take(connection, stream_id)
            outputs = [Output(stream_id, draft, intent_id) for draft in drafts]
            headers = commit_runs(connection, outputs, clock=now)
            if refuse_late:
                require_in_time(connection, [header for header in headers if not header.duplicate])
            if intent_id is not None:
                end_intents(connection, intent_id)
        return headers


def begin_to_take(connection: sa.Connection, stream_id: int) -> None:
    """From now on the runs of a stream get positions when a bucket is recorded."""
    streams = tables.streams
    connection.execute(streams.update().where(streams.c.id == stream_id).values(takes_copies=True))


def require_in_time(connection: sa.Connection, headers: Sequence[RunHeader]) -> None:
    """Refuse runs that belong to a bucket which is recorded already."""
    table = tables.buckets
    last = connection.execute(sa.select(table).order_by(table.c.number.desc()).limit(1)).first()
    for header in headers:
        if last is not None and header.stime <= last.stime:
            raise AnabranchError(
                "RUN_TOO_LATE",
                place=f"run {header.run_id} of stream {header.stream!r}",
                need=f"a stamp after {instant_text(last.stime)}, where bucket {last.number} ended",
                got=instant_text(header.stime),
                next_step="Copy runs before their bucket is recorded, or let late ones go into the next bucket.",
            )
