"""What windows of rows say in a step: those of the groups that changed, from where they changed on."""

from __future__ import annotations

from dataclasses import replace

from anabranch.diagram.boxes.counts import Counts
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.reach import BEGINNING, END, EVERYTHING, Interval, join
from anabranch.engine import counts
from anabranch.engine.analysis import Analysis
from anabranch.engine.groups import Recipe
from anabranch.engine.guard import FAILED, QUOTED
from anabranch.engine.ignored import ignored_before
from anabranch.engine.kernel import Feed
from anabranch.engine.relation import Leaves, Relation, listed
from anabranch.engine.reread import Rereading, at_times, good
from anabranch.log.reading import ReadPlan, ReadRange

# How far back windows that were said are first looked for, in spans of what has changed.
_SPANS = 4


class Counting(Rereading):
    """A Counts in a step."""

    @property
    def box(self) -> Counts:
        assert isinstance(self.core, Counts)
        return self.core

    def idle(self) -> bool:
        return not self.news and not self.moved

    def deltas(self, leaves: Leaves) -> tuple[Relation, list[Relation]]:
        rows = self.new(leaves, self.box.input)
        if self.oldest is not None:
            self.ignored = [leaves.frame(self.oldest.ignored(rows))]
            rows = self.oldest.kept(rows)
        new = self._arguments(leaves, rows)
        failing = [new] if self.guard.aside else []
        passed = self._passed()
        parts = [new]
        if passed:
            parts.append(self._arguments(leaves, self._there(leaves, passed)))
        groups = counts.touched(self.box, [good(part) for part in parts] if self.guard.aside else parts)
        anchored, start = self._anchored(leaves, groups, join([*self.fresh(self.box.input), *passed]))
        last = self.moments[-1].progress
        times = () if last is None else ((start, last),)
        rows = self._arguments(leaves, self._there(leaves, times))
        rows = counts.of_groups(self.box, good(rows) if self.guard.aside else rows, anchored)
        versions = counts.at_moments(rows, self.moments)
        reached = [moment.progress for moment in self.moments]
        results = counts.windows(self.box, versions, self._recipe(leaves), reached, self.guard)
        made = counts.differences(self.box, results, self.moments)
        return self.guard.begin(made), failing

    def failed(self, answer: Relation) -> Relation:
        """Windows are set aside in the bucket in which they come to fail, not whenever they are computed again."""
        by = listed([QUOTED, FAILED, "_bucket"])
        net = f"SELECT {by} FROM {answer.source} WHERE {FAILED} IS NOT NULL GROUP BY {by} HAVING SUM(_weight) > 0"
        return Relation(net, (QUOTED, FAILED, "_bucket"))

    def _there(self, leaves: Leaves, times: tuple[Interval, ...]) -> Relation:
        """The rows that count at some event times: not those that are, or were, beyond the history bound."""
        rows = self.every(leaves, self.box.input, times)
        rows = rows if self.oldest is None else self.oldest.kept(rows)
        before = ignored_before(self.step.log, leaves, self.query, times)
        return rows if before is None else at_times(self.less(leaves, rows, before, 0), times)

    def _arguments(self, leaves: Leaves, rows: Relation) -> Relation:
        return counts.arguments(self.box, rows, self._recipe(leaves), self.guard)

    def _recipe(self, leaves: Leaves) -> Recipe:
        analysis = Analysis(self.step.live, self.kernel.spark, self.query.settings)
        return analysis.counts_recipe(leaves, self.box)

    def _passed(self) -> tuple[Interval, ...]:
        """The event times that progress has reached in this step: windows may end there that could not close before."""
        first, last = self.moments[0].progress, self.moments[-1].progress
        if last is None or first == last:
            return ()
        return ((BEGINNING if first is None else first + 1, last),)

    def _anchored(self, leaves: Leaves, groups: Relation, times: tuple[Interval, ...]) -> tuple[Relation, int]:
        """The groups that changed with their anchors, and the first instant at which their rows must be read."""
        low = min((interval[0] for interval in times), default=BEGINNING)
        high = max((interval[1] for interval in times), default=END)
        near = max(low - _SPANS * max(high - low, 1), BEGINNING)
        for start in dict.fromkeys((near, BEGINNING)):
            anchored = counts.anchored(self.box, groups, self._said(leaves, start, high))
            sql = "SELECT UNIX_MICROS(MIN(_from)) AS first, COUNT_IF(_from IS NULL) AS without"
            found = leaves.frame(f"{sql} FROM {anchored.source}").first()
            assert found is not None
            if not found.without:
                return anchored, low if found.first is None else int(found.first)
        return anchored, BEGINNING

    def _said(self, leaves: Leaves, low: int, high: int) -> Relation:
        """The windows that were said, at some event times."""
        stream = self.step.log.stream_by_id(self.query.stored.stream_id)
        segments = tuple(self.step.log.plan_panes(stream, EVERYTHING if low <= BEGINNING else ((low, high),)))
        feed = Feed(ReadPlan(stream.spec, ReadRange(), segments), revisions=True, derived=True)
        return replace(self.kernel.scan(leaves, Source(stream.name, ()), feed, together=True), alias="_said")
