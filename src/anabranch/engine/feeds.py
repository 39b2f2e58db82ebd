"""What a step reads: the new rows of streams for each reader, and the rows that are there beside them.

A base stream's rows belong to buckets by their positions; a derived stream's say their buckets themselves, and
those that this step has just written are among them. From a stream without a key a deletion removes one
row that equals it. Where deletions have come, what a bucket adds is the difference that its rows make to
how often each row is there, never less than not at all: a deletion without its row waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.reach import EVERYTHING, Interval, join
from anabranch.diagram.stages import Leaf
from anabranch.engine.bounds import Oldest
from anabranch.engine.kernel import Feed
from anabranch.engine.live import Live, LiveQuery, LiveStore
from anabranch.engine.needs import need_of
from anabranch.engine.newest import Beyond
from anabranch.engine.spreading import WORTH_SPREADING, Parts
from anabranch.engine.states import ANY, Asked, whole
from anabranch.log.buckets import Bounds
from anabranch.log.commit import Output
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadPlan, ReadRange
from anabranch.log.retention import ALL
from anabranch.model.run import LoggedSegment


def times_of(segments: Iterable[LoggedSegment]) -> tuple[Interval, ...]:
    """The event times that rows of some segments can have."""
    found = []
    for logged in segments:
        low, high = logged.segment.event_min, logged.segment.event_max
        if low is None or high is None:
            return EVERYTHING
        found.append((low, high))
    return join(found)


class Feeds:
    """The feeds of one step, whose buckets end with `upto`; `outputs` is what it has written so far."""

    def __init__(self, log: Log, live: Live, buckets: Sequence[int], outputs: Sequence[Output], bounds: Beyond) -> None:
        self.log = log
        self.live = live
        self.bounds = bounds
        self.buckets = buckets
        self.upto = buckets[-1]
        self.outputs = outputs
        self._new: dict[tuple[Leaf, int, bool], Feed] = {}  # what readers take that have come equally far

    def new(self, leaf: Leaf, reader: LiveQuery | LiveStore) -> Feed:
        """What the step's buckets hold of a stream, for a reader that has come so far."""
        # A reader that is new takes everything that was there before in its first bucket.
        first = min(number for number in self.buckets if number > reader.came)
        query = self.live.query_of(leaf, reader.terms)
        if query is not None:
            return replace(self._said(query, reader.stored.bucket, first), after=self._gone(leaf, reader))
        assert isinstance(leaf, Source)
        key = (leaf, reader.came, reader.stored.bucket is None)
        if key not in self._new:
            self._new[key] = self._of_base(leaf, reader, first)
        return self._new[key]

    def _of_base(self, leaf: Source, reader: LiveQuery | LiveStore, first: int) -> Feed:
        stream = self.live.stream(leaf.stream)
        bounds = self._bounds(stream, reader, first)
        if not bounds or bounds[-1].end == bounds[0].start:
            return Feed(ReadPlan(stream.spec, ReadRange(), ()), bounds)
        # A new query takes what is held; what came later is held for those that wait for it.
        fresh = reader.stored.bucket is None
        wanted = ReadRange(first_position=bounds[0].start + 1, last_position=bounds[-1].end, held=fresh)
        feed = Feed(self.log.plan(leaf.stream, wanted), bounds)
        if leaf.messages or not stream.revised_by(bounds[-1].end):
            return feed
        every = self._held(leaf, reader, times_of(feed.plan.segments), bounds)
        return replace(every, since=bounds[0].bucket - 1, came=feed.rows)

    def history(self, leaf: Leaf, reader: LiveQuery | LiveStore, times: Sequence[Interval], asked: Asked = ANY) -> Feed:
        """What a stream holds at some event times up to the end of the step; what is older is in earlier buckets."""
        first = min(number for number in self.buckets if number > reader.came)
        query = self.live.query_of(leaf, reader.terms)
        if query is not None:
            feed = self._said(query, reader.stored.bucket, first)
            stream = self.live.state(query.stored.stream_id)
            fresh = [s for s in feed.plan.segments if s.last_position is None and s.segment.meets(times)]
            there = self._materialised(stream, reader, first, times, None, asked)
            if there is None:
                found = self.log.plan_panes(stream, times, whole_from=self._whole_from(leaf, reader))
                there = Feed(ReadPlan(stream.spec, ReadRange(), tuple(found)))
            plan = ReadPlan(stream.spec, ReadRange(), (*there.plan.segments, *fresh))
            state, bucket = there.state, there.state_bucket
            return replace(feed, plan=plan, state=state, state_bucket=bucket, after=self._gone(leaf, reader))
        assert isinstance(leaf, Source)
        stream = self.live.stream(leaf.stream)
        return self._held(leaf, reader, times, self._bounds(stream, reader, first), asked)

    def bits_of(self, reader: LiveQuery, asked: Iterable[tuple[Leaf, Asked]]) -> int:
        """By how many bits the states of some leaves are cut that are so large that a reader had better read parts."""
        bits = 0
        for leaf, one in asked:
            stream = self._stream_of(leaf, reader)
            if not one.hashed or stream.rows < WORTH_SPREADING:
                continue
            found = self.log.states.read(stream.id, reader.came, one.hashed)
            if found is not None and found[0].hashed == one.hashed and found[0].rows >= WORTH_SPREADING:
                bits = max([bits, *(p.bits for s in found[0].segments if (p := Parts.of(s.segment)) is not None)])
        return bits

    def _stream_of(self, leaf: Leaf, reader: LiveQuery) -> StreamState:
        query = self.live.query_of(leaf, reader.terms)
        if query is not None:
            return self.live.state(query.stored.stream_id)
        assert isinstance(leaf, Source)
        return self.live.stream(leaf.stream)

    def _materialised(
        self,
        stream: StreamState,
        reader: LiveQuery | LiveStore,
        first: int,
        times: Sequence[Interval],
        last: int | None,
        asked: Asked,
    ) -> Feed | None:
        """A state of a stream, and what came after it, for a reader of all event times that has come as far."""
        if not whole(times):
            return None
        new = reader.stored.bucket is None
        found = self.log.states.read(stream.id, first - 1 if new else reader.came, asked.hashed, last)
        if found is None:
            return None
        state, tail = found
        return Feed(tail, state=asked.of(state), state_bucket=first if new else 0)

    def _whole_from(self, leaf: Leaf, reader: LiveQuery | LiveStore) -> int | None:
        """The event time from which on a reader may rely on all rows; None for one that takes what is held."""
        if reader.stored.bucket is None or reader.gone is None:
            return None
        gone = self._gone(leaf, reader)
        return max(need_of(self.live, reader, leaf, sure=True), ALL if gone is None else gone + 1)

    def _gone(self, leaf: Leaf, reader: LiveQuery | LiveStore) -> int | None:
        """The event time up to which rows were gone when a reader was created, which does without them."""
        if not reader.gone or (isinstance(leaf, Keep) and leaf.upstream):
            return None
        query = self.live.query_of(leaf, reader.terms)
        assert query is not None or isinstance(leaf, Source)
        return reader.gone.get(self.live.stream(leaf.stream).id if query is None else query.stored.stream_id)  # type: ignore[union-attr]

    def _bounds(self, stream: StreamState, reader: LiveQuery | LiveStore, first: int) -> tuple[Bounds, ...]:
        bounds = self.log.register.bounds_after(stream.id, reader.came, self.upto)
        if reader.stored.bucket is None:
            before = self.log.register.bounds_at(stream.id, first)
            later = [b for b in bounds if b.bucket > first]
            bounds = [Bounds(first, 0, before.end, before.progress), *later]
        return tuple(bounds)

    def _held(
        self,
        leaf: Source,
        reader: LiveQuery | LiveStore,
        times: Sequence[Interval],
        bounds: tuple[Bounds, ...],
        asked: Asked = ANY,
    ) -> Feed:
        """What a base stream holds at some event times; positions before the given bounds are in bucket 0."""
        stream = self.live.stream(leaf.stream)
        end = bounds[-1].end if bounds else self.log.register.bounds_at(stream.id, self.upto).end
        start = bounds[0].start if bounds else end
        first = bounds[0].bucket if bounds else self.upto
        there = self._materialised(stream, reader, first, times, end, asked)
        if there is None:
            found = self.log.plan_panes(stream, times, whole_from=self._whole_from(leaf, reader))
            held = tuple(s for s in found if s.first_position is None or s.first_position <= end)
            there = Feed(ReadPlan(stream.spec, ReadRange(last_position=end), held))
        revised = stream.revised_by(end)
        oldest = self._oldest(leaf, reader, bounds, times) if revised else None
        return replace(
            there,
            bounds=(Bounds(0, 0, start, None), *bounds),
            revisions=revised,
            resolved=revised,
            oldest=oldest,
        )

    def _oldest(
        self, leaf: Source, reader: LiveQuery | LiveStore, bounds: Sequence[Bounds], times: Sequence[Interval]
    ) -> Oldest | None:
        """What is ignored of rows at some event times; a new reader takes all that there is in its first bucket."""
        later = bounds[1:] if reader.stored.bucket is None else bounds
        return self.bounds.of_stream(leaf, [b.bucket for b in later], times)

    def _said(self, query: LiveQuery, since: int | None, first: int) -> Feed:
        """What a query has said after a bucket, in earlier steps and in this one."""
        stream = self.live.state(query.stored.stream_id)
        start = None if since is None else self.log.moments.first_after(stream.id, since)
        committed: tuple[LoggedSegment, ...] = ()
        if since is None or start is not None:
            committed = self.log.plan(stream.name, ReadRange(first_position=start, held=True)).segments
        written = [s for output in self.outputs if output.stream_id == stream.id for s in output.draft.data]
        fresh = [LoggedSegment(segment, None, None) for segment in written]
        plan = ReadPlan(stream.spec, ReadRange(), (*committed, *fresh))
        last = self.upto if query.came > self.upto else None
        return Feed(plan, revisions=True, derived=True, first=first if since is None else None, last=last)
