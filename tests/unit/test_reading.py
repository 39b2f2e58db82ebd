"""Plans: the segments that a read opens, and no others. Views, positions, retention."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadRange
from anabranch.log.views import declare_view
from anabranch.model.errors import AnabranchError
from tests.conftest import SECOND, START_US, FakeClock, make_spec, rows_at

HOUR = 3600


def at(seconds: float) -> int:
    return START_US + int(seconds * SECOND)


@pytest.fixture
def stream(log: Log) -> StreamState:
    """Ten runs, one an hour; the last brings rows of hour 2 as well."""
    stream = log.create_stream(make_spec(history="5 hours"))
    for hour in range(10):
        with log.unit_of_work(stream) as work:
            late = rows_at(2 * HOUR + 30) if hour == 9 else []
            work.append([*rows_at(hour * HOUR, hour * HOUR + 60), *late])
    return stream


def opened(log: Log, **wanted: Any) -> list[int | None]:
    return [s.last_position for s in log.plan("impsns", ReadRange(**wanted)).segments]


def test_positions_open_their_own_segments(log: Log, stream: StreamState) -> None:
    assert opened(log, first_position=3, last_position=5) == [3, 4, 5]
    assert opened(log, first_position=9) == [9, 10, 10]
    assert opened(log, last_position=1) == [1]
    assert opened(log, first_position=11) == []


def test_a_stretch_of_time_opens_what_can_hold_it(log: Log, stream: StreamState) -> None:
    assert opened(log, from_time=at(4 * HOUR), to_time=at(5 * HOUR)) == [5]
    assert opened(log, from_time=at(2 * HOUR), to_time=at(3 * HOUR)) == [3, 10], "with the late row, not its run"
    assert opened(log, from_time=at(4 * HOUR + 61), to_time=at(5 * HOUR)) == []
    assert opened(log, to_time=at(HOUR)) == [1]
    assert opened(log, from_time=at(9 * HOUR + 60)) == [10]
    assert opened(log, from_time=at(2 * HOUR), to_time=at(3 * HOUR), first_position=4) == [10]


@pytest.mark.parametrize(
    ("start", "end", "positions", "fixed"),
    [
        (3, 5, [3, 4, 5], True),
        (9, None, [9, 10, 10], False),
        (-2, None, [9, 10, 10], False),
        (-3, -2, [8, 9], False),
        ("2026-01-01T04:00:00Z", "2026-01-01T06:00:00Z", [5, 6], True),
        ("-1 hour", None, [9, 10], False),
        (None, "-8 hours", [1, 2], False),
        (None, None, [*range(1, 11), 10], False),
    ],
)
def test_views(log: Log, stream: StreamState, start: Any, end: Any, positions: list[int], fixed: bool) -> None:
    view = log.create_view(declare_view("v", "impsns", start, end))
    assert log.view("v") == view
    assert view.fixed == fixed
    assert [s.last_position for s in log.plan("impsns", log.view_range(log.view("v"))).segments] == positions


def test_a_moving_view_moves(log: Log, stream: StreamState) -> None:
    log.create_view(declare_view("newest", "impsns", -1, None))
    before = log.view_range(log.view("newest"))
    with log.unit_of_work(stream) as work:
        work.append(rows_at(11 * HOUR))
    assert (before.first_position, log.view_range(log.view("newest")).first_position) == (10, 11)


def test_views_have_one_meaning_each(log: Log, stream: StreamState) -> None:
    view = declare_view("v", "impsns", 1, 2)
    assert log.create_view(view) == log.create_view(view)
    with pytest.raises(AnabranchError) as caught:
        log.create_view(declare_view("v", "impsns", 1, 3))
    assert caught.value.id == "VIEW_EXISTS"
    log.drop_view("v")
    with pytest.raises(AnabranchError) as caught:
        log.view("v")
    assert caught.value.id == "UNKNOWN_VIEW"
    with pytest.raises(AnabranchError, match="both ends as positions"):
        declare_view("w", "impsns", 1, "-1 hour")
    for start, end in ((10, 5), ("-1 hour", "-2 hours"), (-2, -3)):
        with pytest.raises(AnabranchError, match="not before the start"):
            declare_view("w", "impsns", start, end)


def test_retention_keeps_to_the_history_bound(log: Log, stream: StreamState) -> None:
    gone = log.retain(stream)
    assert gone.rows == 9, "hours 0 to 3, and the late row of hour 2"
    assert opened(log) == [5, 6, 7, 8, 9, 10]
    headers = log.headers(stream)
    assert [h.position for h in headers] == list(range(1, 11)), "headers stay"
    assert [h.trimmed for h in headers] == [2, 2, 2, 2, 0, 0, 0, 0, 0, 1]
    assert log.retain(stream).rows == 0


def test_rows_that_are_gone_are_an_error_when_asked_for(log: Log, stream: StreamState) -> None:
    log.retain(stream)
    for wanted in ({"first_position": 1}, {"first_position": 3, "last_position": 6}, {"from_time": at(HOUR)}):
        with pytest.raises(AnabranchError) as caught:
            opened(log, **wanted)
        assert caught.value.id == "HISTORY_GONE"
    assert opened(log, first_position=5, last_position=9) == [5, 6, 7, 8, 9]
    assert opened(log, from_time=at(4 * HOUR)) == [5, 6, 7, 8, 9, 10]
    with pytest.raises(AnabranchError, match="rows of positions up to 10 are gone"):
        opened(log, first_position=5)


def test_retention_leaves_what_is_still_needed(log: Log, stream: StreamState) -> None:
    log.hold(stream, "reader", 1)
    assert log.retain(stream).rows == 2, "only what the reader has passed"
    log.create_view(declare_view("first_hours", "impsns", "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"))
    log.hold(stream, "reader", 10)
    assert log.retain(stream).rows == 5, "not hour 1, which the view covers"
    log.drop_view("first_hours")
    log.create_view(declare_view("from_two", "impsns", 2, None))
    assert log.retain(stream).rows == 0
    log.drop_view("from_two")
    assert log.release(stream, "reader")
    assert log.retain(stream).rows == 2


def test_streams_without_a_bound_keep_everything(log: Log) -> None:
    stream = log.create_stream(make_spec("forever"))
    for hour in (0, 1000):
        with log.unit_of_work(stream) as work:
            work.append(rows_at(hour * HOUR))
    assert log.retain(stream).segments == 0


def test_released_files_wait_for_their_readers(log: Log, stream: StreamState, clock: FakeClock) -> None:
    planned = log.plan("impsns", ReadRange())
    log.retain(stream)
    assert log.collect_garbage().released == ()
    assert all((log.root / s.segment.path).exists() for s in planned.segments)
    clock.pass_seconds(601)
    assert len(log.collect_garbage().released) == 5
    kept = {log.root / s.segment.path for s in log.plan("impsns", ReadRange()).segments}
    assert set((log.root / "data").rglob("*.parquet")) == kept


def test_positions_are_checked(log: Log, stream: StreamState) -> None:
    for position in (-1, 11):
        with pytest.raises(AnabranchError) as caught:
            log.hold(stream, "x", position)
        assert caught.value.id == "BAD_ARGUMENT"
    log.hold(stream, "x", 4)
    with pytest.raises(AnabranchError) as caught:
        log.drop_stream("impsns")
    assert caught.value.id == "STREAM_IN_USE"
    assert "hold 'x'" in caught.value.got
