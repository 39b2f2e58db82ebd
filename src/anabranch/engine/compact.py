"""Compaction, Spark's side: tasks that each rewrite one group of small segments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa

from anabranch.engine.reports import Report, collect_reports, raise_reported
from anabranch.engine.session import Session
from anabranch.log.compaction import CompactionPlan
from anabranch.log.log import Log, StreamState
from anabranch.log.rewrite import Piece, piece_of, rewrite
from anabranch.log.segments import SegmentLayout
from anabranch.model.run import Segment
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
    while (done := _compact_some(log, session, stream)).rows:
        total += done
    return total


def _compact_some(log: Log, session: Session, stream: StreamState) -> Compacted:
    plan = log.plan_compaction(stream)
    if not plan.segments:
        log.commit_compaction(plan, [], None)
        return Compacted()
    with log.intents.lasting(stream.id) as intent:
        written = _rewrite_all(session, plan, stream.spec, log.layout(stream, intent))
        log.commit_compaction(plan, written, intent.id)
    return Compacted(plan.rows, len(plan.segments), len(written))


def _rewrite_all(session: Session, plan: CompactionPlan, spec: StreamSpec, layout: SegmentLayout) -> list[Segment]:
    task = _Task(layout, spec)
    payload = [(json.dumps([asdict(piece_of(segment)) for segment in group]),) for group in plan.groups]
    frame = session.spark.createDataFrame(payload, "pieces STRING").repartition(len(plan.groups))
    reports = collect_reports(frame, task.reports)
    raise_reported(reports)
    return [Segment.from_json(report["segment"]) for report in reports]


@dataclass(frozen=True)
class _Task:
    layout: SegmentLayout
    spec: StreamSpec

    def reports(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Report]:
        for batch in batches:
            for text in batch["pieces"].to_pylist():
                pieces = [Piece(**piece) for piece in json.loads(text)]
                for segment in rewrite(self.layout, self.spec.schema, pieces):
                    yield {"segment": segment.to_json()}
