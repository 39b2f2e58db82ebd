"""What a query over a Join says: the pairs that new rows make, and left rows that have no partner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.diagram.boxes.join import Join
from anabranch.diagram.progress import has_event_time
from anabranch.diagram.query import OnError
from anabranch.diagram.reach import EVERYTHING, Interval
from anabranch.diagram.reach import join as joined
from anabranch.engine.bounds import without
from anabranch.engine.guard import NO_GUARD, Guard
from anabranch.engine.ignored import ignored_before
from anabranch.engine.join import Sides, added, around, without_partner
from anabranch.engine.relation import Leaves, Relation
from anabranch.engine.reread import Rereading, good


class Pairing(Rereading):
    """A Join in a step."""

    @property
    def box(self) -> Join:
        assert isinstance(self.core, Join)
        return self.core

    def idle(self) -> bool:
        passing = self.box.outer and self.box.banded and self.moved
        return not passing and not self.news

    def deltas(self, leaves: Leaves) -> tuple[Relation, list[Relation]]:
        sides = self._sides(leaves)
        failing: list[Relation] = []
        if self.guard.aside:
            failing += sides.new
            a, b, c, d = (good(rows) for rows in (*sides.new, *sides.every))
            sides = replace(sides, new=(a, b), every=(c, d))
        pairs = added(self.box, sides, self.guard)
        if self.box.outer:
            as_null = Guard(OnError.NULL) if self.guard.on else NO_GUARD
            alone = without_partner(self.box, sides, self.moments, as_null)
            beside = self.guard.begin(alone)
            names = ", ".join(pairs.names)
            pairs = replace(pairs, sql=f"{pairs.sql} UNION ALL SELECT {names} FROM {beside.source}")
        return pairs, failing

    def _sides(self, leaves: Leaves) -> Sides:
        left, right = self.box.parts
        of_left, of_right = self._times()
        new = (self.new(leaves, left), self.new(leaves, right))
        every = (self.every(leaves, left, of_left), self.every(leaves, right, of_right))
        if self.oldest is not None:
            self.ignored = [leaves.frame(self.oldest.ignored(rows, side)) for side, rows in enumerate(new)]
            new = (self.oldest.kept(new[0]), self.oldest.kept(new[1]))
            every = (self.oldest.kept(every[0]), self.oldest.kept(every[1]))
        before = ignored_before(self.step.log, leaves, self.query, joined([*of_left, *of_right]))
        if before is not None:
            every = (without(every[0], before, 0), without(every[1], before, 1))
        return Sides(new, every, self.query.came, self.reads_few)

    def _times(self) -> list[tuple[Interval, ...]]:
        """For each side, the event times at which its rows matter."""
        fresh = [self.fresh(part) for part in self.box.parts]
        found = [around(fresh[1], self.box.within), around(fresh[0], self.box.within)]
        if self.box.outer:
            mine = [*found[0], *fresh[0], *self._passing()]
            found = [joined(mine), joined([*found[1], *around(mine, self.box.within)])]
        timed = [has_event_time(part) for part in self.box.parts]
        return [times if known else EVERYTHING for times, known in zip(found, timed, strict=True)]

    def _passing(self) -> Sequence[Interval]:
        """Where left rows are whose band passes in this step."""
        first, last = self.moments[0].progress, self.moments[-1].progress
        if self.box.between is not None:
            return EVERYTHING
        if self.box.within is None or last is None or first == last:
            return ()
        return (((-(1 << 62) if first is None else first - self.box.within), last - self.box.within),)
