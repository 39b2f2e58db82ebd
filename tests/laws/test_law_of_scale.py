"""What a long log costs: no more than a short one.

Headers and segments are made in bulk, many at a time, as replication would bring them. Then opening the
warehouse, appending, planning a read by position and by event time, and asking for progress are timed at
both lengths, and again after compaction; each may cost at most twice what it costs in the short log.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.log import tables
from anabranch.log.headers import header_values, segment_values
from anabranch.log.intervals import class_mask, width_class
from anabranch.log.log import Log
from anabranch.log.reading import ReadRange
from anabranch.model.run import RunHeader, RunId, RunKind, Segment, Stability
from tests.conftest import SECOND, START_US, make_spec, rows_at

SHORT = 1_000


def make_runs(log: Log, count: int) -> None:
    """So many runs of one row each, one a second of event time, in one transaction."""
    stream = log.create_stream(make_spec(slack="1 second"))
    intent = log.intents.begin(stream.id)
    directory = log.storage.directory(stream.id, intent.id)
    place = log.storage.make_directory(directory)
    headers, segments = [], []
    for position in range(1, count + 1):
        at = START_US + position * SECOND
        table = pa.Table.from_pylist(
            [{"user": position, "campaign": "a", "ts": at, "_ordinal": 0}],
            schema=pa.schema([*stream.spec.schema.arrow, pa.field("_ordinal", pa.int64())]),
        )
        pq.write_table(table, place / f"{position}.parquet")
        # Ranges of several widths, as real runs have them.
        segment = Segment(f"{directory}/{position}.parquet", 1, 1000, at, at + position % 5 * SECOND)
        segments.append(segment_values(segment, stream.id, intent.id, position, position, stime=at))
        header = RunHeader(
            stream.name, position, position, RunId(log.entry_point, position), at, None, None, RunKind.ROWS, 1, 0, 1000,
            at, at, None, None, None, at - SECOND, at - 2 * SECOND, Stability.STABLE, None, (), 1,
        )  # fmt: skip
        headers.append(header_values(header, stream.id))
    with log.catalog.write() as connection:
        connection.execute(tables.runs.insert(), headers)
        connection.execute(tables.segments.insert(), segments)
        connection.execute(
            tables.sequences.insert(),
            {"stream_id": stream.id, "entry_point": log.entry_point, "last_sequence": count},
        )
        connection.execute(tables.sources.insert(), {"stream_id": stream.id, "source": "", "mark": at - SECOND})
        connection.execute(
            tables.streams.update().values(
                last_position=count, runs=count, rows=count, size=1000 * count, progress=at - SECOND,
                event_min=START_US + SECOND, event_max=at,
                width_classes=class_mask(width_class(at, at + n * SECOND) for n in range(5)),
            )
        )  # fmt: skip
    log.intents.release(intent)


class Costs:
    """What is done at both lengths."""

    def __init__(self, place: Path, count: int, read: Callable[..., Any]) -> None:
        self.place = place
        self.middle = count // 2
        self.log = Log(place)
        self.stream = self.log.stream("impsns")
        self.read = read

    def opening(self) -> None:
        Log(self.place, create=False).close()

    def appending(self) -> None:
        with self.log.unit_of_work(self.stream, single=True) as work:
            work.append(rows_at(5))

    def planning_positions(self) -> None:
        wanted = ReadRange(first_position=self.middle, last_position=self.middle + 9)
        assert self.log.plan("impsns", wanted).segments

    def planning_a_stretch(self) -> None:
        start = START_US + self.middle * SECOND
        assert self.log.plan("impsns", ReadRange(from_time=start, to_time=start + 10 * SECOND)).segments

    def reading_positions(self) -> None:
        found = self.read(self.place, starting_position=self.middle, ending_position=self.middle + 9)
        assert sorted(found) == list(range(self.middle, self.middle + 10))

    def reading_a_stretch(self) -> None:
        found = self.read(
            self.place,
            from_time=f"{np.datetime64(START_US + self.middle * SECOND, 'us')}Z",
            to_time=f"{np.datetime64(START_US + (self.middle + 10) * SECOND, 'us')}Z",
        )
        assert sorted(found) == list(range(self.middle, self.middle + 10))

    def progress(self) -> None:
        assert self.log.stream("impsns").progress is not None


WHAT = [name for name in vars(Costs) if not name.startswith("_")]


def measure(short: Costs, long: Costs, what: str, repeats: int) -> float:
    """The ratio of medians, the two taking turns."""
    times: dict[Costs, list[float]] = {short: [], long: []}
    for _ in range(repeats + 2):
        for costs in (short, long):
            start = time.perf_counter()
            getattr(costs, what)()
            times[costs].append(time.perf_counter() - start)
    return statistics.median(times[long][2:]) / statistics.median(times[short][2:])


def check_scale(tmp_path: Path, count: int) -> None:
    engines: dict[Path, ab.Engine] = {}

    def read(place: Path, **wanted: Any) -> list[int]:
        return [row.user for row in engines[place].stream("impsns").read(**wanted).collect()]

    for name, length in (("short", SHORT), ("long", count)):
        with Log(tmp_path / name) as log:
            make_runs(log, length)
        engines[tmp_path / name] = ab.connect(tmp_path / name)
    try:
        for state in ("as it grew", "compacted"):
            short, long = Costs(tmp_path / "short", SHORT, read), Costs(tmp_path / "long", count, read)
            ratios = {what: measure(short, long, what, 9 if what.startswith("reading") else 31) for what in WHAT}
            print(f"\n{count} runs against {SHORT}, {state}:", {what: round(r, 2) for what, r in ratios.items()})
            assert max(ratios.values()) <= 2, ratios
            short.log.close()
            long.log.close()
            for engine in engines.values():
                engine.stream("impsns").compact()
    finally:
        for engine in engines.values():
            engine.close()


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_ten_thousand_runs(tmp_path: Path, warm_spark: Any) -> None:
    check_scale(tmp_path, 10_000)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_runs(tmp_path: Path, warm_spark: Any) -> None:
    check_scale(tmp_path, 100_000)
