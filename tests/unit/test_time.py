from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from anabranch.model.errors import AnabranchError
from anabranch.model.time import duration_text, duration_us, instant_text, instant_us, to_datetime


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("10 seconds", 10_000_000),
        ("1 second", 1_000_000),
        ("500ms", 500_000),
        ("1.5 hours", 5_400_000_000),
        ("1 hour 30 min", 5_400_000_000),
        ("2 weeks", 1_209_600_000_000),
        (timedelta(days=1), 86_400_000_000),
    ],
)
def test_durations(text: str | timedelta, micros: int) -> None:
    assert duration_us(text, "test") == micros


@pytest.mark.parametrize("text", ["", "ten seconds", "10", "10 parsecs", "-1 hour", "1 month", "2 years", "1 hour!", 5])
def test_bad_durations(text: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        duration_us(text, "slack")
    assert caught.value.id == "BAD_DURATION"
    assert caught.value.place == "slack"


def test_calendar_units_are_named() -> None:
    with pytest.raises(AnabranchError, match="calendar unit 'month', whose length varies"):
        duration_us("1 month", "history")


@pytest.mark.parametrize("micros", [0, 1, 1_000_000, 90_000_000, 3_600_000_000, 86_400_000_000, 250_000])
def test_duration_text_reads_back(micros: int) -> None:
    assert duration_us(duration_text(micros), "test") == micros


def test_instants() -> None:
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert instant_us("2026-01-01T13:00:00+01:00", "test") == instant_us(moment, "test")
    assert to_datetime(instant_us(moment, "test")) == moment
    assert instant_text(instant_us(moment, "test")) == "2026-01-01 12:00:00Z"
    assert instant_text(1_500) == "1970-01-01 00:00:00.001500Z"
    assert instant_text(10**18).endswith("us")


@pytest.mark.parametrize(
    ("value", "error"), [("2026-01-01", "TIME_ZONE"), ("yesterday", "BAD_TIME"), (12, "BAD_TIME"), (None, "BAD_TIME")]
)
def test_bad_instants(value: object, error: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        instant_us(value, "from_time=")  # type: ignore[arg-type]
    assert caught.value.id == error
