"""Sort on Spark: rows wait until progress passes them.

Each message is said in its own bucket, or in the first one whose progress is after its event time, if that is
later. So a row that is deleted before it was passed is never said. Beside the new rows only those are read
again that progress passes in this step.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.diagram.boxes.sort import Sort
from anabranch.diagram.reach import BEGINNING, join
from anabranch.engine.relation import Leaves, Relation, quoted
from anabranch.engine.reread import Rereading, good


class Sorting(Rereading):
    """A Sort in a step."""

    def idle(self) -> bool:
        return not self.news and not self.moved

    def deltas(self, leaves: Leaves) -> tuple[Relation, list[Relation]]:
        assert isinstance(self.core, Sort)
        new = self.new(leaves, self.core.input)
        first, last = self.moments[0].progress, self.moments[-1].progress
        passed = [] if last is None else [(BEGINNING if first is None else first, last - 1)]
        rows = self.every(leaves, self.core.input, join([*self.fresh(self.core.input), *passed]))
        failing = [new] if self.guard.aside else []
        return self._passed(good(rows) if self.guard.aside else rows), failing

    def _passed(self, rows: Relation) -> Relation:
        """The rows that are said now, in the buckets in which they are."""
        known = [m for m in self.moments if m.progress is not None]
        cases = " ".join(f"WHEN UNIX_MICROS(_event_time) < {m.progress}L THEN {m.bucket}L" for m in known)
        when = f"CASE {cases} END" if cases else "CAST(NULL AS BIGINT)"
        before = self.moments[0].progress
        # What is old and was passed before has been said.
        now = "TRUE" if before is None else f"_bucket > {self.query.came}L OR UNIX_MICROS(_event_time) >= {before}L"
        columns = [quoted(n) if n != "_bucket" else "GREATEST(_bucket, _when) AS _bucket" for n in rows.names]
        inner = f"SELECT *, {when} AS _when FROM {rows.source} WHERE {now}"
        sql = f"SELECT {', '.join(columns)} FROM ({inner}) AS {quoted(rows.alias)} WHERE _when IS NOT NULL"
        return replace(rows, sql=sql)
