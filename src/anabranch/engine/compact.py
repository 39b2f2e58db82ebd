"""Compaction, Spark's side: tasks that each rewrite one group of small segments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from anabranch.engine.reports import Report, collect_reports, raise_reported
from anabranch.engine.session import Session
from anabranch.log.compaction import CompactionPlan
from anabranch.log.log import Log, StreamState
from anabranch.log.rewrite import Piece, piece_of, rewrite
from anabranch.log.segments import SegmentLayout
from anabranch.log.tiers import Cells
from anabranch.model.run import LoggedSegment, Segment
from anabranch.model.stream import StreamSpec


@dataclass(frozen=True)
class Compacted:
    """What a compaction did, in all its passes: a later one may take up what an earlier one has written."""

    rows: int = 0
    segments_read: int = 0
    segments_written: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.rows + other.rows,
            self.segments_read + other.segments_read,
            self.segments_written + other.segments_written,
        )


def compact(log: Log, session: Session, stream: StreamState) -> Compacted:
    """Rewrite the small segments below the horizon and fold their headers, some at a time, until none are left."""
    total = Compacted()
    while (done := compact_together(log, session, [(stream, log.plan_compaction(stream))])).rows:
        total += done
    return total


def compact_together(log: Log, session: Session, plans: Sequence[tuple[StreamState, CompactionPlan]]) -> Compacted:
    """Carry out the plans of some streams in one job; each is committed by itself."""
    work = [(stream, plan) for stream, plan in plans if plan.segments]
    for _, plan in plans:
        if plan.folds and not plan.segments:
            log.commit_compaction(plan, [], None)
    intents = log.intents.begin_all(stream.id for stream, _ in work)
    done = Compacted()
    try:
        layouts = [log.layout(stream, intent) for (stream, _), intent in zip(work, intents, strict=True)]
        written = _rewrite_all(session, work, layouts)
        for (_, plan), its, intent in zip(work, written, tuple(intents), strict=True):
            log.commit_compaction(plan, its, intent.id)
            log.intents.forget(intent)
            intents.remove(intent)
            done += Compacted(plan.rows, len(plan.segments), len(its))
    finally:
        for intent in intents:
            log.intents.release(intent)
    return done


def _rewrite_all(
    session: Session, work: Sequence[tuple[StreamState, CompactionPlan]], layouts: Sequence[SegmentLayout]
) -> list[list[Segment]]:
    """What was written of each stream; a task takes one group of segments."""
    if not work:
        return []
    task = _Task(tuple((layout, stream.spec) for (stream, _), layout in zip(work, layouts, strict=True)))
    groups = [_Group(n, _cut(plan, group), _pieces(group)) for n, (_, plan) in enumerate(work) for group in plan.groups]
    payload = [(json.dumps(asdict(group)),) for group in groups]
    frame = session.spark.createDataFrame(payload, "pieces STRING").repartition(len(payload))
    reports = collect_reports(frame, task.reports)
    raise_reported(reports)
    written: list[list[Segment]] = [[] for _ in work]
    for report in reports:
        written[report["stream"]].append(Segment.from_json(report["segment"]))
    return written


@dataclass(frozen=True)
class _Group:
    """What one task rewrites: pieces of the stream with this number, perhaps to be cut by cells."""

    stream: int
    cells: Cells | None
    pieces: list[Piece]


def _cut(plan: CompactionPlan, group: Sequence[LoggedSegment]) -> Cells | None:
    return plan.cells if plan.cells is not None and plan.cells.is_wide(group) else None


def _pieces(group: Sequence[LoggedSegment]) -> list[Piece]:
    return [piece_of(segment) for segment in group]


@dataclass(frozen=True)
class _Task:
    streams: tuple[tuple[SegmentLayout, StreamSpec], ...]

    def reports(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Report]:
        for batch in batches:
            for text in batch["pieces"].to_pylist():
                group = json.loads(text)
                layout, spec = self.streams[group["stream"]]
                cells = None if group["cells"] is None else Cells(**group["cells"])
                for segment in rewrite(layout, spec.schema, [Piece(**piece) for piece in group["pieces"]], cells):
                    yield {"stream": group["stream"], "segment": segment.to_json()}
