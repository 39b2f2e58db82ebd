"""Nexmark's events, and its queries as diagrams, without Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from anabranch.bench.nexmark_events import (
    COLUMNS,
    LATE_SHARE,
    LATEST_US,
    OPEN_US,
    START_US,
    STREAMS,
    Events,
    in_order_of_arrival,
    kind_of,
    of_stream,
    table,
    times_of,
    written,
)
from anabranch.bench.nexmark_queries import QUERIES, Query
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import CreateQuery

EVENTS, A_SECOND = 50_000, 100


def micros(column: pa.ChunkedArray) -> np.ndarray:
    return pc.cast(column, pa.int64()).to_numpy()


def every(stream: str) -> pa.Table:
    numbers = np.arange(EVENTS, dtype="int64")
    return table(stream, numbers[kind_of(numbers) == stream], A_SECOND)


def made(place: Path, files: int) -> Events:
    return written(place, 5_000, 20, files, lambda done, of: None)


def test_the_same_size_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = made(tmp_path / "one", 4), made(tmp_path / "other", 4)
    for stream in STREAMS:
        assert [Path(p).read_bytes() for p in one.paths(stream)] == [Path(p).read_bytes() for p in other.paths(stream)]


def test_cutting_otherwise_changes_no_event(tmp_path: Path) -> None:
    few, many = made(tmp_path / "few", 2), made(tmp_path / "many", 5)
    for stream in STREAMS:
        tables = [pa.concat_tables(map(pq.read_table, data.paths(stream))) for data in (few, many)]
        assert tables[0].equals(tables[1])
    assert few.rows(["person"]) == 100
    assert few.rows(STREAMS) == 5_000
    assert few.first(1).rows(STREAMS) == 2_500
    times = [Path(path).stat().st_mtime for path in many.paths("bid")]
    assert times == sorted(set(times))


def test_of_a_hundred_events_two_are_people_and_six_are_auctions() -> None:
    kinds = kind_of(np.arange(EVENTS))
    assert {stream: (kinds == stream).mean() for stream in STREAMS} == {"person": 0.02, "auction": 0.06, "bid": 0.92}
    for stream in STREAMS:
        assert kind_of(np.array([of_stream(stream, 1_234_567)]))[0] == stream


def test_one_in_twenty_arrives_late() -> None:
    order = in_order_of_arrival(EVENTS, A_SECOND)
    assert sorted(order) == list(range(EVENTS))
    times = times_of(order, A_SECOND)
    newest = np.maximum.accumulate(times)
    behind = newest - times
    assert abs((behind > 0).mean() - LATE_SHARE) < 0.005
    assert 0.95 * LATEST_US < behind.max() <= LATEST_US


def test_columns_are_those_that_are_declared() -> None:
    for stream in STREAMS:
        names = every(stream).schema.names
        assert names == [column.split()[0] for column in COLUMNS[stream].split(", ")]
        assert all(column.null_count == 0 for column in every(stream).columns)


def test_what_events_refer_to_is_there() -> None:
    people, auctions, bids = map(every, STREAMS)
    assert len(set(people["id"].to_pylist())) == people.num_rows
    assert len(set(auctions["id"].to_pylist())) == auctions.num_rows
    assert pc.all(pc.is_in(auctions["seller"], people["id"])).as_py()
    assert pc.all(pc.is_in(bids["auction"], auctions["id"])).as_py()
    assert pc.all(pc.is_in(bids["bidder"], people["id"])).as_py()
    opened = micros(auctions["expires"]) - micros(auctions["ts"])
    assert 0 < opened.min() < opened.max() <= OPEN_US
    assert min(micros(people["ts"])) == START_US
    assert set(auctions["category"].to_pylist()) == {10, 11, 12, 13, 14}


def test_some_auctions_and_people_are_hot() -> None:
    bids = every("bid")
    for column, share in (("auction", 0.5), ("bidder", 0.75)):  # one in twenty is hot, for a while
        hot = (bids[column].to_numpy() % 20 == 0).mean()
        assert abs(hot - (share + (1 - share) / 20)) < 0.02
    assert len(np.unique(bids["price"].to_numpy())) > EVENTS / 2


def diagrams(query: Query) -> list[str]:
    known = {name: tuple(c.split()[0] for c in columns.split(", ")) for name, columns in COLUMNS.items()}
    names = []
    for statement in parse(query.ours):
        assert isinstance(statement, CreateQuery)
        made = compile_query(statement, known.__getitem__)
        known[made.name] = made.box.columns
        names.append(made.name)
    return names


@pytest.mark.parametrize("query", QUERIES.values(), ids=lambda query: query.name)
def test_queries_are_sql_of_this_engine(query: Query) -> None:
    assert diagrams(query)[-1] == query.name
    asked = {stream: stream for stream in query.reads}
    query.batch.format(**asked)  # names no stream that is not read
    assert (query.rival is None) == bool(query.why_none)
    if query.rival is not None:
        query.rival.sql.format(**asked)
        assert bool(query.rival.key) == (query.rival.mode == "update")
