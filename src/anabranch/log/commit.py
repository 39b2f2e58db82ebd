"""Committing a run: identity, stamp, position, progress and header, in one transaction.

The transaction is the only place where a run gets a position. It runs alone (see `catalog`), so
positions are dense, stamps given here rise with them, and a run that was committed before under the same identity
is recognised. What a stream knows of itself (rows, ranges, marks of its sources, progress) is kept up
to date here, at a cost that does not depend on how many runs came before.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.headers import classes_of, header_from, header_values, insert_segments, segment_values
from anabranch.model.errors import AnabranchError
from anabranch.model.progress import evaluate
from anabranch.model.run import Role, RunDraft, RunHeader, RunId, RunKind, Stability
from anabranch.model.stamp import next_stime
from anabranch.model.stream import StreamSpec

# Appends without a source name are one source.
NO_SOURCE = ""


def commit_run(
    connection: sa.Connection, stream_id: int, draft: RunDraft, *, clock: int, intent_id: str | None = None
) -> RunHeader:
    """Make a run part of the stable log. The caller holds the transaction and has checked the intent."""
    state = _stream_state(connection, stream_id)
    earlier = find_run(connection, stream_id, draft.run_id)
    if earlier is not None:
        return header_from(earlier, state.name, duplicate=True)
    run_id = _number(connection, state, draft.run_id)
    stime = _stamp(connection, state, draft, clock)
    progress = _progress(connection, state, draft)
    header = _header(state, draft, run_id, stime, progress)
    connection.execute(tables.runs.insert(), header_values(header, stream_id))
    insert_segments(
        connection,
        [
            segment_values(s, stream_id, intent_id, header.position, header.position, stime=stime, source=draft.source)
            for s in draft.segments
        ],
    )
    _update_stream(connection, state, header, draft)
    return header


def _stream_state(connection: sa.Connection, stream_id: int) -> Any:
    row = connection.execute(
        sa.select(tables.streams, tables.warehouse.c.last_stime, tables.warehouse.c.entry_point)
        .join(tables.warehouse, sa.true())
        .where(tables.streams.c.id == stream_id)
    ).first()
    if row is None:
        raise AnabranchError(
            "UNKNOWN_STREAM",
            place=f"stream number {stream_id}",
            need="a stream that exists",
            got="one that was dropped while this writer was at work",
            next_step="Create the stream again, or stop writing to it; nothing was committed.",
        )
    return row


def find_run(connection: sa.Connection, stream_id: int, run_id: RunId | None) -> Any:
    """The header's row of a run that was committed before, also if it was folded since."""
    if run_id is None:
        return None
    runs = tables.runs
    row = connection.execute(
        sa.select(runs).where(
            runs.c.stream_id == stream_id,
            runs.c.entry_point == run_id.entry_point,
            runs.c.sequence == run_id.sequence,
        )
    ).first()
    if row is None and _is_folded(connection, stream_id, run_id):
        row = connection.execute(
            sa.select(runs).where(runs.c.stream_id == stream_id).order_by(runs.c.position).limit(1)
        ).first()
    return row


def _is_folded(connection: sa.Connection, stream_id: int, run_id: RunId) -> bool:
    folded = tables.folded_runs
    last = connection.execute(
        sa.select(folded.c.last_sequence)
        .where(
            folded.c.stream_id == stream_id,
            folded.c.entry_point == run_id.entry_point,
            folded.c.first_sequence <= run_id.sequence,
        )
        .order_by(folded.c.first_sequence.desc())
        .limit(1)
    ).scalar()
    return last is not None and last >= run_id.sequence


def _number(connection: sa.Connection, state: Any, run_id: RunId | None) -> RunId:
    table = tables.sequences
    entry_point = state.entry_point if run_id is None else run_id.entry_point
    here = (table.c.stream_id == state.id) & (table.c.entry_point == entry_point)
    last = connection.execute(sa.select(table.c.last_sequence).where(here)).scalar()
    sequence = (last or 0) + 1 if run_id is None else run_id.sequence
    if last is None:
        connection.execute(table.insert().values(stream_id=state.id, entry_point=entry_point, last_sequence=sequence))
    elif sequence > last:
        connection.execute(table.update().where(here).values(last_sequence=sequence))
    return RunId(entry_point, sequence)


def _stamp(connection: sa.Connection, state: Any, draft: RunDraft, clock: int) -> int:
    if draft.stime is not None:
        return draft.stime
    stime = next_stime(state.last_stime, clock)
    connection.execute(tables.warehouse.update().values(last_stime=stime))
    return stime


def _progress(connection: sa.Connection, state: Any, draft: RunDraft) -> int | None:
    """Progress with this run. A derived run brings its own; a base run moves the mark of its source."""
    spec = StreamSpec.from_json(state.spec)
    if draft.progress is not None:
        return evaluate(state.progress, draft.progress, None, None)
    previous = state.progress
    if draft.kind is RunKind.PUNCTUATION and draft.source is None:
        previous = evaluate(previous, draft.mark, None, None)
    else:
        latest = draft.event_range[1]
        mark = draft.mark if draft.kind is RunKind.PUNCTUATION else None if latest is None else latest - spec.slack
        if mark is not None:
            _raise_mark(connection, state.id, draft.source or NO_SOURCE, mark)
    return evaluate(previous, *extreme_marks(connection, state.id), spec.drift)


def extreme_marks(connection: sa.Connection, stream_id: int) -> tuple[int | None, int | None]:
    """The lowest and the highest mark of a stream's sources."""
    marks = tables.sources
    # Two subqueries, each the end of an index; asked for together, SQLite would look at every source.
    lowest, highest = connection.execute(
        sa.select(
            sa.select(sa.func.min(marks.c.mark)).where(marks.c.stream_id == stream_id).scalar_subquery(),
            sa.select(sa.func.max(marks.c.mark)).where(marks.c.stream_id == stream_id).scalar_subquery(),
        )
    ).one()
    return lowest, highest


def _raise_mark(connection: sa.Connection, stream_id: int, source: str, mark: int) -> None:
    table = tables.sources
    here = (table.c.stream_id == stream_id) & (table.c.source == source)
    known = connection.execute(sa.select(table.c.mark).where(here)).scalar()
    if known is None:
        connection.execute(table.insert().values(stream_id=stream_id, source=source, mark=mark))
    elif mark > known:
        connection.execute(table.update().where(here).values(mark=mark))


def _header(state: Any, draft: RunDraft, run_id: RunId, stime: int, progress: int | None) -> RunHeader:
    event_min, event_max = draft.event_range
    key_min, key_max = _key_range(draft, StreamSpec.from_json(state.spec))
    position = state.last_position + 1
    return RunHeader(
        stream=state.name,
        position=position,
        first_position=position,
        run_id=run_id,
        stime=stime,
        bucket=draft.bucket,
        source=draft.source,
        kind=draft.kind,
        rows=draft.rows,
        quarantined=sum(s.rows for s in draft.segments if s.role is Role.QUARANTINE),
        size=sum(s.size for s in draft.segments if not (s.reference and s.role is Role.QUARANTINE)),
        event_min=event_min,
        event_max=event_max,
        key_min=key_min,
        key_max=key_max,
        mark=draft.mark,
        progress=progress,
        progress_before=state.progress,
        stability=Stability.STABLE,
        cause=draft.cause,
        supersedes=draft.supersedes,
        schema_version=state.schema_version,
    )


def _key_range(draft: RunDraft, spec: StreamSpec) -> tuple[str | None, str | None]:
    """The range over all segments; unknown as soon as it is unknown for one of them."""
    lows = [s.key_min for s in draft.data if s.key_min is not None]
    highs = [s.key_max for s in draft.data if s.key_max is not None]
    if not spec.key or not lows or len(lows) < len(draft.data):
        return None, None

    # Decimals are written as text so that they stay exact, and must not be compared as such.
    exact = spec.schema[spec.key[0]].type.startswith("DECIMAL")

    def value(text: str) -> Any:
        return Decimal(json.loads(text)) if exact else json.loads(text)

    return min(lows, key=value), max(highs, key=value)


def _update_stream(connection: sa.Connection, state: Any, header: RunHeader, draft: RunDraft) -> None:
    connection.execute(
        tables.streams.update()
        .where(tables.streams.c.id == state.id)
        .values(
            last_position=header.position,
            progress=header.progress,
            runs=state.runs + 1,
            rows=state.rows + header.rows,
            quarantined=state.quarantined + header.quarantined,
            size=state.size + header.size,
            event_min=_least(state.event_min, header.event_min),
            event_max=_most(state.event_max, header.event_max),
            width_classes=state.width_classes | classes_of(draft.segments),
            first_revision=_first_revision(state, header),
        )
    )


def _first_revision(state: Any, header: RunHeader) -> int | None:
    if state.first_revision is None and header.kind is RunKind.REVISIONS:
        return header.position
    return None if state.first_revision is None else int(state.first_revision)


def _least(a: int | None, b: int | None) -> int | None:
    return min((v for v in (a, b) if v is not None), default=None)


def _most(a: int | None, b: int | None) -> int | None:
    return max((v for v in (a, b) if v is not None), default=None)
