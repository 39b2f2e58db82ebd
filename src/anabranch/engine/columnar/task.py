"""What tasks of the columnar kernel have in common, and what one does that makes partial results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from anabranch.engine.columnar.pipeline import SEGMENTS
from anabranch.engine.columnar.portions import Portion
from anabranch.engine.emit import BucketWriter
from anabranch.engine.reports import Report
from anabranch.engine.resets import RESET

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DECLINED = "declined"
# Where an expression can fail, only what never skips one: DuckDB must not answer where Spark would raise.
_SAFE = ("unused_columns", "filter_pushdown", "common_aggregate", "column_lifetime")
_SHARED_ROWS = 1_000_000  # what a task reads once for many, it holds
_connections: dict[bool, DuckDBPyConnection] = {}  # one for each process of Spark's, and kind of plan


class Work(Protocol):
    """What some tasks have to do, sent to each; small."""

    def run(self, number: int, scans: Scans) -> Iterator[Report]:
        """Do the part that has a number."""

    def reads(self, number: int) -> Sequence[Portion]:
        """What a part reads of streams."""


@dataclass(frozen=True)
class ColumnarTask:
    """Parts of many works, several for each task. What DuckDB refuses is declined: whoever asked will ask Spark."""

    works: tuple[Work, ...]
    given: tuple[tuple[tuple[int, int], ...], ...]  # to each task: works, and parts of them

    def reports(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Report]:
        import duckdb

        for batch in batches:
            for number in batch.column(0).to_pylist():
                parts = self.given[number]
                read = (portion for at, part in parts for portion in self.works[at].reads(part))
                scans = Scans(Counter(portion.rows_read for portion in read))
                begin = time.perf_counter()
                with closing(scans):
                    for at, part in parts:
                        try:
                            for report in self.works[at].run(part, scans):
                                yield {**report, "work": at, "partition": part}
                        except duckdb.Error as error:
                            yield {DECLINED: str(error).splitlines()[0], "work": at}
                yield {"task": number, "took": time.perf_counter() - begin}


class Scans:
    """Segments that several works of a task need are read once, unless they are many."""

    def __init__(self, uses: Mapping[str, int]) -> None:
        self._uses = uses
        self._read: str | None = None
        self._rows: pa.Table | None = None
        self._lent: list[DuckDBPyConnection] = []

    def sql(self, portion: Portion, database: DuckDBPyConnection) -> str:
        """What to select from for the rows of a portion."""
        rows = portion.rows_read
        if self._uses[rows] < 2 or portion.rows > _SHARED_ROWS:
            return rows
        if self._read != rows:
            self.close()
            self._rows, self._read = connection(False).sql(rows).to_arrow_table(), rows
        if database not in self._lent:
            database.register("_shared", self._rows)
            self._lent.append(database)
        return "FROM _shared"

    def close(self) -> None:
        """Let go of what was read: the databases outlive the task."""
        for database in self._lent:
            database.unregister("_shared")
        self._lent, self._rows, self._read = [], None, None


@dataclass(frozen=True)
class MakePartials:
    """Read segments, compute, write segments."""

    portions: tuple[tuple[Portion, ...], ...]
    pipelines: tuple[str, ...]
    fails: bool
    writer: BucketWriter
    names: tuple[str, ...]

    def run(self, number: int, scans: Scans) -> Iterator[Report]:
        database = connection(self.fails)
        for part, portion in enumerate(self.portions[number]):
            sql = self.pipelines[portion.pipeline].replace(SEGMENTS, f"({scans.sql(portion, database)})", 1)
            made: pa.Table = database.sql(sql).to_arrow_table()
            if RESET in self.names:
                made = made.append_column(RESET, pa.array([False] * made.num_rows))
            for report in self.writer.written(made.select(self.names)):
                yield {**report, "part": part}

    def reads(self, number: int) -> Sequence[Portion]:
        return self.portions[number]


def connection(fails: bool) -> DuckDBPyConnection:
    """A database of this process: in memory, with one thread, since Spark gives the other cores to other tasks."""
    import duckdb

    if fails not in _connections:
        database = duckdb.connect(config={"threads": 1, "preserve_insertion_order": False})
        database.execute("SET TimeZone = 'UTC'")
        if fails:
            known = [name for (name,) in database.execute("SELECT name FROM duckdb_optimizers()").fetchall()]
            unsafe = [name for name in known if name not in _SAFE]
            database.execute(f"SET disabled_optimizers = '{','.join(unsafe)}'")
        _connections[fails] = database
    return _connections[fails]
