"""What a query over a Join says: the pairs that new rows make, and left rows that have no partner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.diagram.boxes.join import Join
from anabranch.diagram.progress import has_event_time
from anabranch.diagram.query import OnError
from anabranch.diagram.reach import BEGINNING, EVERYTHING, Interval
from anabranch.diagram.reach import join as joined
from anabranch.engine.band import Reach, measure_reach
from anabranch.engine.guard import NO_GUARD, Guard
from anabranch.engine.ignored import ignored_before
from anabranch.engine.join import Sides, added, around, without_partner
from anabranch.engine.relation import Leaves, Relation
from anabranch.engine.reread import Rereading, good


class Pairing(Rereading):
    """A Join in a step."""

    reach: Reach | None = None  # of a Join by bounds, once it is known

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
        new = (self.new(leaves, left), self.new(leaves, right))
        if self.box.between is not None:
            self.reach = self._measured(leaves, new[self._bounding])
        of_left, of_right = self._times()
        asked = self.asked(leaves, dict(enumerate(new)))
        every = (self.every(leaves, left, of_left, asked[0]), self.every(leaves, right, of_right, asked[1]))
        if self.oldest is not None:
            self.ignored = [leaves.frame(self.oldest.ignored(rows, side)) for side, rows in enumerate(new)]
            new = (self.oldest.kept(new[0]), self.oldest.kept(new[1]))
            every = (self.oldest.kept(every[0]), self.oldest.kept(every[1]))
        before = ignored_before(self.step.log, leaves, self.query, joined([*of_left, *of_right]))
        if before is not None:
            every = (self.less(leaves, every[0], before, 0), self.less(leaves, every[1], before, 1))
        return Sides(new, every, self.query.came, self.reads_few)

    def _times(self) -> list[tuple[Interval, ...]]:
        """For each side, the event times at which its rows matter."""
        fresh = [self.fresh(part) for part in self.box.parts]
        found = [self._partners(1, fresh[1]), self._partners(0, fresh[0])]
        if self.box.outer:
            mine = [*found[0], *fresh[0], *self._passing()]
            found = [joined(mine), joined([*found[1], *self._partners(0, mine)])]
        timed = [has_event_time(part) for part in self.box.parts]
        return [times if known else EVERYTHING for times, known in zip(found, timed, strict=True)]

    def _partners(self, side: int, times: Sequence[Interval]) -> tuple[Interval, ...]:
        """Where the partners of a side's rows at some event times can be."""
        if self.box.between is None:
            return around(times, self.box.within)
        if self.reach is None:
            return EVERYTHING
        return self.reach.partners(times) if side == self._bounding else self.reach.bounding(times)

    @property
    def _bounding(self) -> int:
        """The side whose columns are the bounds."""
        assert self.box.between is not None
        return 0 if self.box.between.of_left else 1

    def _measured(self, leaves: Leaves, new: Relation) -> Reach | None:
        """The reach of all rows that the bounding side has had, those of this step among them."""
        stored = self.query.stored
        known = None if stored.reach is None else Reach(*stored.reach)
        rows = new
        if known is None and stored.bucket is not None:  # it was made before reaches were recorded
            rows = self.every(leaves, self.box.parts[self._bounding], EVERYTHING)
        elif not self.fresh(self.box.parts[self._bounding]):
            return known
        measured = measure_reach(leaves, self.box, rows)
        reach = known if measured is None else measured.united(known)
        if reach is not None and reach != known:
            self.step.note_reach(self.query, (reach.low, reach.high))
        return reach

    def _passing(self) -> Sequence[Interval]:
        """Where left rows are whose band passes in this step."""
        first, last = self.moments[0].progress, self.moments[-1].progress
        if not self.box.banded or last is None or first == last:
            return ()
        passed = [(BEGINNING if first is None else first, last)]
        if self.box.between is not None:
            if self._bounding:  # a left row's band ends with its own event time
                return passed
            return EVERYTHING if self.reach is None else self.reach.bounding(passed)
        assert self.box.within is not None
        return [(BEGINNING if first is None else first - self.box.within, last - self.box.within)]
