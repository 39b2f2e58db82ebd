"""Between rows of the catalog and the frozen values of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.intervals import class_mask, width_class
from anabranch.model.run import LoggedSegment, Role, RunHeader, RunId, RunKind, Segment, Stability


def header_from(row: Any, stream: str, *, duplicate: bool = False) -> RunHeader:
    return RunHeader(
        stream=stream,
        position=row.position,
        first_position=row.first_position,
        run_id=RunId(row.entry_point, row.sequence),
        stime=row.stime,
        bucket=row.bucket,
        source=row.source,
        kind=RunKind(row.kind),
        rows=row.rows,
        quarantined=row.quarantined,
        size=row.size,
        event_min=row.event_min,
        event_max=row.event_max,
        key_min=row.key_min,
        key_max=row.key_max,
        mark=row.mark,
        progress=row.progress,
        progress_before=row.progress_before,
        stability=Stability(row.stability),
        cause=row.cause,
        supersedes=tuple(RunId(*run_id) for run_id in row.supersedes),
        schema_version=row.schema_version,
        trimmed=row.trimmed,
        duplicate=duplicate,
    )


def header_values(header: RunHeader, stream_id: int) -> dict[str, Any]:
    names = [c.name for c in tables.runs.c if c.name not in ("stream_id", "entry_point", "sequence", "supersedes")]
    values = {name: getattr(header, name) for name in names}
    values["kind"], values["stability"] = str(header.kind), str(header.stability)
    values["cause"] = None if header.cause is None else dict(header.cause)
    return {
        **values,
        "stream_id": stream_id,
        "entry_point": header.run_id.entry_point,
        "sequence": header.run_id.sequence,
        "supersedes": [list(run_id) for run_id in header.supersedes],
    }


def segment_values(
    segment: Segment,
    stream_id: int,
    intent_id: str | None,
    first_position: int | None,
    last_position: int | None,
    *,
    stime: int | None = None,
    run_id: RunId | None = None,
    source: str | None = None,
    overlay_id: int | None = None,
) -> dict[str, Any]:
    ranged = segment.event_min is not None and segment.event_max is not None
    return {
        "stream_id": stream_id,
        "first_position": first_position,
        "last_position": last_position,
        "overlay_id": overlay_id,
        "intent_id": intent_id,
        "stime": stime,
        "entry_point": None if run_id is None else run_id.entry_point,
        "sequence": None if run_id is None else run_id.sequence,
        "source": source,
        "path": segment.path,
        "role": str(segment.role),
        "format": segment.format,
        "reference": segment.reference,
        "rows": segment.rows,
        "size": segment.size,
        "event_min": segment.event_min,
        "event_max": segment.event_max,
        "width_class": width_class(segment.event_min, segment.event_max) if ranged else None,  # type: ignore[arg-type]
        "key_min": segment.key_min,
        "key_max": segment.key_max,
        "footer": segment.footer,
        "options": dict(segment.options),
        "ordinal_base": segment.ordinal_base,
    }


def insert_segments(connection: sa.Connection, values: Sequence[dict[str, Any]]) -> None:
    if values:
        connection.execute(tables.segments.insert(), list(values))


def segment_from(row: Any) -> Segment:
    return Segment(
        path=row.path,
        rows=row.rows,
        size=row.size,
        event_min=row.event_min,
        event_max=row.event_max,
        key_min=row.key_min,
        key_max=row.key_max,
        role=Role(row.role),
        format=row.format,
        reference=row.reference,
        footer=row.footer,
        options=row.options,
        ordinal_base=row.ordinal_base,
    )


def logged_from(row: Any) -> LoggedSegment:
    tentative = row.overlay_id is not None
    return LoggedSegment(
        segment=segment_from(row),
        first_position=row.first_position,
        last_position=row.last_position,
        stability=Stability.TENTATIVE if tentative else Stability.STABLE,
        stime=row.stime,
        source=row.source,
        run_id=None if row.entry_point is None else RunId(row.entry_point, row.sequence),
    )


def note_classes(connection: sa.Connection, stream_id: int, written: Sequence[Segment]) -> None:
    """Record which width classes occur, so that searches by event time look for them."""
    streams = tables.streams
    known = connection.execute(sa.select(streams.c.width_classes).where(streams.c.id == stream_id)).scalar_one()
    connection.execute(
        streams.update().where(streams.c.id == stream_id).values(width_classes=known | classes_of(written))
    )


def classes_of(segments: Sequence[Segment]) -> int:
    """The width classes of some segments, as a bit mask."""
    return class_mask(
        width_class(s.event_min, s.event_max) for s in segments if s.event_min is not None and s.event_max is not None
    )
