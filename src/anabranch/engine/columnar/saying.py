"""What a query says of the windows in a stretch of time, computed and written by one task each.

A task reads the partial results of its windows, wherever these were written, keeps the groups that can have changed,
and compares their versions. Tasks share windows out by when they close, so nothing is exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.diagram.columnar import over_rows
from anabranch.diagram.columnar.kinds import Kind, NotProven, quoted
from anabranch.diagram.reach import Interval
from anabranch.engine.changes import Emission
from anabranch.engine.columnar.answer import COUNTED, GROUPS, KEPT, VERSION, WINDOWS, Answer
from anabranch.engine.columnar.difference import RESULTS, difference, first_said
from anabranch.engine.columnar.hashes import hashed
from anabranch.engine.columnar.portions import Portion, read_as
from anabranch.engine.columnar.shares import FOREVER, Share, shares
from anabranch.engine.columnar.task import Scans, connection
from anabranch.engine.emit import BucketWriter
from anabranch.engine.reports import Report
from anabranch.model.run import Segment
from anabranch.model.schema import Schema


@dataclass(frozen=True)
class Moment:
    """A version: the buckets that count in it, and which windows are closed."""

    bucket: int
    closes: int | None  # None: no window is


@dataclass(frozen=True)
class SayJob:
    """Partial results to be answered from, and the versions to be compared."""

    answer: Answer
    kept: Schema
    segments: tuple[Segment, ...]
    panes: tuple[Interval, ...]
    keys: str  # the condition on keys, where only some are asked for
    moments: tuple[Moment, ...]
    emissions: tuple[Emission, ...]
    first: bool  # whether nothing was said before

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)

    def shares(self, root: Path, tasks: int) -> tuple[Share, ...]:
        """The windows shared out, so that every task has about as much to read."""
        window = self.answer.box.window
        if window is None:
            return shares(self.segments, root, 1)
        return shares(self.segments, root, tasks, window.size, None if self.first else self.moments[0].closes)

    def results(self, share: Share) -> str:
        """The groups of a share in all versions, for whatever comes after them."""
        answer, box = self.answer, self.answer.box
        tables = {KEPT: self._kept(share), WINDOWS: answer.windows, "_chosen": self._chosen(share)}
        versions = [self._version(n, moment) for n, moment in enumerate(self.moments)]
        if box.window is None and not box.keys:
            versions += [self._nothing(n) for n, moment in enumerate(self.moments) if moment.bucket >= 0]
        none = f"SELECT *, 0 AS {VERSION} FROM _chosen WHERE FALSE"
        tables[COUNTED] = " UNION ALL ".join(v for v in versions if v) or none
        return ", ".join(f"{name} AS {_kept_once(name)}({sql})" for name, sql in tables.items())

    def _kept(self, share: Share) -> str:
        rows = share.rows(self.panes)
        if rows is None:
            none = [*(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in self.answer.kept.items()),
                    "CAST(NULL AS BIGINT) AS _pane", "CAST(NULL AS BIGINT) AS _bucket"]  # fmt: skip
            return f"SELECT {', '.join(none)} WHERE FALSE"
        kept = [read_as(name, kind) for name, kind in self.answer.kept.items()]
        chosen = ", ".join([*kept, "EPOCH_US(_pane) AS _pane", "_bucket"])
        return f"SELECT {chosen} FROM {rows} WHERE {self._of_keys()}"

    def _of_keys(self) -> str:
        """It only spares reading: groups that have not changed are left out later in any case."""
        kinds = {field.name: Kind.of(field.type) for field in self.kept if field.name in self.answer.kept}
        try:
            return over_rows(kinds).translate(self.keys).sql
        except NotProven:
            return "TRUE"

    def _chosen(self, share: Share) -> str:
        """Only groups that can differ between the versions: of windows that close, or with new rows."""
        window, keys = self.answer.box.window, [name for name, _ in self.answer.box.keys]
        mine = "TRUE"
        if window is not None:
            last = max((m.closes for m in self.moments if m.closes is not None), default=-FOREVER)
            mine = f"w._close >= {share.low} AND w._close < {share.high} AND w._close <= {last}"
        by = [*(["_open"] if window is not None else []), *keys]
        was = self.moments[0]
        if self.first or not by or (window is not None and was.closes is None):
            return f"SELECT w.* FROM {WINDOWS} AS w WHERE {mine}"
        new = f"SELECT DISTINCT {', '.join(map(quoted, by))} FROM {WINDOWS} WHERE _bucket > {was.bucket}"
        same = " AND ".join(f"w.{quoted(name)} IS NOT DISTINCT FROM f.{quoted(name)}" for name in by)
        if window is None:
            return f"SELECT w.* FROM {WINDOWS} AS w SEMI JOIN ({new}) AS f ON {same}"
        closing, closed = f"w._close > {was.closes}", f"w._close <= {was.closes}"
        touched = f"{WINDOWS} AS w SEMI JOIN ({new} AND _close <= {was.closes}) AS f ON {same}"
        return (
            f"SELECT w.* FROM {WINDOWS} AS w WHERE {mine} AND {closing} "
            f"UNION ALL SELECT w.* FROM {touched} WHERE {mine} AND {closed}"
        )

    def _version(self, number: int, moment: Moment) -> str:
        closed = "TRUE"
        if self.answer.box.window is not None:
            if moment.closes is None:
                return ""
            closed = f"_close <= {moment.closes}"
        return f"SELECT *, {number} AS {VERSION} FROM _chosen WHERE _bucket <= {moment.bucket} AND {closed}"

    def _nothing(self, number: int) -> str:
        """A running aggregate without keys has an answer before there is a row: it counts none."""
        zero = {"_n": "0", "_set": "0"}
        cells = ", ".join(f"CAST({zero.get(n, 'NULL')} AS {kind}) AS {n}" for n, kind in self.answer.kept.items())
        return f"SELECT {cells}, CAST(0 AS BIGINT) AS _bucket, {number} AS {VERSION}"


@dataclass(frozen=True)
class SayingTask:
    """The work of all tasks, sent to each; small."""

    job: SayJob
    shares: tuple[Share, ...]
    writer: BucketWriter

    def reads(self, number: int) -> Sequence[Portion]:
        return ()

    def run(self, number: int, scans: Scans) -> Iterator[Report]:
        said = computed(self.job, self.shares[number], self._changes())
        ids = [said[name].combine_chunks() for name in self.job.answer.ids]
        made = said.append_column("_of", hashed([*ids, _nulls(ids[1:], said.num_rows)], said.num_rows))
        names = [*self.writer.schema.names, *(field.name for field in self.writer.extra)]
        for report in self.writer.written(made.select(names)):
            yield {**report, "part": 0}

    def _changes(self) -> str:
        job = self.job
        if job.first:
            return first_said(job.answer.ids, job.answer.columns, job.emissions[0].bucket)
        closes = None if job.answer.box.window is None else [moment.closes for moment in job.moments]
        return difference(job.answer.ids, job.answer.columns, job.emissions, closes)


def computed(job: SayJob, share: Share, chosen: str) -> pa.Table:
    """What a SELECT finds in the results of a share of the windows."""
    answer = job.answer
    database = connection(answer.fails)
    tables = f"{job.results(share)}, {GROUPS} AS ({answer.groups})"
    said = f"{RESULTS} AS MATERIALIZED ({answer.results}) FROM ({chosen})"
    if not answer.finishes:
        return database.sql(f"WITH {tables}, {said}").to_arrow_table()
    groups: pa.Table = database.sql(f"WITH {tables} FROM {GROUPS}").to_arrow_table()
    for finish in answer.finishes:
        groups = groups.append_column(finish.name, finish.of(groups))
    database.register("_finished", groups)
    try:
        return database.sql(f"WITH {GROUPS} AS (FROM _finished), {said}").to_arrow_table()
    finally:
        database.unregister("_finished")


def _kept_once(name: str) -> str:
    return "" if name in (KEPT, COUNTED) else "MATERIALIZED "


def _nulls(keys: Sequence[pa.Array], rows: int) -> pa.Array:
    """Which of the keys are null, as a number: see `relation.nulls`."""
    found = np.zeros(rows, np.int64)
    for n, key in enumerate(keys):
        found += np.asarray(pc.is_null(key)).astype(np.int64) << n
    return pa.array(found)
