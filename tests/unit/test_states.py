"""States beside a log, the catalog's side: what a turn takes, what readers find, what it holds. On both catalogs."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.log import states
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadRange
from anabranch.log.rewrite import piece_of, rewrite
from anabranch.log.segments import SegmentLayout, write_segments
from anabranch.log.states import StatePlan
from anabranch.model.errors import AnabranchError
from anabranch.model.run import Role, Segment
from tests.conftest import make_spec, rows_at

HOUR = 3600


@pytest.fixture
def stream(log: Log) -> StreamState:
    return log.create_stream(make_spec(history="1 hour"))


def append(log: Log, stream: StreamState, *runs: int, second: int = 0) -> int:
    """Append runs of so many rows, each a bucket of its own; the last bucket."""
    lease = log.leases.acquire()
    try:
        for rows in runs:
            with log.unit_of_work(stream) as work:
                work.append(rows_at(*([second] * rows)))
            bucket = log.register.record_bucket(lease)
            assert bucket is not None
        return bucket.number
    finally:
        log.leases.release(lease)


def forward(log: Log, stream: StreamState, bucket: int, rows: int, least: int = 1) -> StatePlan:
    """Bring a state forward, as if netting had left so many rows."""
    plan = log.states.plan(stream.id, (), bucket, least)
    assert plan is not None
    with log.intents.lasting(stream.id) as intent:
        log.states.commit(plan, written(log, stream, intent.id, rows), intent.id)
    return plan


def written(log: Log, stream: StreamState, intent_id: str, rows: int) -> list[Segment]:
    directory = log.storage.directory(stream.id, intent_id)
    log.storage.make_directory(directory)
    layout = SegmentLayout(str(log.root), directory, "")
    return write_segments(layout, pa.table({"user": pa.array([0] * rows, pa.int32())}), Role.STATE)


def found(log: Log, stream: StreamState, upto: int | None = None) -> tuple[int, list[int], list[int | None]] | None:
    """The position of a state, the rows of its segments, and the positions of the tail."""
    read = log.states.read(stream.id, upto)
    if read is None:
        return None
    state, tail = read
    return state.position, [s.segment.rows for s in state.segments], [s.last_position for s in tail.segments]


def test_a_turn_takes_the_tail_once_it_is_long_enough(log: Log, stream: StreamState) -> None:
    last = append(log, stream, 1, 1, 1)
    assert log.states.plan(stream.id, (), last, 4) is None
    assert log.states.plan(stream.id, (), last - 1, 3) is None, "only up to the bucket"
    assert found(log, stream) is None
    plan = forward(log, stream, last, 2, least=3)
    assert (plan.first_position, plan.position, plan.bucket, plan.rows) == (1, 3, last, 3)
    append(log, stream, 1, 1)
    assert found(log, stream) == (3, [2], [4, 5])
    assert found(log, stream, last - 1) is None, "a reader that has come less far reads the log"
    assert log.states.plan(stream.id, (), last, 1) is None, "nothing has come up to there"
    read = log.states.read(stream.id, None, last=4)
    assert read is not None
    assert [s.last_position for s in read[1].segments] == [4]
    assert [s.last_position for s in log.plan("impsns", ReadRange()).segments] == [1, 2, 3, 4, 5], (
        "the log is as it was"
    )


def test_runs_grow_towards_older_ones(log: Log, stream: StreamState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_SMALL_ROWS", 0)
    forward(log, stream, append(log, stream, 40), 40)
    forward(log, stream, append(log, stream, 5), 5)
    assert found(log, stream) == (2, [40, 5], []), "more than four times as many stay"
    forward(log, stream, append(log, stream, 2), 6)
    assert found(log, stream) == (3, [40, 6], [])
    plan = forward(log, stream, append(log, stream, 4), 9)
    assert [s.segment.rows for s in plan.merged] == [6, 40], "from the newest on, as long as they are not much larger"
    assert found(log, stream) == (4, [9], [])


def test_small_runs_are_always_one(log: Log, stream: StreamState) -> None:
    forward(log, stream, append(log, stream, 40), 40)
    forward(log, stream, append(log, stream, 1), 41)
    assert found(log, stream) == (2, [41], [])


def test_what_nets_to_nothing_leaves_a_state_without_rows(log: Log, stream: StreamState) -> None:
    forward(log, stream, append(log, stream, 3), 0)
    assert found(log, stream) == (1, [], [])
    forward(log, stream, append(log, stream, 3), 1)
    assert found(log, stream) == (2, [1], [])


def test_whoever_comes_second_changes_nothing(log: Log, stream: StreamState) -> None:
    last = append(log, stream, 1)
    slow = log.states.plan(stream.id, (), last, 1)
    assert slow is not None
    forward(log, stream, last, 1)
    late = log.states.plan(stream.id, (), append(log, stream, 1), 1)
    assert late is not None
    forward(log, stream, last + 1, 2)
    for plan in (slow, late):
        with pytest.raises(AnabranchError) as caught, log.intents.lasting(stream.id) as intent:
            log.states.commit(plan, written(log, stream, intent.id, 7), intent.id)
        assert caught.value.id == "POSITION_CONFLICT"
    assert found(log, stream) == (2, [2], [])


def test_a_state_holds_the_tail_and_lets_go_of_the_rest(log: Log, stream: StreamState) -> None:
    forward(log, stream, append(log, stream, 1, 1), 2)
    append(log, stream, 1)
    append(log, stream, 1, second=5 * HOUR)
    assert log.plan_compaction(stream, least_segments=1).up_to == 2
    assert log.retain(log.stream("impsns")).rows == 2
    assert found(log, stream) == (2, [2], [3, 4])


def test_a_compaction_beyond_is_waited_for(log: Log, stream: StreamState) -> None:
    last = append(log, stream, 1, 1, 1)
    plan = log.states.plan(stream.id, (), last - 1, 1)
    assert plan is not None
    _compact(log, stream)
    with pytest.raises(AnabranchError) as caught:
        log.states.commit(plan, [], None)
    assert caught.value.id == "POSITION_CONFLICT"
    assert log.states.plan(stream.id, (), last - 1, 1) is None
    assert log.states.plan(stream.id, (), last, 2) is None, "runs whose headers were folded are one"
    forward(log, stream, last, 3)
    assert found(log, stream) == (3, [3], [])


def test_states_are_dropped_with_their_files_and_their_hold(log: Log, stream: StreamState) -> None:
    forward(log, stream, append(log, stream, 1), 1)
    paths = [s.segment.path for s in log.states.read(stream.id, None)[0].segments]  # type: ignore[index]
    (number,) = [number for number, _, _ in log.states.all()]
    log.states.drop([number, number + 1])
    assert found(log, stream) is None
    assert log.positions_of(stream) == []
    assert [path in log.collect_garbage(0).released for path in paths] == [True]
    forward(log, stream, append(log, stream, 1), 2)
    log.drop_stream("impsns")
    assert log.states.all() == []


def _compact(log: Log, stream: StreamState) -> None:
    plan = log.plan_compaction(stream, least_segments=2)
    with log.intents.lasting(stream.id) as intent:
        layout = log.layout(stream, intent)
        made = [s for group in plan.groups for s in rewrite(layout, stream.spec.schema, [piece_of(p) for p in group])]
        log.commit_compaction(plan, made, intent.id)
