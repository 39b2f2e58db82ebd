"""What the catalog knows of a stream without looking at its runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import buckets, tables
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import StreamSpec


@dataclass(frozen=True)
class StreamState:
    """A stream as the catalog had it at one moment."""

    id: int
    spec: StreamSpec
    last_position: int
    reached: int | None  # in event time
    runs: int
    rows: int  # ever committed
    trimmed: int  # of those, removed by retention
    quarantined: int
    size: int
    event_min: int | None
    event_max: int | None
    sources: int
    role: str = buckets.BASE
    first_revision: int | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def progress(self) -> int | None:
        """How far it has come in event time; what has no place in time has come nowhere."""
        return None if self.spec.timeless else self.reached

    def revised_by(self, position: int) -> bool:
        """Whether anything but insertions may have come up to a position."""
        return self.first_revision is not None and self.first_revision <= position


# A stream with all that its state tells.
STREAMS = sa.select(
    tables.streams,
    sa.select(sa.func.count())
    .select_from(tables.sources)
    .where(tables.sources.c.stream_id == tables.streams.c.id)
    .scalar_subquery()
    .label("sources"),
)


def state_from(row: Any) -> StreamState:
    return StreamState(
        id=row.id,
        spec=StreamSpec.from_json(row.spec),
        last_position=row.last_position,
        reached=row.progress,
        runs=row.runs,
        rows=row.rows,
        trimmed=row.trimmed,
        quarantined=row.quarantined,
        size=row.size,
        event_min=row.event_min,
        event_max=row.event_max,
        sources=row.sources,
        role=row.role,
        first_revision=row.first_revision,
    )


def require_same(new: StreamSpec, old: StreamSpec) -> None:
    """Refuse a declaration that is not the one that a stream has."""
    said = new.differences(old)
    if said:
        raise AnabranchError(
            "STREAM_EXISTS",
            place=f"stream {new.name!r}",
            need="the declaration that it has",
            got="; ".join(said),
            next_step="Choose another name, or drop the stream first.",
        )
