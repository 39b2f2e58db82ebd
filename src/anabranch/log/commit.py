"""Committing runs: identity, stamp, position, progress and header, in one transaction.

The transaction is the only place where a run gets a position. It runs alone (see `catalog`), so
positions are dense, stamps given here rise with them, and a run that was committed before under the same identity
is recognised. What a stream knows of itself (rows, ranges, marks of its sources, progress) is kept up
to date here, at a cost that does not depend on how many runs came before. Many runs take hardly more statements
than one. In a stream that takes copied runs a commit gives identity and stamp, and no position: the run is staged
(see `staging`) until its bucket is recorded, which commits it again, with one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.headers import classes_of, header_from, header_values, insert_segments, segment_values
from anabranch.log.staging import find_staged, insert_staged
from anabranch.model.errors import AnabranchError
from anabranch.model.progress import evaluate
from anabranch.model.run import Role, RunDraft, RunHeader, RunId, RunKind, Stability
from anabranch.model.stamp import next_stime
from anabranch.model.stream import StreamSpec

# Appends without a source name are one source.
NO_SOURCE = ""

# Statements of every commit, made once: to put one together takes as long as to run it.
_STATES = (
    sa.select(tables.streams, tables.warehouse.c.last_stime, tables.warehouse.c.entry_point)
    .join(tables.warehouse, sa.true())
    .where(tables.streams.c.id.in_(sa.bindparam("ids", expanding=True)))
)
_SEQUENCES = (
    sa.select(tables.sequences)
    .where(tables.sequences.c.stream_id.in_(sa.bindparam("ids", expanding=True)))
    .where(tables.sequences.c.entry_point.in_(sa.bindparam("entry_points", expanding=True)))
)
# What a run changes of its stream.
_CHANGED = (
    "last_position", "progress", "runs", "rows", "quarantined", "size", "event_min", "event_max", "width_classes",
    "first_revision",
)  # fmt: skip
_CHANGE_STREAM = (
    tables.streams.update()
    .where(tables.streams.c.id == sa.bindparam("its_id"))
    .values({name: sa.bindparam(f"its_{name}") for name in _CHANGED})
)
_MOVE_SEQUENCE = (
    tables.sequences.update()
    .where(tables.sequences.c.stream_id == sa.bindparam("its_stream"))
    .where(tables.sequences.c.entry_point == sa.bindparam("its_entry_point"))
    .values(last_sequence=sa.bindparam("its_last"))
)


@dataclass(frozen=True)
class Output:
    """A run that was produced, and the intent under which its segments were written."""

    stream_id: int
    draft: RunDraft
    intent_id: str | None = None


def commit_run(
    connection: sa.Connection, stream_id: int, draft: RunDraft, *, clock: int, intent_id: str | None = None
) -> RunHeader:
    """Make a run part of the stable log. The caller holds the transaction and has checked the intent."""
    return commit_runs(connection, [Output(stream_id, draft, intent_id)], clock=clock)[0]


def commit_runs(
    connection: sa.Connection, outputs: Sequence[Output], *, clock: int, recording: bool = False
) -> list[RunHeader]:
    """The same for several runs, one after the other; no two of the same identity. Recording gives all a position."""
    states = _stream_states(connection, {output.stream_id for output in outputs})
    numbers = _Numbers(connection, [(states[o.stream_id], o.draft.run_id) for o in outputs])
    stamps = _Stamps(connection, states.values())
    headers, runs, segments, staged = [], [], [], []
    for output in outputs:
        state, draft = states[output.stream_id], output.draft
        earlier = find_run(connection, state.id, draft.run_id)
        if earlier is not None:
            headers.append(header_from(earlier, state.name, duplicate=True))
            continue
        stime = stamps.next(clock) if draft.stime is None else draft.stime
        if state.takes_copies and not recording:
            header = _without_position(_header(state, draft, numbers.next(state, draft.run_id), stime, None))
            if header.run_id.entry_point == state.entry_point:
                stamps.follow(stime)
            headers.append(header)
            staged.append((header, state.id, output))
            continue
        progress = _progress(connection, state, draft)
        header = _header(state, draft, numbers.next(state, draft.run_id), stime, progress)
        headers.append(header)
        runs.append(header_values(header, state.id))
        at = header.position
        segments += [
            segment_values(
                s, state.id, output.intent_id, at, at, stime=stime, run_id=header.run_id, source=draft.source
            )
            for s in draft.segments
        ]
        _follow(state, header, draft)
    if runs or staged:
        numbers.keep()
        stamps.keep()
    insert_staged(connection, [(header, of, o.draft.segments, o.intent_id) for header, of, o in staged])
    if runs:
        connection.execute(tables.runs.insert(), runs)
        insert_segments(connection, segments)
        changed = [states[number] for number in dict.fromkeys(run["stream_id"] for run in runs)]
        connection.execute(_CHANGE_STREAM, [_changes(state) for state in changed])
    return headers


def _stream_states(connection: sa.Connection, stream_ids: Iterable[int]) -> dict[int, Any]:
    wanted = list(stream_ids)
    rows = connection.execute(_STATES, {"ids": wanted})
    found = {row.id: SimpleNamespace(**row._asdict()) for row in rows}
    for stream_id in wanted:
        if stream_id not in found:
            raise AnabranchError(
                "UNKNOWN_STREAM",
                place=f"stream number {stream_id}",
                need="a stream that exists",
                got="one that was dropped while this writer was at work",
                next_step="Create the stream again, or stop writing to it; nothing was committed.",
            )
    return found


def find_run(connection: sa.Connection, stream_id: int, run_id: RunId | None) -> Any:
    """The header's row of a run that was committed before, also if it was folded since, or still waits."""
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
    return find_staged(connection, stream_id, run_id) if row is None else row


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


class _Numbers:
    """The sequence numbers of runs, by stream and entry point."""

    def __init__(self, connection: sa.Connection, runs: Sequence[tuple[Any, RunId | None]]) -> None:
        self.connection = connection
        wanted = {(state.id, _entry_point(state, run_id)) for state, run_id in runs}
        streams, entry_points = (list({pair[n] for pair in wanted}) for n in (0, 1))
        rows = connection.execute(_SEQUENCES, {"ids": streams, "entry_points": entry_points})
        self._known = {(row.stream_id, row.entry_point): row.last_sequence for row in rows}
        self._last: dict[tuple[int, str], int] = {}

    def next(self, state: Any, run_id: RunId | None) -> RunId:
        pair = (state.id, _entry_point(state, run_id))
        last = self._last.get(pair, self._known.get(pair, 0))
        sequence = last + 1 if run_id is None else run_id.sequence
        if sequence > last or pair not in self._known:
            self._last[pair] = max(sequence, last)
        return RunId(pair[1], sequence)

    def keep(self) -> None:
        fresh = [pair for pair in self._last if pair not in self._known]
        moved = [pair for pair in self._last if pair in self._known]
        if fresh:
            names = ("stream_id", "entry_point", "last_sequence")
            values = [dict(zip(names, (*pair, self._last[pair]), strict=True)) for pair in fresh]
            self.connection.execute(tables.sequences.insert(), values)
        if moved:
            changes = [{"its_stream": of, "its_entry_point": at, "its_last": self._last[of, at]} for of, at in moved]
            self.connection.execute(_MOVE_SEQUENCE, changes)


def _entry_point(state: Any, run_id: RunId | None) -> str:
    return str(state.entry_point if run_id is None else run_id.entry_point)


class _Stamps:
    """Stamps that rise from one run of the warehouse to the next."""

    def __init__(self, connection: sa.Connection, states: Iterable[Any]) -> None:
        self.connection = connection
        self._last: int = max(state.last_stime for state in states)
        self._given = False

    def next(self, clock: int) -> int:
        self._last, self._given = next_stime(self._last, clock), True
        return self._last

    def follow(self, stime: int) -> None:
        """Never to stamp at or below a stamp that was given under this warehouse's own name."""
        if stime > self._last:
            self._last, self._given = stime, True

    def keep(self) -> None:
        if self._given:
            self.connection.execute(tables.warehouse.update().values(last_stime=self._last))


def _progress(connection: sa.Connection, state: Any, draft: RunDraft) -> int | None:
    """Progress with this run. A derived run brings its own, or none is known; a base run moves its source's mark."""
    if state.role != tables.BASE:
        return evaluate(state.progress, draft.progress, None, None)
    spec = StreamSpec.from_json(state.spec)
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
    key_min, key_max = _key_range(draft, state)
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
        size=sum(s.size for s in draft.segments if not s.again),
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


def _without_position(header: RunHeader) -> RunHeader:
    return replace(header, position=0, first_position=0, progress_before=None)


def _key_range(draft: RunDraft, state: Any) -> tuple[str | None, str | None]:
    """The range over all segments; unknown as soon as it is unknown for one of them."""
    lows = [s.key_min for s in draft.data if s.key_min is not None]
    highs = [s.key_max for s in draft.data if s.key_max is not None]
    if not lows or len(lows) < len(draft.data):
        return None, None
    spec = StreamSpec.from_json(state.spec)
    if not spec.key:
        return None, None

    # Decimals are written as text so that they stay exact, and must not be compared as such.
    exact = spec.schema[spec.key[0]].type.startswith("DECIMAL")

    def value(text: str) -> Any:
        return Decimal(json.loads(text)) if exact else json.loads(text)

    return min(lows, key=value), max(highs, key=value)


def _follow(state: Any, header: RunHeader, draft: RunDraft) -> None:
    """What a stream knows of itself, after a run."""
    state.first_revision = _first_revision(state, header)
    state.last_position = header.position
    state.progress = header.progress
    state.runs += 1
    state.rows += header.rows
    state.quarantined += header.quarantined
    state.size += header.size
    state.event_min = _least(state.event_min, header.event_min)
    state.event_max = _most(state.event_max, header.event_max)
    state.width_classes |= classes_of(draft.segments)


def _changes(state: Any) -> dict[str, Any]:
    return {"its_id": state.id, **{f"its_{name}": getattr(state, name) for name in _CHANGED}}


def _first_revision(state: Any, header: RunHeader) -> int | None:
    if state.first_revision is None and header.kind is RunKind.REVISIONS:
        return header.position
    return None if state.first_revision is None else int(state.first_revision)


def _least(a: int | None, b: int | None) -> int | None:
    return min((v for v in (a, b) if v is not None), default=None)


def _most(a: int | None, b: int | None) -> int | None:
    return max((v for v in (a, b) if v is not None), default=None)
