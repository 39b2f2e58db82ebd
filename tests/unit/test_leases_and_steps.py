"""One engine at a time, and steps that commit whole or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.log.leases import Lease
from anabranch.log.log import Log, StreamState
from anabranch.log.steps import Output, Reading
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunDraft, RunKind
from tests.conftest import FakeClock, make_spec, rows_at


@pytest.fixture
def streams(log: Log) -> tuple[StreamState, StreamState]:
    base, derived = log.create_stream(make_spec("base")), log.create_stream(make_spec("derived"))
    for second in (1, 2, 3):
        with log.unit_of_work(base) as work:
            work.append(rows_at(second))
    return base, derived


def step(log: Log, lease: Lease, streams: tuple[StreamState, StreamState], start: int, end: int) -> int:
    base, derived = streams
    draft = RunDraft(RunKind.ROWS, progress=end, cause={"reader": "q"})
    return log.commit_step(lease, "q", [Reading(base.id, start, end)], [Output(derived.id, draft)]).bucket


def test_a_lease_is_exclusive_until_it_runs_out(open_log: Callable[..., Log], clock: FakeClock) -> None:
    one, two = open_log(), open_log()
    lease = one.leases.acquire("one")
    with pytest.raises(AnabranchError) as caught:
        two.leases.acquire("two")
    assert caught.value.id == "LEASE_HELD"
    assert "one holds the lease" in caught.value.got
    clock.pass_seconds(20)
    lease = one.leases.renew(lease)
    clock.pass_seconds(20)
    with pytest.raises(AnabranchError):
        two.leases.acquire("two")
    clock.pass_seconds(11)
    taken = two.leases.acquire("two")
    assert taken.epoch == lease.epoch + 1
    with pytest.raises(AnabranchError) as caught:
        one.leases.renew(lease)
    assert caught.value.id == "FENCED"
    one.leases.release(lease)
    assert two.leases.renew(taken).epoch == taken.epoch, "a lost lease releases nothing"


def test_a_released_lease_is_free_at_once(log: Log) -> None:
    log.leases.release(log.leases.acquire("one"))
    assert log.leases.acquire("two").epoch == 2


def test_a_step_moves_positions_and_outputs_together(log: Log, streams: tuple[StreamState, StreamState]) -> None:
    lease = log.leases.acquire()
    assert step(log, lease, streams, 0, 2) == 1
    assert step(log, lease, streams, 2, 3) == 2
    base, derived = streams
    assert [(p.name, p.position) for p in log.positions_of(base)] == [("q", 3)]
    headers = log.headers(derived)
    assert [(h.bucket, h.progress, h.cause) for h in headers] == [(1, 2, {"reader": "q"}), (2, 3, {"reader": "q"})]


def test_a_fenced_step_commits_nothing(log: Log, streams: tuple[StreamState, StreamState], clock: FakeClock) -> None:
    lease = log.leases.acquire("paused")
    clock.pass_seconds(31)
    log.leases.acquire("other")
    with pytest.raises(AnabranchError) as caught:
        step(log, lease, streams, 0, 2)
    assert caught.value.id == "FENCED"
    assert log.headers(streams[1]) == []
    assert log.positions_of(streams[0]) == []


def test_an_expired_lease_that_nobody_took_still_commits(
    log: Log, streams: tuple[StreamState, StreamState], clock: FakeClock
) -> None:
    lease = log.leases.acquire("slow")
    clock.pass_seconds(3600)
    assert step(log, lease, streams, 0, 1) == 1


def test_a_step_from_the_wrong_position_commits_nothing(log: Log, streams: tuple[StreamState, StreamState]) -> None:
    lease = log.leases.acquire()
    step(log, lease, streams, 0, 2)
    with pytest.raises(AnabranchError) as caught:
        step(log, lease, streams, 0, 3)
    assert caught.value.id == "POSITION_CONFLICT"
    assert caught.value.got == "position 2"
    assert len(log.headers(streams[1])) == 1


def test_a_failure_in_a_step_undoes_all_of_it(log: Log, streams: tuple[StreamState, StreamState]) -> None:
    lease = log.leases.acquire()
    base, derived = streams
    outputs = [Output(derived.id, RunDraft(RunKind.ROWS)), Output(999, RunDraft(RunKind.ROWS))]
    with pytest.raises(AnabranchError):
        log.commit_step(lease, "q", [Reading(base.id, 0, 3)], outputs)
    assert log.headers(derived) == []
    assert log.positions_of(base) == []


def test_derived_runs_inherit_the_stamp_of_what_was_read(
    log: Log, streams: tuple[StreamState, StreamState], clock: FakeClock
) -> None:
    base, derived = streams
    lease = log.leases.acquire()
    clock.pass_seconds(10)  # a step takes time, and its outputs must not show it
    step(log, lease, streams, 0, 2)
    step(log, lease, streams, 2, 3)
    stamps = {h.position: h.stime for h in log.headers(base)}
    assert [h.stime for h in log.headers(derived)] == [stamps[2], stamps[3]]
