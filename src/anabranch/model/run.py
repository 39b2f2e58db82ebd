"""Runs: the immutable chunks of which every stream is made, and the headers that describe them.

A run's identity is (entry point, sequence) within its stream, the same wherever the run is copied. Its
position is local: the place it took in this warehouse's log of the stream. The rows rest in segments,
Parquet files of ours or references to files that are already immutable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Self

from anabranch.model.errors import AnabranchError
from anabranch.model.time import instant_text

_NAME_MOST = 255


class RunId(NamedTuple):
    """Who numbered a run, and which number it got. Appending the same id again changes nothing."""

    entry_point: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.entry_point}:{self.sequence}"


class RunKind(StrEnum):
    ROWS = "rows"
    REVISIONS = "revisions"
    PARTIALS = "partials"
    PUNCTUATION = "punctuation"
    BOUNDARY = "boundary"
    COMPACTED = "compacted"  # a fold of older headers, rows and revisions together


class Stability(StrEnum):
    STABLE = "stable"
    TENTATIVE = "tentative"


class ChangeType(StrEnum):
    """The words of Spark's change data feed."""

    INSERT = "insert"
    UPDATE_PREIMAGE = "update_preimage"
    UPDATE_POSTIMAGE = "update_postimage"
    DELETE = "delete"


class Role(StrEnum):
    """What a segment holds: the rows of its run, or rows refused by it, or ignored; or what the stream amounts to."""

    ROWS = "rows"
    QUARANTINE = "quarantine"
    IGNORED = "ignored"
    STATE = "state"


@dataclass(frozen=True)
class Segment:
    """A file of a run. Event times are inclusive microseconds, None where no row has one.

    `path` is relative to the warehouse, or absolute for a reference. The key range is that of the
    first key column, as JSON text.
    """

    path: str
    rows: int
    size: int
    event_min: int | None = None
    event_max: int | None = None
    key_min: str | None = None
    key_max: str | None = None
    role: Role = Role.ROWS
    format: str = "parquet"
    reference: bool = False
    footer: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    ordinal_base: int = 0

    @property
    def again(self) -> bool:
        """Whether it is about a file of which another segment of the run tells the size."""
        return self.reference and (self.role is Role.QUARANTINE or self.options.get("timeless") == "only")

    def meets(self, times: Iterable[tuple[int, int]]) -> bool:
        """Whether rows of these event times can be in it; those without one can be in any."""
        if self.event_min is None or self.event_max is None:
            return True
        return any(low <= self.event_max and self.event_min <= high for low, high in times)

    def to_json(self) -> str:
        """As tasks report it to the driver."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        stored = json.loads(text)
        return cls(**{**stored, "role": Role(stored["role"])})


@dataclass(frozen=True)
class LoggedSegment:
    """A segment that a header refers to, and the positions whose rows it can hold."""

    segment: Segment
    first_position: int | None
    last_position: int | None
    stability: Stability = Stability.STABLE
    stime: int | None = None  # None in compacted segments, whose rows carry their own
    source: str | None = None
    run_id: RunId | None = None  # None in compacted segments, and where a header was folded before format 5

    @property
    def cut(self) -> int | None:
        """On a branch at a past bucket: the last position whose rows count, where the file has rows of later ones."""
        positions = self.segment.options.get("positions")
        beyond = positions is not None and self.last_position is not None and positions[1] > self.last_position
        return self.last_position if beyond else None

    @property
    def compacted(self) -> bool:
        """Whether the rows carry their own positions, because many runs were rewritten into this file."""
        return "positions" in self.segment.options


@dataclass(frozen=True)
class RunDraft:
    """A run that is about to be committed; what only the commit can know is not here yet."""

    kind: RunKind
    segments: tuple[Segment, ...] = ()
    source: str | None = None
    run_id: RunId | None = None  # None: the next number of this warehouse's own entry point
    stime: int | None = None  # None: stamped at commit; copied and derived runs bring their own
    bucket: int | None = None
    mark: int | None = None  # punctuation: the time that is promised
    progress: int | None = None  # derived runs: progress as the box computed it
    cause: Mapping[str, Any] | None = None
    supersedes: tuple[RunId, ...] = ()

    @property
    def data(self) -> tuple[Segment, ...]:
        return tuple(s for s in self.segments if s.role is Role.ROWS)

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.data)

    @property
    def event_range(self) -> tuple[int | None, int | None]:
        lows = [s.event_min for s in self.data if s.event_min is not None]
        highs = [s.event_max for s in self.data if s.event_max is not None]
        return min(lows, default=None), max(highs, default=None)


@dataclass(frozen=True, repr=False)
class RunHeader:
    """What the log knows of a run once it is committed."""

    stream: str
    position: int  # 0 while it is staged: it gets one when its bucket is recorded
    first_position: int  # below `position` only where compaction has folded headers
    run_id: RunId
    stime: int
    bucket: int | None
    source: str | None
    kind: RunKind
    rows: int
    quarantined: int
    size: int
    event_min: int | None
    event_max: int | None
    key_min: str | None
    key_max: str | None
    mark: int | None
    progress: int | None
    progress_before: int | None
    stability: Stability
    cause: Mapping[str, Any] | None
    supersedes: tuple[RunId, ...]
    schema_version: int
    trimmed: int = 0  # rows that retention has removed
    duplicate: bool = False  # this answer repeats an earlier commit of the same run id

    def __repr__(self) -> str:
        parts = [f"{self.rows} rows" + (f" from {self.source!r}" if self.source else "")]
        if self.event_min is not None:
            parts.append(f"{instant_text(self.event_min)} .. {instant_text(self.event_max)}")
        if self.progress is not None:
            parts.append(f"progress {instant_text(self.progress)}")
        return f"<run {self.position} of {self.stream} ({self.run_id}), {self.kind}: {', '.join(parts)}>"

    @property
    def late(self) -> bool:
        """Whether the run brought rows whose time had already been passed."""
        return None not in (self.event_min, self.progress_before) and self.event_min < self.progress_before  # type: ignore[operator]


def check_run_id(run_id: Any) -> RunId:
    """A run's identity as a caller gave it: a name and a number."""
    try:
        entry_point, sequence = run_id
    except (TypeError, ValueError):
        entry_point, sequence = None, None
    whole = isinstance(sequence, int) and not isinstance(sequence, bool) and 1 <= sequence < 1 << 63
    if not _is_name(entry_point) or not whole:
        raise AnabranchError(
            "BAD_ARGUMENT",
            place="run_id=",
            need="a pair of an entry point's name and a sequence number from 1",
            got=repr(run_id),
            next_step="Pass for instance run_id=('web-7', 42).",
        )
    return RunId(entry_point, sequence)


def check_source(source: Any) -> None:
    if source is not None and not _is_name(source):
        raise AnabranchError(
            "BAD_ARGUMENT",
            place="source=",
            need=f"a name of 1 to {_NAME_MOST} printable characters",
            got=repr(source),
            next_step="Pass for instance source='web-7'.",
        )


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _NAME_MOST and value.isprintable()
