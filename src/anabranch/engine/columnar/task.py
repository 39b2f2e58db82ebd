"""What tasks of the columnar kernel have in common, and what one does that makes partial results."""

from __future__ import annotations

from collections.abc import Iterator
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
_connections: dict[bool, DuckDBPyConnection] = {}  # one for each process of Spark's, and kind of plan


class Work(Protocol):
    """The work of all tasks, sent to each; small."""

    def run(self, number: int) -> Iterator[Report]:
        """Do what one of them has to do."""


@dataclass(frozen=True)
class ColumnarTask:
    """Tasks with numbers. What DuckDB refuses to compute is declined: whoever asked will ask Spark."""

    work: Work

    def reports(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Report]:
        import duckdb

        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    yield from self.work.run(number)
                except duckdb.Error as error:
                    yield {DECLINED: str(error).splitlines()[0]}


@dataclass(frozen=True)
class MakePartials:
    """Read segments, compute, write segments."""

    portions: tuple[tuple[Portion, ...], ...]
    pipelines: tuple[str, ...]
    fails: bool
    writer: BucketWriter
    names: tuple[str, ...]

    def run(self, number: int) -> Iterator[Report]:
        database = connection(self.fails)
        for part, portion in enumerate(self.portions[number]):
            sql = self.pipelines[portion.pipeline].replace(SEGMENTS, f"({portion.sql()})", 1)
            made: pa.Table = database.sql(sql).to_arrow_table()
            if RESET in self.names:
                made = made.append_column(RESET, pa.array([False] * made.num_rows))
            for report in self.writer.written(made.select(self.names)):
                yield {**report, "partition": number, "part": part}


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
