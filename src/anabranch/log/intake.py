"""Which rows may enter: an event time that can be meant, no null where none may be, change types in place.

Rows without an event time, or with an absurd one (before the stream's `earliest`, or further `ahead`
of the clock than it allows), are refused with a count and a sample, or kept beside the stream when the
caller says `on_bad_rows="quarantine"`. A deletion by key has no event time and needs none.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.log.rows import CHANGE_TYPE
from anabranch.model.errors import AnabranchError
from anabranch.model.run import ChangeType
from anabranch.model.schema import INSTANT
from anabranch.model.stream import StreamSpec
from anabranch.model.time import instant_text

REASON = "_reason"
NO_EVENT_TIME = "no event time"
ABSURD_EVENT_TIME = "absurd event time"
_SAMPLE = 3


@dataclass(frozen=True)
class Admitted:
    """The rows that enter, and those that were set aside."""

    good: pa.Table
    quarantined: pa.Table | None = None


def check_policy(on_bad_rows: str) -> None:
    if on_bad_rows not in ("refuse", "quarantine"):
        raise AnabranchError(
            "BAD_ARGUMENT",
            place="on_bad_rows=",
            need="'refuse' or 'quarantine'",
            got=repr(on_bad_rows),
            next_step="Choose one of the two.",
        )


def admit(table: pa.Table, spec: StreamSpec, bounds: tuple[int, int], on_bad_rows: str) -> Admitted:
    """Split a table of the stream's columns into what enters and what does not."""
    check_policy(on_bad_rows)
    _check_nulls(table, spec)
    bad = bad_event_time(table, spec, bounds)
    count = pc.sum(bad).as_py() or 0
    if count == 0:
        return Admitted(table)
    set_aside = table.filter(bad)
    if on_bad_rows == "refuse":
        raise refused(spec, count, table.num_rows, samples(set_aside, spec), bounds)
    return Admitted(table.filter(pc.invert(bad)), with_reason(set_aside, spec))


def bad_event_time(table: pa.Table, spec: StreamSpec, bounds: tuple[int, int]) -> pa.ChunkedArray:
    """True where a row's event time is missing or absurd."""
    times = table[spec.event_time]
    low, high = (pa.scalar(bound, INSTANT) for bound in bounds)
    outside = pc.or_(pc.less(times, low), pc.greater(times, high))
    bad = pc.fill_null(outside, True)
    if spec.key and CHANGE_TYPE in table.column_names:
        by_key = pc.and_(pc.equal(table[CHANGE_TYPE], ChangeType.DELETE.value), pc.is_null(times))
        bad = pc.and_(bad, pc.invert(by_key))
    return bad


def with_reason(table: pa.Table, spec: StreamSpec) -> pa.Table:
    missing = pc.is_null(table[spec.event_time])
    reason = pc.if_else(missing, NO_EVENT_TIME, ABSURD_EVENT_TIME)
    return table.append_column(REASON, reason)


def samples(table: pa.Table, spec: StreamSpec) -> list[str]:
    """The first bad rows, in words. Times beyond the calendar are shown as numbers."""
    head = table.slice(0, _SAMPLE)
    micros = pc.cast(head[spec.event_time], pa.int64()).to_pylist()
    others = [c for c in head.column_names if c not in (spec.event_time, CHANGE_TYPE)]
    rows = head.select(others).to_pylist()
    return [
        ", ".join([f"{name}={value!r}" for name, value in row.items()] + [f"{spec.event_time}={_shown(us)}"])
        for row, us in zip(rows, micros, strict=True)
    ]


def _shown(micros: int | None) -> str:
    return "null" if micros is None else instant_text(micros)


def refused(spec: StreamSpec, count: int, total: int, sample: list[str], bounds: tuple[int, int]) -> AnabranchError:
    return AnabranchError(
        "BAD_EVENT_TIME",
        place=f"append to stream {spec.name!r}, column {spec.event_time!r}",
        need=f"an event time from {instant_text(bounds[0])} to {instant_text(bounds[1])} in every row",
        got=f"{count} of {total} rows without, such as ({'), ('.join(sample)})",
        next_step="Correct the rows, pass on_bad_rows='quarantine' to keep them aside, or declare the stream "
        "with another earliest= or ahead=; nothing was written.",
    )


def _check_nulls(table: pa.Table, spec: StreamSpec) -> None:
    key_only = None
    if spec.key and CHANGE_TYPE in table.column_names:
        key_only = pc.equal(table[CHANGE_TYPE], ChangeType.DELETE.value)
    for name in sorted(spec.required):
        if table[name].null_count == 0:
            continue
        nulls = pc.is_null(table[name])
        if key_only is not None and name not in spec.key:
            nulls = pc.and_(nulls, pc.invert(key_only))
        count = pc.sum(nulls).as_py()
        if count:
            raise null_value(spec, name, count, table.num_rows)


def null_value(spec: StreamSpec, column: str, count: int, total: int) -> AnabranchError:
    why = "a key column" if column in spec.key else "declared NOT NULL"
    return AnabranchError(
        "NULL_VALUE",
        place=f"append to stream {spec.name!r}, column {column!r}",
        need=f"a value in every row, because it is {why}",
        got=f"{count} nulls in {total} rows",
        next_step="Fill the column or leave those rows out; nothing was written.",
    )
