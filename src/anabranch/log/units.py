"""Units of work: many appends, one run, one commit.

A unit of work writes its segments as it goes and becomes one run when it commits; an exception inside
its `with` block aborts it. Sequence, stamp and position are given at commit. A *speculative* unit shows
its rows at once to readers that ask for tentative rows: each append goes into the overlay, on top of
the stable position that it found. Commit moves what is there into the log; abort, or the lapse of
the unit's lease, removes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.commit import commit_run, find_run
from anabranch.log.copies import begin_to_take
from anabranch.log.headers import insert_segments, note_classes, segment_values
from anabranch.log.intake import admit, check_policy
from anabranch.log.intents import Intent, drop_overlay, end_intents, require_open
from anabranch.log.rows import CHANGE_TYPE, to_table
from anabranch.log.segments import SegmentLayout, numbered, remove_files, write_segments
from anabranch.model.errors import AnabranchError
from anabranch.model.run import ChangeType, Role, RunDraft, RunHeader, RunId, RunKind, Segment
from anabranch.model.stream import StreamSpec
from anabranch.model.time import instant_text

_AGAIN = "Append the rows again; nothing was committed."

if TYPE_CHECKING:
    from anabranch.log.log import Log


class UnitOfWork:
    """An open unit of work on one stream. Not for several threads at once."""

    def __init__(
        self,
        log: Log,
        stream_id: int,
        spec: StreamSpec,
        *,
        source: str | None = None,
        run_id: RunId | None = None,
        stime: int | None = None,
        speculative: bool = False,
        on_bad_rows: str = "refuse",
        cause: Mapping[str, Any] | None = None,
        single: bool = False,
        intent: Intent | None = None,
    ) -> None:
        check_policy(on_bad_rows)
        assert not (speculative and single), "an overlay generation belongs to one unit of work"
        self.spec = spec
        self.stream_id = stream_id
        self.on_bad_rows = on_bad_rows
        self.bounds = spec.bounds(log.clock())
        self._log = log
        self._source = source
        self._run_id = run_id
        self._stime = stime  # of a run that is copied from elsewhere, where it was stamped
        self._speculative = speculative
        self._cause = cause
        self._single = single  # one append, one commit: the process's shared intent will do
        self._intent = intent  # None: one is begun when it is needed
        self._segments: list[Segment] = []
        self._kind = RunKind.ROWS
        self._next_ordinal = 0
        self._overlay_items = 0
        self._done: str | None = None

    def append(self, data: Any, *, time_zone: str | None = None) -> None:
        """Add rows, Arrow or pandas data; `_change_type` may say what each row is."""
        self._require_open()
        self._append_table(to_table(data, self.spec, time_zone=time_zone))

    def replace(self, rows: Any, *, time_zone: str | None = None) -> None:
        """Add rows that take the place of those with the same key."""
        spec = self.keyed(ChangeType.UPDATE_POSTIMAGE)
        self._revise(to_table(rows, spec, time_zone=time_zone), ChangeType.UPDATE_POSTIMAGE)

    def delete(self, keys: Any, *, time_zone: str | None = None) -> None:
        """Delete the rows with these keys: rows of the key columns, or bare values for a key of one column."""
        key = self.keyed(ChangeType.DELETE).key
        if len(key) == 1 and isinstance(keys, Sequence) and not isinstance(keys, str | bytes):
            keys = [k if isinstance(k, Mapping | tuple | list) else (k,) for k in keys]
        self._revise(to_table(keys, self.spec, columns=key, time_zone=time_zone), ChangeType.DELETE)

    def keyed(self, change: ChangeType) -> StreamSpec:
        """The stream's declaration, if it has a key by which to revise."""
        self._require_open()
        verb = "delete" if change is ChangeType.DELETE else "replace"
        if not self.spec.key:
            raise AnabranchError(
                "NOT_KEYED",
                place=f"{verb}() on stream {self.spec.name!r}",
                need="a stream with a key",
                got="one without",
                next_step="Declare the stream with key=..., or append whole rows with _change_type 'delete'.",
            )
        return self.spec

    def _revise(self, table: pa.Table, change: ChangeType) -> None:
        if CHANGE_TYPE in table.column_names:
            table = table.drop_columns([CHANGE_TYPE])
        column = pa.repeat(pa.scalar(change.value), table.num_rows)
        self._append_table(table.append_column(CHANGE_TYPE, column))

    def _append_table(self, table: pa.Table) -> None:
        admitted = admit(table, self.spec, self.bounds, self.on_bad_rows)
        layout = self.layout()
        good = numbered(admitted.good, self._next_ordinal)
        written = write_segments(layout, good)
        try:
            if admitted.quarantined is not None:
                written += write_segments(layout, admitted.quarantined, Role.QUARANTINE)
            self.add(written, revisions=CHANGE_TYPE in table.column_names, ordinals=admitted.good.num_rows)
        except BaseException:
            if not self._speculative:  # the overlay may know them already; the end of the intent removes them
                remove_files(layout.root, written)
            raise

    def layout(self) -> SegmentLayout:
        """Where this unit's segments go. Registers the intent, so that they are safe there."""
        self._require_open()
        if self._intent is None:
            intents = self._log.intents
            self._intent = intents.share(self.stream_id) if self._single else intents.begin(self.stream_id)
        directory = self._log.storage.directory(self.stream_id, self._intent.id)
        self._log.storage.make_directory(directory)
        return SegmentLayout(
            root=str(self._log.root),
            directory=directory,
            event_time=self.spec.event_time,
            key=self.spec.key[0] if self.spec.key else None,
            threads=os.cpu_count() or 1,
        )

    def add(self, segments: Iterable[Segment], *, revisions: bool = False, ordinals: int = 0) -> None:
        """Take segments that were written under `layout()`, or references, as the next part of the run."""
        self._require_open()
        added = list(segments)
        if self._speculative and added:
            self._show(added, revisions)
        self._segments += added
        self._kind = RunKind.REVISIONS if revisions else self._kind
        self._next_ordinal += ordinals

    @property
    def next_ordinal(self) -> int:
        return self._next_ordinal

    def _show(self, added: list[Segment], revisions: bool) -> None:
        """Put an append of a speculative unit into the overlay."""
        self.layout()
        assert self._intent is not None
        part = RunDraft(RunKind.REVISIONS if revisions else RunKind.ROWS, tuple(added))
        with self._log.catalog.write() as connection:
            require_open(connection, self._intent.id, now=self._log.clock(), place=self._place, next_step=_AGAIN)
            if find_run(connection, self.stream_id, self._run_id) is not None:
                return  # a retry of a run that is in the log: its rows are there to be seen
            base = connection.execute(
                sa.select(tables.streams.c.last_position).where(tables.streams.c.id == self.stream_id)
            ).scalar_one()
            event_min, event_max = part.event_range
            item = connection.execute(
                tables.overlay.insert().values(
                    stream_id=self.stream_id,
                    generation=self._intent.id,
                    ordinal=self._overlay_items,
                    site=self._log.entry_point,
                    base_position=base,
                    source=self._source,
                    kind=str(part.kind),
                    rows=part.rows,
                    event_min=event_min,
                    event_max=event_max,
                )
            ).inserted_primary_key
            assert item is not None
            insert_segments(
                connection,
                [
                    segment_values(
                        s, self.stream_id, self._intent.id, None, None, source=self._source, overlay_id=item[0]
                    )
                    for s in added
                ],
            )
            note_classes(connection, self.stream_id, added)
        self._overlay_items += 1

    @property
    def _place(self) -> str:
        return f"unit of work on stream {self.spec.name!r}"

    def commit(self) -> RunHeader:
        """Make the run part of the log; it is durable when this returns."""
        self._require_open()
        draft = RunDraft(
            kind=self._kind,
            segments=tuple(self._segments),
            source=self._source,
            run_id=self._run_id,
            stime=self._stime,
            cause=self._cause,
        )
        # From here on only this method decides about the files: an interrupt may come after the commit.
        self._done = "committing"
        header: RunHeader | None = None
        try:
            with self._log.catalog.write() as connection:
                made = self._commit_inside(connection, draft)
                header = made
        except BaseException as error:
            header = self._after_failure(error, header)
        self._done = "committed"
        if self._intent is not None and self._single:
            self._log.intents.release(self._intent)
        elif self._intent is not None:
            self._log.intents.forget(self._intent)
        if header.duplicate:
            remove_files(str(self._log.root), self._segments)
        return header

    def _commit_inside(self, connection: sa.Connection, draft: RunDraft) -> RunHeader:
        now = self._log.clock()
        intent_id = None if self._intent is None else self._intent.id
        if intent_id is not None:
            require_open(connection, intent_id, now=now, place=self._place, next_step=_AGAIN)
            drop_overlay(connection, intent_id)
        if self._stime is not None:
            begin_to_take(connection, self.stream_id)
        header = commit_run(connection, self.stream_id, draft, clock=now, intent_id=intent_id)
        if intent_id is not None and not self._single:
            end_intents(connection, intent_id)
        return header

    def _after_failure(self, error: BaseException, header: RunHeader | None) -> RunHeader:
        """A commit raised. If it had come to the commit itself, the run may be in the log all the same."""
        self._done = "aborted"
        if header is None:  # rolled back for certain
            self._roll_back(error)
            raise error
        if not isinstance(error, AnabranchError):
            raise error  # an interrupt: the files stay, and garbage collection compares them with the log
        try:
            found = self._find_out(header)
        except AnabranchError:
            found = None
        if found is None:
            raise self._uncertain(error, header) from error
        if not found:
            self._roll_back(error)
            raise error
        return header

    def _roll_back(self, error: BaseException) -> None:
        if self._intent is not None:
            if isinstance(error, AnabranchError) and error.id == "INTENT_LAPSED":
                self._log.intents.lapsed(self._intent)
            self._log.intents.release(self._intent)
        remove_files(str(self._log.root), self._segments)

    def _find_out(self, header: RunHeader) -> bool | None:
        """Whether a run is in the log; None if compaction has made that impossible to tell.

        A write waits for its turn, so the transaction in doubt has ended one way or the other by then.
        """
        with self._log.catalog.write() as connection:
            row = find_run(connection, self.stream_id, header.run_id)
        if row is None:
            return False
        if row.kind == RunKind.COMPACTED or (row.entry_point, row.sequence) != header.run_id:
            return None  # its identity is known, its header was folded
        return bool(row.stime == header.stime)

    def _uncertain(self, error: AnabranchError, header: RunHeader) -> AnabranchError:
        if self._run_id is not None:
            advice = (
                f"Append the same rows again with run_id={tuple(self._run_id)!r}: if they are there, nothing changes."
            )
        else:
            advice = (
                f"Look in the log of {self.spec.name!r} for run {header.run_id}, stamped {instant_text(header.stime)}; "
                "append again only if it is not there. With a run_id= of your own, appending again is always safe."
            )
        return AnabranchError(
            "COMMIT_UNCERTAIN", place=self._place, need="an answer from the catalog", got=error.got, next_step=advice
        )

    def abort(self) -> None:
        """Forget everything that was appended."""
        if self._done is not None:
            return
        self._done = "aborted"
        if self._intent is None:
            return
        self._log.intents.release(self._intent)
        remove_files(str(self._log.root), self._segments)

    def _require_open(self) -> None:
        if self._done is not None:
            raise AnabranchError(
                "ENGINE_CLOSED",
                place=self._place,
                need="an open unit of work",
                got=f"one that was {self._done}",
                next_step="Begin another one.",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._done is None:
            self.commit()
        else:
            self.abort()
