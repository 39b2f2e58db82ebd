"""The table of a query, computed by tasks from partial results as it is read: nothing is exchanged or stored.

What comes out are Arrow batches that Spark takes as rows. Conditions that are put on them afterwards spare no work
here, so only tables are read so that are soon read whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from anabranch.diagram.columnar.kinds import quoted
from anabranch.engine.columnar.difference import RESULTS
from anabranch.engine.columnar.linear import INSTANT
from anabranch.engine.columnar.saying import SayJob, computed
from anabranch.engine.columnar.shares import Share
from anabranch.log.zeros import unsigned

OPEN = "_open"  # whether a result's window has not closed yet
_ROWS_A_BATCH = 64_000


@dataclass(frozen=True)
class ReadTask:
    """The work of all tasks, sent to each; small."""

    job: SayJob
    shares: tuple[Share, ...]
    schema: pa.Schema
    open_from: int | None  # windows that close at this instant or later are open; None: they are not told apart

    def batches(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                found = computed(self.job, self.shares[number], self._chosen())
                yield from unsigned(found.cast(self.schema)).to_batches(_ROWS_A_BATCH)

    def _chosen(self) -> str:
        made = [quoted(name) for name in self.schema.names if name != OPEN]
        if OPEN in self.schema.names:
            made.append(f"{'FALSE' if self.open_from is None else f'{INSTANT} >= {self.open_from}'} AS {OPEN}")
        return f"SELECT {', '.join(made)} FROM {RESULTS}"
