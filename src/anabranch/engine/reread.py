"""What stages say that read rows again: a Join, a Sort, windows of rows.

Such a box gives weighted rows from the new rows of its inputs and from those that are there already, at the event
times that matter. The boxes above it take them one by one, and what a bucket's rows amount to is written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Row

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.progress import progress_into
from anabranch.diagram.query import OnError
from anabranch.diagram.reach import BEGINNING, END, EVERYTHING, Interval, join
from anabranch.diagram.stages import Leaf, core, leaves_of
from anabranch.engine import settle
from anabranch.engine.answers import Version
from anabranch.engine.bounds import without, without_made_again, write_ignored
from anabranch.engine.emit import CHANGE_TYPE, Written, write_buckets
from anabranch.engine.feeds import times_of
from anabranch.engine.guard import FAILED, NO_GUARD, SETTINGS, Guard
from anabranch.engine.kernel import SMALL, Feed, SparkKernel, failed_rows, write_aside
from anabranch.engine.limits import insertions
from anabranch.engine.live import LiveQuery
from anabranch.engine.mistakes import is_query_error
from anabranch.engine.moment import Moment
from anabranch.engine.read import spark_schema
from anabranch.engine.recompute import as_rows, recomputed
from anabranch.engine.relation import Leaves, Relation, listed
from anabranch.engine.rows import lower_linear
from anabranch.engine.saying import Saying
from anabranch.engine.settle import settled
from anabranch.engine.spreading import Parts, part_sql
from anabranch.engine.states import ANY, Asked, equal_columns

if TYPE_CHECKING:
    from anabranch.engine.step import Step

_TERMS = 4

Scan = Callable[[Leaf], Relation]


class Rereading(ABC):
    """One attempt to compute and write what such a stage says in a step."""

    def __init__(self, step: Step, query: LiveQuery, feeds: Mapping[Leaf, Feed], guard: Guard = NO_GUARD) -> None:
        self.step = step
        self.query = query
        self.feeds = feeds
        self.guard = guard
        self.core = core(query.plan)
        numbers = [query.came, *(b.number for b in step.buckets if b.number > query.came)]
        self.moments = [Moment(n, progress_into(self.core, step.progress_at(query.sources, n))) for n in numbers]
        settings = {**query.settings, **SETTINGS} if guard.on else query.settings
        self.kernel = SparkKernel(step.session.apart(settings), step.log.root)
        self.oldest = step.oldest(query, self.core, [t for p in self.core.inputs for t in self.fresh(p)])
        self.ignored: list[DataFrame] = []  # what is beyond the history bound
        self._read = 0  # rows that are read, as far as is known

    # What each kind of box says for itself.

    def idle(self) -> bool:
        """Whether nothing can be said, since nothing is new."""
        return not self.news

    @abstractmethod
    def deltas(self, leaves: Leaves) -> tuple[Relation, list[Relation]]:
        """The weighted rows that the box adds in the step's buckets, and rows of which some fail."""

    # What they share.

    @property
    def news(self) -> bool:
        return any(feed.plan.segments or self._anew(leaf) for leaf, feed in self.feeds.items())

    @property
    def moved(self) -> bool:
        """Whether progress has."""
        return self.moments[0].progress != self.moments[-1].progress

    def say(self) -> Saying:
        if self.idle():
            return Saying(released=self.step.upto)
        try:
            written = self.write()
        except Exception as error:
            if not self.query.guard.on or not is_query_error(error):
                raise
            written = type(self)(self.step, self.query, self.feeds, self.query.guard).write()
        return Saying(tuple(written), self.step.upto)

    def failing(self) -> Row | None:
        """A row, or a pair of rows, on which an expression fails."""
        again = type(self)(self.step, self.query, self.feeds, Guard(OnError.QUARANTINE))
        with Leaves(again.kernel.spark) as leaves:
            found = (frame.first() for frame in again.changes(leaves)[1])
            return next((row for row in found if row is not None), None)

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
        """What is said, and rows that are set aside."""
        rows, failing = self.deltas(leaves)

        def lower(box: Box) -> Relation:
            return rows if box is self.core else lower_linear(box, lower, self.guard)

        answer = lower(self.query.plan)
        kinds = spark_schema(self.step.log.stream_by_id(self.query.stored.stream_id).spec.schema)
        if self.guard.aside:
            failing = [*failing, self.failed(answer)]
            answer = good(answer)
        changes = settled(answer, self.query.columns, kinds)
        said = leaves.frame((insertions(changes) if self.query.limits.ignore else changes).sql)
        return said, [leaves.frame(failed_rows(relation)) for relation in failing]

    def failed(self, answer: Relation) -> Relation:
        """What is set aside of the rows that the boxes above have made, or have failed to make."""
        return answer

    def new(self, leaves: Leaves, part: Box) -> Relation:
        """The new rows of an input."""
        return self._lowered(part, lambda leaf: self._fed(leaves, leaf, EVERYTHING))

    def every(
        self, leaves: Leaves, part: Box, times: Sequence[Interval], asked: Mapping[Leaf, Asked] | None = None
    ) -> Relation:
        """The rows that an input has at some event times, new ones among them; old ones perhaps only of some keys."""

        def scan(leaf: Leaf) -> Relation:
            stage = self._upstream(leaf)
            if stage is None:
                wanted = (asked or {}).get(leaf, ANY)
                return self._scan(leaves, leaf, self.step.feeds.history(leaf, self.query, times, wanted))
            fed = self._fed(leaves, leaf, times)
            if self.query.stored.bucket is None:
                return fed
            return _together(self._again(leaves, stage, self.query.came, times), fed)

        return at_times(self._lowered(part, scan), times)

    def asked(self, leaves: Leaves, new: Mapping[int, Relation]) -> list[dict[Leaf, Asked]]:
        """For each input, which old rows can have the keys of some new rows, by the input that they are of.

        To find these keys is a job of Spark's, so it is done only where it can spare reading much.
        """
        equal = equal_columns(self.step.live, self.query)
        asked = [{leaf: Asked(hashed) for leaf, hashed in of_side.items()} for of_side in equal.leaves]
        rows = sum(self.feeds[leaf].new_rows for part in new for leaf in leaves_of(self.core.inputs[part]))
        bits = self.step.feeds.bits_of(self.query, [pair for of_side in asked for pair in of_side.items()])
        if not bits or rows > 1 << bits:
            return asked
        keys = " UNION ".join(f"SELECT {part_sql(equal.keys[n], bits)} AS part FROM {r.source}" for n, r in new.items())
        found = Parts(bits, frozenset(int(row.part) for row in leaves.frame(keys).collect()))
        return [{leaf: replace(one, parts=found) for leaf, one in of_side.items()} for of_side in asked]

    def _fed(self, leaves: Leaves, leaf: Leaf, times: Sequence[Interval]) -> Relation:
        """The new rows of a leaf. To a query that is new, all are; what is not kept of them is computed again."""
        feed = self.feeds[leaf]
        said = self._scan(leaves, leaf, feed)
        stage = self._anew(leaf)
        if stage is None:
            return said
        assert feed.first is not None
        later = replace(said, sql=f"SELECT * FROM {said.source} WHERE _bucket > {feed.first}L")
        return _together(self._again(leaves, stage, feed.first, times), later)

    def _again(self, leaves: Leaves, stage: LiveQuery, bucket: int, times: Sequence[Interval]) -> Relation:
        """What a stage had said by the end of a bucket, computed again."""
        step = self.step
        self._read += SMALL  # how many there are is not known: too many for one task
        version = Version(bucket, step.progress_at(stage.sources, bucket))
        answer = recomputed(
            step.log, step.live, leaves, stage, version, times, lambda box: step.fresh_segments(stage, box)
        )
        return self.guard.begin(as_rows(answer, stage, bucket))

    def _upstream(self, leaf: Leaf) -> LiveQuery | None:
        """The stage behind a leaf, if its answers are not kept."""
        return self.step.live.query_of(leaf, self.query.terms) if isinstance(leaf, Keep) and leaf.upstream else None

    def _anew(self, leaf: Leaf) -> LiveQuery | None:
        """The same, if this query is new and the stage is not: then even its first answer is no longer kept."""
        stage = self._upstream(leaf) if self.query.stored.bucket is None else None
        return stage if stage is not None and stage.stored.bucket is not None else None

    def fresh(self, part: Box) -> tuple[Interval, ...]:
        """The event times of an input's new rows."""
        if any(self._anew(leaf) for leaf in leaves_of(part)):
            return EVERYTHING
        return times_of(s for leaf in leaves_of(part) for s in self.feeds[leaf].plan.segments)

    def less(self, leaves: Leaves, rows: Relation, before: Relation, side: int) -> Relation:
        """All rows of an input less those that were ignored before."""
        if any(isinstance(leaf, Keep) and leaf.upstream for leaf in leaves_of(self.core.inputs[side])):
            return without_made_again(leaves, rows, before, side)
        return without(rows, before, side)

    def _lowered(self, part: Box, scan: Scan) -> Relation:
        def lower(box: Box) -> Relation:
            return scan(box) if isinstance(box, Source | Keep) else lower_linear(box, lower, self.guard)

        return lower(part)

    @property
    def reads_few(self) -> bool:
        """Whether all that is read fits into one task."""
        return self._read < SMALL

    def _scan(self, leaves: Leaves, leaf: Leaf, feed: Feed) -> Relation:
        self._read += feed.rows
        return self.kernel.scan(leaves, leaf, feed, guard=self.guard, together=feed.rows < SMALL)


def _together(first: Relation, second: Relation) -> Relation:
    names = listed(first.names)
    return replace(first, sql=f"SELECT {names} FROM {first.source} UNION ALL SELECT {names} FROM {second.source}")


def good(rows: Relation) -> Relation:
    """Without the rows that are set aside."""
    return replace(rows, sql=f"SELECT * FROM {rows.source} WHERE {FAILED} IS NULL")


def at_times(rows: Relation, intervals: Sequence[Interval]) -> Relation:
    """Only the rows at some event times; few terms, for many would take longer than the rows that they leave out."""
    terms = []
    for low, high in join(intervals, _TERMS):
        if low <= BEGINNING and high >= END:
            return rows
        terms.append(f"_event_time BETWEEN {instant(low)} AND {instant(high)}")
    return replace(rows, sql=f"SELECT * FROM {rows.source} WHERE {' OR '.join(terms) or 'FALSE'}")


def instant(micros: int) -> str:
    return f"TIMESTAMP_MICROS({micros}L)"
