"""History bounds in rows: the event time of the n-th newest row before each bucket, to the microsecond.

What is ignored must not depend on which files are there, nor on how they are cut. So the limit is counted over the rows
themselves: those that the catalog says can be among the newest, which retention never takes, because it goes by the
least that the limit can be. It is counted only where something that is old enough to matter has come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import functions as F

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.reach import END, Interval
from anabranch.engine.bounds import Oldest, bound_of, limits_by_time, oldest, reason, rows_of
from anabranch.engine.live import Live, Terms
from anabranch.engine.read import dataframe
from anabranch.engine.relation import Leaves, quoted
from anabranch.engine.session import Session
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadPlan, ReadRange


class Newest:
    """The limits of one step, each counted once."""

    def __init__(self, log: Log, live: Live, session: Session) -> None:
        self.log = log
        self.live = live
        self.session = session
        self._known: dict[tuple[int, int, int], int | None] = {}  # by stream, rows and end

    def limits(self, stream: StreamState, rows: int, ends: Mapping[int, int]) -> dict[int, int]:
        """For buckets, by the positions that lie before them, the limits; where there is one."""
        missing = {end for end in ends.values() if (stream.id, rows, end) not in self._known}
        self._known |= {(stream.id, rows, end): None for end in missing}
        ranges = {end: self.live.newest(stream, rows, end) for end in missing}
        some = {end: between[0] for end, between in ranges.items() if between is not None}
        if some:
            found = self._counted(stream, rows, sorted(some), min(some.values()))
            self._known |= {(stream.id, rows, end): limit for end, limit in found.items()}
        known = {bucket: self._known[stream.id, rows, end] for bucket, end in ends.items()}
        return {bucket: limit for bucket, limit in known.items() if limit is not None}

    def _counted(self, stream: StreamState, rows: int, ends: list[int], low: int) -> dict[int, int]:
        spark = self.session.apart({})
        segments = self.log.plan_panes(stream, [(low, END)])
        held = tuple(s for s in segments if s.first_position is None or s.first_position <= ends[-1])
        frame = dataframe(spark, ReadPlan(stream.spec, ReadRange(), held), self.log.root, log_columns=True)
        times = frame.select(F.unix_micros(quoted(stream.spec.event_time)).alias("_at"), "_position")
        with Leaves(spark) as leaves:
            listed = ", ".join(f"{end}L" for end in ends)
            new = f"FROM {leaves.add(times)} WHERE _at >= {low}L"
            each = f"SELECT _at, _position, EXPLODE(ARRAY({listed})) AS _end {new}"
            order = "ROW_NUMBER() OVER (PARTITION BY _end ORDER BY _at DESC) AS _number"
            numbered = f"SELECT _at, _end, {order} FROM ({each}) WHERE _position <= _end"
            found = leaves.frame(f"SELECT _end, _at FROM ({numbered}) WHERE _number = {rows}").collect()
        return {row["_end"]: row["_at"] for row in found}


class Beyond:
    """What lies beyond history bounds in one step, for boxes and for streams."""

    def __init__(self, live: Live, newest: Newest) -> None:
        self.live = live
        self.newest = newest

    def of_box(self, terms: Terms, box: Box, buckets: Sequence[int], times: Sequence[Interval]) -> Oldest | None:
        """What a box ignores of rows at some event times; None if nothing."""
        bound, rows = bound_of(self.live, box, terms), rows_of(self.live, box, terms)
        by_time = limits_by_time(bound, {number: self.live.passed_into(box, number - 1) for number in buckets})
        return self._oldest(box, bound, by_time, rows, buckets, times)

    def of_stream(self, leaf: Source, buckets: Sequence[int], times: Sequence[Interval]) -> Oldest | None:
        """Which deletions from a stream without a key are ignored: those of rows that it need not hold any more."""
        spec = self.live.stream(leaf.stream).spec
        by_time = limits_by_time(spec.history, {n: self.live.progress_at(leaf.stream, n - 1) for n in buckets})
        rows = {} if spec.history_rows is None else {leaf.stream: spec.history_rows}
        return self._oldest(leaf, spec.history, by_time, rows, buckets, times)

    def _oldest(
        self,
        box: Box,
        bound: int | None,
        by_time: Mapping[int, int],
        rows: Mapping[str, int],
        buckets: Sequence[int],
        times: Sequence[Interval],
    ) -> Oldest | None:
        why = reason(bound, min(rows.values(), default=None))
        for limits in (self._at_most, self._counted):  # most often nothing is old enough to count anything for
            found = oldest(box, by_time, limits(rows, buckets), why)
            if found is None or not found.concerns(times):
                return None
        return found

    def _at_most(self, rows: Mapping[str, int], buckets: Sequence[int]) -> dict[int, int]:
        """What the limits of buckets can be at most, as far as the catalog knows."""
        found: dict[int, int] = {}
        for name, many in rows.items():
            for number in buckets:
                between = self.live.newest(self.live.stream(name), many, self._end(name, number - 1))
                if between is not None:
                    found[number] = max(found.get(number, between[1]), between[1])
        return found

    def _counted(self, rows: Mapping[str, int], buckets: Sequence[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for name, many in rows.items():
            ends = {number: self._end(name, number - 1) for number in buckets}
            for number, limit in self.newest.limits(self.live.stream(name), many, ends).items():
                found[number] = max(found.get(number, limit), limit)
        return found

    def _end(self, name: str, bucket: int) -> int:
        return self.live.log.register.bounds_at(self.live.stream(name).id, bucket).end
