"""What a query over a Join says: the pairs that new rows make, and left rows that have no partner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Row

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.progress import has_event_time, progress_into
from anabranch.diagram.query import OnError
from anabranch.diagram.reach import EVERYTHING, Interval
from anabranch.diagram.reach import join as joined
from anabranch.diagram.stages import Leaf, core, leaves_of
from anabranch.engine import settle
from anabranch.engine.bounds import without, write_ignored
from anabranch.engine.emit import Written, write_buckets
from anabranch.engine.feeds import times_of
from anabranch.engine.guard import FAILED, NO_GUARD, SETTINGS, Guard
from anabranch.engine.ignored import ignored_before
from anabranch.engine.join import Moment, Sides, added, around, at_times, without_partner
from anabranch.engine.kernel import SMALL, Feed, SparkKernel, failed_rows, write_aside
from anabranch.engine.limits import insertions
from anabranch.engine.live import LiveQuery
from anabranch.engine.mistakes import is_query_error
from anabranch.engine.read import spark_schema
from anabranch.engine.relation import Leaves, Relation
from anabranch.engine.rows import lower_linear
from anabranch.engine.saying import CHANGE_TYPE, Saying
from anabranch.engine.settle import settled

if TYPE_CHECKING:
    from anabranch.engine.step import Step

Scan = Callable[[Leaf], Relation]


def say_pairs(step: Step, query: LiveQuery, feeds: Mapping[Leaf, Feed]) -> Saying:
    """The changes of a query over a Join."""
    box = core(query.plan)
    assert isinstance(box, Join)
    moments = _moments(step, query, box)
    passing = box.outer and box.banded and moments[0].progress != moments[-1].progress
    if not passing and not any(feed.plan.segments for feed in feeds.values()):
        return Saying(released=step.upto)
    try:
        written = _Pairing(step, query, box, feeds, moments, NO_GUARD).write()
    except Exception as error:
        if not query.guard.on or not is_query_error(error):
            raise
        written = _Pairing(step, query, box, feeds, moments, query.guard).write()
    return Saying(tuple(written), step.upto)


def failing_pair(step: Step, query: LiveQuery, feeds: Mapping[Leaf, Feed]) -> Row | None:
    """A row, or a pair of rows, on which an expression of a query over a Join fails."""
    box = core(query.plan)
    assert isinstance(box, Join)
    pairing = _Pairing(step, query, box, feeds, _moments(step, query, box), Guard(OnError.QUARANTINE))
    with Leaves(pairing.kernel.spark) as leaves:
        found = (frame.first() for frame in pairing.changes(leaves)[1])
        return next((row for row in found if row is not None), None)


def _moments(step: Step, query: LiveQuery, box: Join) -> list[Moment]:
    numbers = [query.came, *(b.number for b in step.buckets if b.number > query.came)]
    return [Moment(n, progress_into(box, step.progress_at(query.sources, n))) for n in numbers]


class _Pairing:
    """One attempt to compute and write the changes of a step."""

    def __init__(
        self,
        step: Step,
        query: LiveQuery,
        box: Join,
        feeds: Mapping[Leaf, Feed],
        moments: Sequence[Moment],
        guard: Guard,
    ) -> None:
        self.step = step
        self.query = query
        self.box = box
        self.feeds = feeds
        self.moments = moments
        self.guard = guard
        settings = {**query.settings, **SETTINGS} if guard.on else query.settings
        self.kernel = SparkKernel(step.session.apart(settings), step.log.root)
        self.oldest = step.oldest(query, box)
        if self.oldest is not None and not self.oldest.concerns(t for part in box.parts for t in self._fresh(part)):
            self.oldest = None
        self.ignored: list[DataFrame] = []

    def write(self) -> list[Written]:
        state = self.step.log.stream_by_id(self.query.stored.stream_id)
        layout, schema = self.step.layout(state), state.spec.schema
        with Leaves(self.kernel.spark) as leaves:
            said, failed = self.changes(leaves)
            few = sum(feed.rows for feed in self.feeds.values()) < SMALL
        spread = said.coalesce(1) if few else said.repartitionByRange(*settle.ORDER)
        ordered = spread.sortWithinPartitions(*settle.ORDER).select(*schema.names, "_change_type")
        written = write_buckets(ordered, layout, schema, extra=CHANGE_TYPE)
        written += [part for frame in failed for part in write_aside(frame, layout)]
        return [*written, *(part for frame in self.ignored for part in write_ignored(frame, layout))]

    def changes(self, leaves: Leaves) -> tuple[DataFrame, list[DataFrame]]:
        sides = self._sides(leaves)
        failing: list[Relation] = []
        if self.guard.aside:
            failing += sides.new
            good = [
                replace(r, sql=f"SELECT * FROM {r.source} WHERE {FAILED} IS NULL") for r in (*sides.new, *sides.every)
            ]
            sides = Sides((good[0], good[1]), (good[2], good[3]), sides.came)
        pairs = added(self.box, sides, self.guard)
        if self.box.outer:
            as_null = Guard(OnError.NULL) if self.guard.on else NO_GUARD
            alone = without_partner(self.box, sides, self.moments, as_null)
            beside = self.guard.begin(alone)
            names = ", ".join(pairs.names)
            pairs = replace(pairs, sql=f"{pairs.sql} UNION ALL SELECT {names} FROM {beside.source}")

        def lower(box: Box) -> Relation:
            return pairs if box is self.box else lower_linear(box, lower, self.guard)

        rows = lower(self.query.plan)
        kinds = spark_schema(self.step.log.stream_by_id(self.query.stored.stream_id).spec.schema)
        if self.guard.aside:
            failing.append(rows)
            rows = _good(rows)
        changes = settled(rows, self.query.columns, kinds)
        said = leaves.frame((insertions(changes) if self.query.limits.ignore else changes).sql)
        return said, [leaves.frame(failed_rows(relation)) for relation in failing]

    def _sides(self, leaves: Leaves) -> Sides:
        left, right = self.box.parts
        of_left, of_right = self._times()
        new = (self._new(leaves, left), self._new(leaves, right))
        every = (self._every(leaves, left, of_left), self._every(leaves, right, of_right))
        if self.oldest is not None:
            self.ignored = [leaves.frame(self.oldest.ignored(rows, side)) for side, rows in enumerate(new)]
            new = (self.oldest.kept(new[0]), self.oldest.kept(new[1]))
            every = (self.oldest.kept(every[0]), self.oldest.kept(every[1]))
        before = ignored_before(self.step.log, leaves, self.query, joined([*of_left, *of_right]))
        if before is not None:
            every = (without(every[0], before, 0), without(every[1], before, 1))
        return Sides(new, every, self.query.came)

    def _new(self, leaves: Leaves, part: Box) -> Relation:
        return self._side(part, lambda leaf: self._scan(leaves, leaf, self.feeds[leaf]))

    def _every(self, leaves: Leaves, part: Box, times: Sequence[Interval]) -> Relation:
        def scan(leaf: Leaf) -> Relation:
            return self._scan(leaves, leaf, self.step.feeds.history(leaf, self.query, times))

        return at_times(self._side(part, scan), times)

    def _times(self) -> list[tuple[Interval, ...]]:
        """For each side, the event times at which its rows matter."""
        fresh = [self._fresh(part) for part in self.box.parts]
        found = [around(fresh[1], self.box.within), around(fresh[0], self.box.within)]
        if self.box.outer:
            mine = [*found[0], *fresh[0], *self._passing()]
            found = [joined(mine), joined([*found[1], *around(mine, self.box.within)])]
        timed = [has_event_time(part) for part in self.box.parts]
        return [times if known else EVERYTHING for times, known in zip(found, timed, strict=True)]

    def _fresh(self, part: Box) -> tuple[Interval, ...]:
        return times_of(s for leaf in leaves_of(part) for s in self.feeds[leaf].plan.segments)

    def _passing(self) -> tuple[Interval, ...]:
        """Where left rows are whose band passes in this step."""
        first, last = self.moments[0].progress, self.moments[-1].progress
        if self.box.between is not None:
            return EVERYTHING
        if self.box.within is None or last is None:
            return ()
        return (
            ()
            if first == last
            else (((-(1 << 62) if first is None else first - self.box.within), last - self.box.within),)
        )

    def _side(self, part: Box, scan: Scan) -> Relation:
        def lower(box: Box) -> Relation:
            return scan(box) if isinstance(box, Source | Keep) else lower_linear(box, lower, self.guard)

        return lower(part)

    def _scan(self, leaves: Leaves, leaf: Leaf, feed: Feed) -> Relation:
        return self.kernel.scan(leaves, leaf, feed, guard=self.guard, together=feed.rows < SMALL)


def _good(rows: Relation) -> Relation:
    """Without the rows that are set aside."""
    return replace(rows, sql=f"SELECT * FROM {rows.source} WHERE {FAILED} IS NULL")
