"""Event time and stream time are whole microseconds since 1970-01-01 UTC, everywhere inside.

People write durations as a number and a unit, and points in time as a datetime with a zone or as
ISO 8601 text. Months and years have no fixed length and are refused.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from anabranch.model.errors import AnabranchError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

_UNITS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
    "w": 604_800_000_000,
}
_TERM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)")
# Largest first, the short name of each exact multiple: what `duration_text` prints.
_SPOKEN = (
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("millisecond", 1_000),
)

Duration = str | timedelta
History = Duration | int  # a duration, or a number of rows
Instant = str | datetime


def duration_us(value: Duration, place: str) -> int:
    """A duration in microseconds: `'10 seconds'`, `'1 hour 30 min'` or a timedelta.

    >>> duration_us("1 hour 30 min", "test")
    5400000000
    """
    micros = value // MICROSECOND if isinstance(value, timedelta) else _parse_duration(value, place)
    if micros < 0:
        raise _bad_duration(value, place, "a negative duration")
    return micros


def _parse_duration(text: str, place: str) -> int:
    if not isinstance(text, str):
        raise _bad_duration(text, place, f"a {type(text).__name__}")
    total, end = 0.0, 0
    while end < len(text.rstrip()):
        term = _TERM.match(text, end)
        if term is None:
            raise _bad_duration(text, place, repr(text))
        unit = term[2].lower()
        scale = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if scale is None:
            calendar = unit.removesuffix("s") in ("month", "year", "quarter")
            got = f"the calendar unit {term[2]!r}, whose length varies" if calendar else f"the unit {term[2]!r}"
            raise _bad_duration(text, place, got)
        total += float(term[1]) * scale
        end = term.end()
    if end == 0:
        raise _bad_duration(text, place, "empty text")
    return round(total)


def _bad_duration(value: object, place: str, got: str) -> AnabranchError:
    return AnabranchError(
        "BAD_DURATION",
        place=place,
        need="a duration of fixed length",
        got=got,
        next_step="Write a number and a unit from microseconds to weeks, such as '10 seconds', or pass a timedelta.",
    )


def bucket_us(value: Duration) -> int:
    """The size of a bucket, which is not nothing."""
    micros = duration_us(value, "bucket=")
    if micros == 0:
        raise _bad_duration(value, "bucket=", "no time at all")
    return micros


def duration_text(micros: int | None) -> str:
    """The shortest exact wording of a duration.

    >>> duration_text(90_000_000)
    '90 seconds'
    """
    if micros is None:
        return ""
    for name, scale in _SPOKEN:
        if micros and micros % scale == 0:
            count = micros // scale
            return f"{count} {name}{'s' if count != 1 else ''}"
    return f"{micros} microseconds" if micros else "0 seconds"


def history_of(value: Duration | int | None, place: str) -> tuple[int | None, int | None]:
    """A history bound as microseconds, or as rows: `'7 days'`, `'1000 rows'`, or a whole number, which is rows.

    >>> history_of("1000 rows", "test"), history_of("1 second", "test"), history_of(None, "test")
    ((None, 1000), (1000000, None), (None, None))
    """
    counted = re.fullmatch(r"\s*0*([1-9]\d{0,17})\s+rows?\s*", value, re.IGNORECASE) if isinstance(value, str) else None
    if counted is not None:
        return None, int(counted[1])
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 60:
        return None, value
    return (None if value is None else duration_us(value, place)), None  # type: ignore[arg-type]


def history_text(micros: int | None, rows: int | None) -> str:
    """A history bound in words; nothing if there is none."""
    return duration_text(micros) if rows is None else f"{rows} row{'s' if rows != 1 else ''}"


def instant_us(value: Instant, place: str) -> int:
    """A point in time in microseconds: an aware datetime, or ISO 8601 text with an offset or `Z`."""
    moment = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            raise _bad_time(value, place) from None
    if not isinstance(moment, datetime):
        raise _bad_time(value, place)
    if moment.tzinfo is None:
        raise AnabranchError(
            "TIME_ZONE",
            place=place,
            need="a point in time with a time zone",
            got=f"{value!r}, which has none",
            next_step="Add an offset ('2026-01-01T00:00:00Z') or a tzinfo (datetime(..., tzinfo=UTC)).",
        )
    try:
        return (moment - EPOCH) // MICROSECOND
    except OverflowError:
        raise _bad_time(value, place) from None


def _bad_time(value: object, place: str) -> AnabranchError:
    return AnabranchError(
        "BAD_TIME",
        place=place,
        need="a point in time",
        got=repr(value),
        next_step="Pass an aware datetime or ISO 8601 text such as '2026-01-01T00:00:00Z'.",
    )


def to_datetime(micros: int) -> datetime:
    """The aware datetime, in UTC, of a time in microseconds."""
    return EPOCH + timedelta(microseconds=micros)


def instant_text(micros: int | None) -> str:
    """ISO text of a point in time, in UTC, with no more digits than it has; `instant_us` reads it back."""
    if micros is None:
        return ""
    try:
        moment = to_datetime(micros)
    except OverflowError:
        return f"{micros} us"
    spec = "seconds" if micros % 1_000_000 == 0 else "milliseconds" if micros % 1_000 == 0 else "microseconds"
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec=spec) + "Z"
