"""What each task reads: which segments, and how their rows are placed in buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from anabranch.diagram.columnar.kinds import Kind, NotProven, quoted, text
from anabranch.engine import netting
from anabranch.engine.columnar.linear import INSTANT
from anabranch.engine.columnar.pipeline import BUCKET, WEIGHT, Pipeline
from anabranch.engine.kernel import Feed
from anabranch.log.buckets import Bounds
from anabranch.log.reading import ReadPlan
from anabranch.log.references import CHANGES
from anabranch.model.run import LoggedSegment


@dataclass(frozen=True)
class Portion:
    """Segments that are read by one SELECT."""

    pipeline: int
    chosen: str  # what is selected of their rows
    condition: str
    files: tuple[str, ...]
    rows: int

    @property
    def rows_read(self) -> str:
        """The SELECT by which DuckDB reads them."""
        return f"SELECT {self.chosen} FROM read_parquet({listed_files(self.files)}) WHERE {self.condition}"


def listed_files(paths: Sequence[str]) -> str:
    return f"[{', '.join(map(text, paths))}]"


def portions(number: int, pipeline: Pipeline, feed: Feed, root: Path) -> Iterator[Portion]:
    """The segments of a feed, those of a bucket together; NotProven where they must be read otherwise."""
    if feed.resolved or feed.oldest is not None or feed.after is not None:
        raise NotProven("deletions from a stream without a key")
    if feed.plan.range.from_time is not None or feed.plan.range.to_time is not None:
        raise NotProven("a stretch of event time")
    if feed.derived:
        yield _said(number, pipeline, feed, root)
        return
    if feed.revisions:
        raise NotProven("revisions of a stream")
    segments = sorted(feed.plan.segments, key=lambda s: _sort_key(s, feed))
    for how, group in groupby(segments, key=lambda s: _how(s, feed)):
        same = list(group)
        files = tuple(_place(s, root) for s in same)
        bucket, condition = how
        chosen = _columns(pipeline, feed.plan.spec.event_time, bucket)
        yield Portion(number, chosen, condition, files, sum(s.segment.rows for s in same))


def _said(number: int, pipeline: Pipeline, feed: Feed, root: Path) -> Portion:
    """What a derived stream has said."""
    bucket = BUCKET if feed.first is None else f"GREATEST({BUCKET}, {feed.first})"
    kept = [read_as(name, kind) for name, kind in pipeline.columns.items()]
    made = [f"EPOCH_US(_event_time) AS {INSTANT}", f"{netting.WEIGHT} AS {WEIGHT}", f"{bucket} AS {BUCKET}"]
    condition = "TRUE" if feed.last is None else f"{BUCKET} <= {feed.last}"
    files = tuple(_place(s, root) for s in feed.plan.segments)
    return Portion(number, ", ".join([*kept, *made]), condition, files, feed.rows)


def _columns(pipeline: Pipeline, event_time: str, bucket: str) -> str:
    kept = [read_as(name, kind) for name, kind in pipeline.columns.items()]
    made = [f"EPOCH_US({quoted(event_time)}) AS {INSTANT}", f"CAST(1 AS INTEGER) AS {WEIGHT}", f"{bucket} AS {BUCKET}"]
    return ", ".join([*kept, *made])


def read_as(name: str, kind: Kind) -> str:
    """A column of a segment as expressions see it."""
    # An instant has no zone in DuckDB's hands: with one it would ask which.
    value = f"MAKE_TIMESTAMP(EPOCH_US({quoted(name)}))" if kind.name == "timestamp" else quoted(name)
    value = f"CAST({value} AS {kind})"
    if kind.floating:  # in files of others zero may have a sign
        value = f"CASE WHEN {value} = 0 THEN CAST(0 AS {kind}) ELSE {value} END"
    return f"{value} AS {quoted(name)}"


def _place(logged: LoggedSegment, root: Path) -> str:
    return logged.segment.path if logged.segment.reference else str(root / logged.segment.path)


def _sort_key(logged: LoggedSegment, feed: Feed) -> Any:
    return (*_how(logged, feed), logged.last_position or 0)


def _how(logged: LoggedSegment, feed: Feed) -> tuple[str, str]:
    """The bucket of a segment's rows, and which of them count; segments alike are read together."""
    segment = logged.segment
    if segment.reference and (segment.format != "parquet" or segment.options.get("local_columns")):
        raise NotProven(f"files of {segment.format}, or in local times")
    if segment.reference and segment.options.get(CHANGES):
        raise NotProven("files with change types")
    if logged.compacted:
        return _bucket_of(feed.bounds), _of_positions(feed.plan, logged.cut)
    position = logged.last_position
    bucket = next((b.bucket for b in feed.bounds if position is None or position <= b.end), feed.bounds[-1].bucket)
    condition = "TRUE"
    if segment.reference and (bounds := segment.options.get("bounds")):
        condition = f"EPOCH_US({quoted(feed.plan.spec.event_time)}) BETWEEN {bounds[0]} AND {bounds[1]}"
    return f"CAST({bucket} AS BIGINT)", condition


def _bucket_of(bounds: Sequence[Bounds]) -> str:
    """The bucket of a row that says its position itself."""
    cases = " ".join(f"WHEN _position <= {bound.end} THEN {bound.bucket}" for bound in bounds[:-1])
    last = bounds[-1].bucket
    return f"CAST({f'CASE {cases} ELSE {last} END' if cases else last} AS BIGINT)"


def _of_positions(plan: ReadPlan, cut: int | None) -> str:
    low = plan.range.first_position or 1
    ends = [end for end in (plan.range.last_position, cut) if end is not None]
    return f"_position >= {low}" + (f" AND _position <= {min(ends)}" if ends else "")


def shared_out(portions: Sequence[Portion], tasks: int, at_once: int) -> list[list[Portion]]:
    """Portions for so many tasks at most, about the same number of rows for each; files stay whole and in order.

    No portion has many more rows than may be read at once.
    """
    share = max(1, -(-sum(portion.rows for portion in portions) // tasks))
    given: list[list[Portion]] = [[] for _ in range(tasks)]
    before = 0.0
    for portion in portions:
        each = portion.rows / len(portion.files)
        for path in portion.files:
            some = given[min(int((before + each / 2) / share), tasks - 1)]
            if some and _alike(some[-1], portion) and some[-1].rows + each <= at_once:
                some[-1] = replace(some[-1], files=(*some[-1].files, path), rows=round(some[-1].rows + each))
            else:
                some.append(replace(portion, files=(path,), rows=round(each)))
            before += each
    return [some for some in given if some]


def _alike(one: Portion, other: Portion) -> bool:
    return (one.pipeline, one.chosen, one.condition) == (other.pipeline, other.chosen, other.condition)
