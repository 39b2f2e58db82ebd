"""Compaction by Spark tasks: other files, the same answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anabranch as ab
from anabranch.model.run import RunKind

START = datetime(2026, 1, 1, tzinfo=UTC)


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(r) for r in frame.collect()), key=repr)


def test_reads_are_the_same_after_compaction(engine: ab.Engine) -> None:
    stream = engine.create_stream("orders", "id INT, v STRING, ts TIMESTAMP", event_time="ts", key="id")
    for number in range(12):
        at = START + timedelta(hours=number * 7 % 12)
        stream.append([{"id": number, "v": f"v{number}", "ts": at}], source=f"s{number % 3}")
    stream.delete([3])
    stream.delete([5])
    stream.replace([{"id": 4, "v": None, "ts": START}])
    ranges: list[dict[str, Any]] = [
        {},
        {"starting_position": 5, "ending_position": 9},
        {"from_time": START + timedelta(hours=2), "to_time": START + timedelta(hours=4)},
        {"starting_position": 12},
    ]
    before = [rows(stream.read(log_columns=True, **r)) for r in ranges]
    plain = [rows(stream.read(**r)) for r in ranges]
    done = stream.compact()
    assert (done.rows, done.segments_read, done.segments_written) == (15, 15, 2)
    assert [rows(stream.read(log_columns=True, **r)) for r in ranges] == before
    assert [rows(stream.read(**r)) for r in ranges] == plain
    (header,) = stream.runs()
    assert (header.first_position, header.position, header.kind, header.rows) == (1, 15, RunKind.COMPACTED, 15)
    stream.append([{"id": 99, "v": "new", "ts": START}])
    assert [r.id for r in stream.read(starting_position=16).collect()] == [99]
    assert stream.compact().rows == 0
    engine.collect_garbage(grace="0 seconds")
    assert len(list((engine.warehouse / "data").rglob("*.parquet"))) == 3
    assert len(rows(stream.read())) == 16


def test_what_is_held_is_left_alone(engine: ab.Engine) -> None:
    stream = engine.create_stream("impsns", "id INT, ts TIMESTAMP", event_time="ts")
    for number in range(20):
        stream.append([{"id": number, "ts": START}])
    stream.hold("subscriber", 10)
    assert stream.compact().segments_read == 10
    assert [h.position for h in stream.runs()] == list(range(10, 21))
    engine.create_view("from_five", "impsns", start=5)
    stream.release("subscriber")
    assert stream.compact().rows == 0
    engine.drop_view("from_five")
    assert stream.compact().segments_read == 11
    assert sorted(r.id for r in stream.read().collect()) == list(range(20))
