"""Where the partners of a Join by bounds can be (`WITHIN BETWEEN a.start AND a.stop`).

The bounds are columns of one side, so nothing but its rows says how far from them partners may be. The *reach* of a
Join is that distance over all rows of the bounding side that it has ever been given: from the least of `start` less
the row's event time to the greatest of `stop` less it. It is measured from the new rows of each step, recorded
with the step, and only grows; so of either side only those segments are opened that can hold partners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.diagram.boxes.join import Join
from anabranch.diagram.reach import BEGINNING, END, Interval, join
from anabranch.engine.join import aliases
from anabranch.engine.relation import Leaves, Relation, quoted


@dataclass(frozen=True)
class Reach:
    """How far before and after a row of the bounding side its partners can be, in microseconds."""

    low: int
    high: int

    def united(self, other: Reach | None) -> Reach:
        return self if other is None else Reach(min(self.low, other.low), max(self.high, other.high))

    def partners(self, times: Sequence[Interval]) -> tuple[Interval, ...]:
        """Where the partners of rows of the bounding side can be."""
        return _shifted(times, self.low, self.high)

    def bounding(self, times: Sequence[Interval]) -> tuple[Interval, ...]:
        """Where the rows of the bounding side can be whose partners are at some event times."""
        return _shifted(times, -self.high, -self.low)


def _shifted(times: Sequence[Interval], low: int, high: int) -> tuple[Interval, ...]:
    if low > high:  # no row can have a partner
        return ()
    return join((max(first + low, BEGINNING), min(last + high, END)) for first, last in times)


def measure_reach(leaves: Leaves, box: Join, rows: Relation) -> Reach | None:
    """The reach of some rows of the bounding side; None if none of them bounds anything."""
    assert box.between is not None
    alias = aliases(box)[0 if box.between.of_left else 1]

    def apart(bound: str) -> str:
        return f"UNIX_MICROS(CAST(({bound}) AS TIMESTAMP)) - UNIX_MICROS({quoted(alias)}._event_time)"

    low, high = apart(box.between.low.text), apart(box.between.high.text)
    found = leaves.frame(
        f"SELECT MIN({low}) AS low, MAX({high}) AS high FROM {replace(rows, alias=alias).source}"
    ).first()
    assert found is not None
    return None if found.low is None or found.high is None else Reach(int(found.low), int(found.high))
