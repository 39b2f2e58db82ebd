"""Many partial results of one pane and group made one, by tasks that share out the panes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.columnar import over_groups
from anabranch.diagram.columnar.kinds import Kind, NotProven, quoted
from anabranch.engine.aggregates import Lowered
from anabranch.engine.columnar.portions import Portion, read_as
from anabranch.engine.columnar.shares import Share
from anabranch.engine.columnar.task import Scans, connection
from anabranch.engine.emit import BucketWriter
from anabranch.engine.reports import Report
from anabranch.engine.resets import RESET
from anabranch.model.run import Segment
from anabranch.model.schema import Schema

_ROWS = "_partials"


@dataclass(frozen=True)
class ReduceJob:
    """Segments of partial results of which rows of the same pane and group are to be merged."""

    box: Partials
    lowered: Lowered
    schema: Schema
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Merging:
    """A SELECT over partial results; `read` are the columns that it needs of them."""

    sql: str
    read: tuple[str, ...]
    fails: bool


def merging(box: Partials, lowered: Lowered, schema: Schema) -> Merging:
    """How partial results are merged, still partial; NotProven where Spark would make others of them."""
    kinds = {field.name: Kind.of(field.type) for field in schema if field.name not in ("_pane", "_bucket", RESET)}
    over = over_groups(kinds)
    merged = {m.name: over.translate(m.reduce) for m in lowered.measures}
    for name, typed in merged.items():
        if typed.kind != kinds[name]:
            raise NotProven(f"{name}, a {typed.kind} here and a {kinds[name]} in Spark")
    items = ["_set", *(f"_i{at}" for at in range(len(lowered.sets)))] if lowered.sets else []
    by = [*map(quoted, ["_pane", *(key.name for key in box.keys), *items])]
    # A merged result belongs to the newest of its buckets: all of them are said already.
    made = ["MAX(_bucket) AS _bucket", *(f"{typed.sql} AS {name}" for name, typed in merged.items())]
    order = ", ".join(f"{name} NULLS FIRST" for name in by[: 1 + len(box.keys)])
    sql = f"SELECT {', '.join([*by, *made])} FROM {_ROWS} GROUP BY {', '.join(by)} ORDER BY {order}"
    read = tuple(read_as(name, kind) for name, kind in kinds.items())
    return Merging(sql, read, any(typed.fails for typed in merged.values()))


@dataclass(frozen=True)
class MergePartials:
    """Read, merge, write."""

    merging: Merging
    shares: Sequence[Share]
    writer: BucketWriter

    def reads(self, number: int) -> Sequence[Portion]:
        return ()

    def run(self, number: int, scans: Scans) -> Iterator[Report]:
        names = self.writer.schema.names
        read = ", ".join([*self.merging.read, "_pane", "_bucket"])
        rows = f"SELECT {read} FROM {self.shares[number].rows()}"
        database = connection(self.merging.fails)
        made: pa.Table = database.sql(f"WITH {_ROWS} AS ({rows}) {self.merging.sql}").to_arrow_table()
        if RESET in names:
            made = made.append_column(RESET, pa.array([False] * made.num_rows))
        for report in self.writer.written(made.select(names)):
            yield {**report, "part": 0}
