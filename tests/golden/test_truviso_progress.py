"""TRUVISO Figures 1 and 2: slack and drift, row by row.

In-order processing buffers rows and releases them, sorted, once progress has reached them; a row that
comes below progress is the one that it would drop. Nothing else here buffers: the figure's output is
what progress alone determines. Times are in seconds.

On Spark the buffer is `ORDER BY EVENT TIME`. Its instants are microseconds, and a row is passed when progress is
after it, so that rows of one instant come out together; the figures' clock ticks in seconds and passes a row
with its own tick. One microsecond more of progress makes the two the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC

import pytest

import anabranch as ab
from anabranch.log.log import Log
from anabranch.model.progress import Progress
from anabranch.model.time import to_datetime
from tests.conftest import SECOND, START_US, make_spec, rows_at

# Row 7 reads 4 in the copied text of the paper; its prose and the buffer show that it is 1.
FIG_1_INPUT = [1, 2, 3, 2, 6, 5, 1, 9, 8]
FIG_1_BUFFER = [[1], [1, 2], [1, 2, 3], [1, 2, 2, 3], [6], [5, 6], [5, 6], [9], [8, 9]]
FIG_1_OUTPUT = {5: [1, 2, 2, 3], 8: [5, 6]}
FIG_1_DROPPED = {7: 1}

# Figure 2: what arrives from the two sources in each row, what is released, and what waits in the buffer.
FIG_2 = [
    ([("A", 1)], [("a", 2)], ["A"]),
    ([("B", 2)], [("b", 3)], ["a", "B"]),
    ([("C", 3)], [("s", 3)], ["b", "s", "C"]),
    ([("G", 4)], [("e", 5)], ["G"]),
    ([("D", 6)], [], ["e"]),
    ([("E", 7)], [], []),
    ([("R", 8)], [], ["D"]),
    ([("F", 9)], [("x", 5)], ["E"]),
    ([], [("z", 10)], ["R", "F"]),
]
FIG_2_BUFFER = {6: ["D", "E"], 7: ["E", "R"], 8: ["R", "F"], 9: ["z"]}
FIG_2_DROPPED = ["x"]


def test_fig_1_slack_of_3() -> None:
    progress = Progress(slack=3)
    buffer: list[int] = []
    for number, time in enumerate(FIG_1_INPUT, 1):
        late = progress.is_late(time)
        assert late == (number in FIG_1_DROPPED), f"row {number}"
        progress.advance({"": time})
        if not late:
            buffer.append(time)
        assert progress.value is not None
        released = sorted(t for t in buffer if t <= progress.value)
        buffer = sorted(t for t in buffer if t > progress.value)
        assert released == FIG_1_OUTPUT.get(number, []), f"row {number}"
        assert buffer == FIG_1_BUFFER[number - 1], f"row {number}"


def test_fig_2_drift_of_2() -> None:
    progress = Progress(drift=2)
    buffer: list[tuple[str, int]] = []
    dropped = []
    for number, (first, second, output) in enumerate(FIG_2, 1):
        # Within a row the second source's rows come first: that is how the figure orders its output.
        arrived = [*second, *first]
        dropped += [name for name, time in arrived if progress.is_late(time)]
        buffer += [item for item in arrived if not progress.is_late(item[1])]
        latest = {name: max(t for _, t in rows) for name, rows in (("1", first), ("2", second)) if rows}
        progress.advance(latest)
        assert progress.value is not None
        limit = progress.value
        released = [item for item in sorted(buffer, key=lambda item: item[1]) if item[1] <= limit]
        buffer = [item for item in buffer if item[1] > limit]
        assert sorted(name for name, _ in released) == sorted(output), f"row {number}"
        if number in FIG_2_BUFFER:
            assert sorted(name for name, _ in buffer) == sorted(FIG_2_BUFFER[number]), f"row {number}"
    assert dropped == FIG_2_DROPPED


@pytest.mark.parametrize("cut", ["row by row", "all at once"])
def test_fig_1_in_the_log(log: Log, cut: str) -> None:
    stream = log.create_stream(make_spec(slack="3 seconds"))
    runs = [[t] for t in FIG_1_INPUT] if cut == "row by row" else [FIG_1_INPUT]
    headers = []
    for times in runs:
        with log.unit_of_work(stream) as work:
            work.append(rows_at(*times))
        headers += log.headers(stream, newest=1)
    assert headers[-1].progress == START_US + 6 * SECOND
    if cut == "row by row":
        seconds = [(h.progress - START_US) // SECOND for h in headers if h.progress is not None]
        assert seconds == [-2, -1, 0, 0, 3, 3, 3, 6, 6]
        assert [h.position for h in headers if h.late] == [7]
    assert log.stream(stream.name).rows == len(FIG_1_INPUT), "the row that in-order processing drops is kept"


def test_fig_2_in_the_log(log: Log) -> None:
    stream = log.create_stream(make_spec(drift="2 seconds"))
    seconds, late = [], []
    for first, second, _ in FIG_2:
        for source, rows in (("1", first), ("2", second)):
            if rows:
                with log.unit_of_work(stream, source=source) as work:
                    work.append(rows_at(*(t for _, t in rows)))
                late += [source for h in log.headers(stream, newest=1) if h.late]
        progress = log.stream(stream.name).progress
        assert progress is not None
        seconds.append((progress - START_US) // SECOND)
    assert seconds == [1, 2, 3, 4, 5, 5, 6, 7, 9]
    assert late == ["2"], "only (x, 5) comes after its time"
    assert log.stream(stream.name).rows == 14


def sorted_stream(engine: ab.Engine, clauses: str) -> ab.Stream:
    engine.sql(f"CREATE STREAM s (name STRING, ts TIMESTAMP) EVENT TIME ts {clauses}")
    engine.sql("CREATE STREAM sorted AS SELECT name, ts FROM s ORDER BY EVENT TIME")
    return engine.stream("s")


def put(stream: ab.Stream, rows: Sequence[tuple[str, int]], source: str | None = None) -> None:
    stream.append([{"name": name, "ts": to_datetime(START_US + t * SECOND)} for name, t in rows], source=source)


def released(engine: ab.Engine) -> dict[int, list[tuple[str, int]]]:
    """What came out, by the bucket that released it, in order."""
    found: dict[int, list[tuple[str, int]]] = {}
    for row in engine.changes("sorted").orderBy("_bucket", "_ordinal").collect():
        assert row._change_type == "insert"
        seconds = (row.ts.replace(tzinfo=UTC) - to_datetime(START_US)).total_seconds()
        found.setdefault(row._bucket, []).append((row.name, int(seconds)))
    return found


def test_fig_1_on_spark(engine: ab.Engine) -> None:
    """Row by row what the figure puts out; the row that it drops comes out at once, in its own bucket."""
    stream = sorted_stream(engine, "SLACK '2999999 microseconds'")
    for number, time in enumerate(FIG_1_INPUT, 1):
        put(stream, [(str(number), time)])
        engine.advance()
    expected = {**FIG_1_OUTPUT, **{number: [time] for number, time in FIG_1_DROPPED.items()}}
    assert {bucket: [t for _, t in rows] for bucket, rows in released(engine).items()} == expected


def test_fig_2_on_spark(engine: ab.Engine) -> None:
    """The same with two sources of which one falls silent; what comes too late after the lull comes out at once."""
    stream = sorted_stream(engine, "DRIFT '2 seconds'")
    for first, second, _ in FIG_2:
        for source, rows in (("1", first), ("2", second)):
            if rows:
                put(stream, rows, source)
                stream.punctuate(to_datetime(START_US + rows[-1][1] * SECOND + 1), source)
        engine.advance()
    found = released(engine)
    for number, (_, _, output) in enumerate(FIG_2, 1):
        names = [name for name, _ in found.get(number, [])]
        in_time = [(time, name) for name, time in found.get(number, []) if name not in FIG_2_DROPPED]
        assert [time for time, _ in in_time] == sorted(time for time, _ in in_time), f"row {number}"
        assert sorted(name for _, name in in_time) == sorted(output), f"row {number}"
        assert [name for name in names if name in FIG_2_DROPPED] == (FIG_2_DROPPED if number == 8 else [])
