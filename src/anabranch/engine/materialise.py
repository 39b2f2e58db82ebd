"""Bringing states forward: what is read again from change logs is netted beside them, between steps.

Which streams are worth it follows from the queries that there are. A stream is read again as a whole where a Join has
no band, or its input no event time; as the table of a Lookup; by a running aggregate that deletions make anew; and as
the table of a query whose answer is what it has emitted. If nothing was ever taken away from it, or little, its log
is what it amounts to, and there is no state; whether that is so is tried again when the log has doubled. A state goes
as far as all its readers have come, so that all of it is old to them; one that is behind, because it had halted, reads
the log.

Nothing waits for it: a turn that fails leaves everything as it was, is counted, and tried again after a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.progress import has_event_time
from anabranch.diagram.stages import Leaf, core, leaves_of
from anabranch.engine.abreast import abreast
from anabranch.engine.emit import write_buckets
from anabranch.engine.kept import may_be_revised
from anabranch.engine.kernel import SMALL, Feed, SparkKernel
from anabranch.engine.live import Live, LiveQuery, LiveStore
from anabranch.engine.relation import Leaves, listed, quoted, told_apart
from anabranch.engine.resets import RESET
from anabranch.engine.retries import Backoff, Retries, Work
from anabranch.engine.session import Session
from anabranch.engine.spreading import WORTH_SPREADING, Parts, bits_for, part_sql, telling
from anabranch.engine.states import equal_columns, state_schema
from anabranch.log.buckets import BASE, Bounds
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadPlan, ReadRange
from anabranch.log.segments import SegmentLayout
from anabranch.log.states import LEAST_RUNS, Hashed, StatePlan
from anabranch.model.errors import AnabranchError
from anabranch.model.run import Role, Segment

Readers = dict[tuple[int, Hashed], list[LiveQuery | LiveStore]]
# A first state is made of a log that has so many times as many rows as are left of them.
SHRINKING = 2
BACKOFF = Backoff(1_000_000, 60_000_000)
# Another engine, or a stream that was dropped, has come first: what is left is planned anew.
_OVERTAKEN = ("POSITION_CONFLICT", "UNKNOWN_STREAM")
_PLANNING = ("states", 0)


@dataclass(frozen=True)
class Wanted:
    """A stream that is read again, and the bucket up to which all its readers have come."""

    stream: StreamState
    hashed: Hashed
    bucket: int


class Materialiser:
    """Brings states forward: small ones at once, large ones in a thread of its own, so that no step waits for them."""

    def __init__(self, log: Log, session: Session, retries: Retries) -> None:
        self.log = log
        self.session = session
        self.retries = retries
        self.least_runs = LEAST_RUNS
        self.shrinking = SHRINKING
        self._not_before: dict[int, int] = {}  # by stream, how many rows it must have to be tried again
        self._thread: ThreadPoolExecutor | None = None
        self._working: dict[tuple[int, Hashed], Future[None]] = {}

    def materialise(self, live: Live) -> None:
        """Bring forward every state that is worth it, and drop what nobody reads. Never raises what goes wrong."""
        self._working = {key: work for key, work in self._working.items() if not work.done()}
        try:
            asked = wanted(live)
            self._drop_others(asked)
            small = dict(self._planned(asked))
        except Exception as error:
            self._failed(_PLANNING, "finding out what to materialise", error)
            return
        self.retries.succeeded(_PLANNING)
        if small:
            abreast(self.session.spark, small)

    def close(self) -> None:
        """Let what is under way finish."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _drop_others(self, asked: Sequence[Wanted]) -> None:
        known = {(one.stream.id, one.hashed) for one in asked}
        there = self.log.states.all()
        unread = [number for number, stream_id, hashed in there if (stream_id, hashed) not in known]
        if unread:
            self.log.states.drop(unread)
        self.retries.forget(lambda work: work[0] == "state" and work[1] not in {number for number, _ in known})

    def _planned(self, asked: Sequence[Wanted]) -> Iterator[tuple[tuple[int, Hashed], Callable[[], None]]]:
        """The states that are brought forward at once; larger ones are begun beside the steps."""
        for one in asked:
            key = (one.stream.id, one.hashed)
            if key in self._working or not self.retries.due(("state", one.stream.id)):
                continue
            if one.stream.rows < self._not_before.get(one.stream.id, 0):
                continue
            plan = self.log.states.plan(one.stream.id, one.hashed, one.bucket, self.least_runs)
            if plan is None:
                continue
            work = partial(self._try, one.stream, plan)
            if plan.rows < SMALL:
                yield key, work
            else:
                self._thread = self._thread or ThreadPoolExecutor(1, "anabranch-materialise")
                self._working[key] = self._thread.submit(work)

    def _try(self, stream: StreamState, plan: StatePlan) -> None:
        """Bring a state forward; a failure is counted, for the next try, and goes no further."""
        work = ("state", stream.id)
        try:
            self._bring_forward(stream, plan)
        except Exception as error:
            self._failed(work, f"materialising stream {stream.name!r}", error)
        else:
            self.retries.succeeded(work)

    def _failed(self, work: Work, what: str, error: Exception) -> None:
        if not (isinstance(error, AnabranchError) and error.id in _OVERTAKEN):
            self.retries.failed(work, what, error, BACKOFF)

    def _bring_forward(self, stream: StreamState, plan: StatePlan) -> None:
        if not plan.tail:
            self.log.states.commit(plan, [], None)
            return
        intent, committed = self.log.intents.begin(stream.id), False
        try:
            written = self._net(stream, plan, self.log.layout(stream, intent))
            left = sum(segment.rows for segment in written)
            if plan.state is None and not plan.hashed and left * self.shrinking > plan.rows:
                self._not_before[stream.id] = 2 * stream.rows
                return  # what is there is about what came: the log will do for a while
            self.log.states.commit(plan, written, intent.id)
            committed = True
        finally:
            (self.log.intents.forget if committed else self.log.intents.release)(intent)

    def _net(self, stream: StreamState, plan: StatePlan, layout: SegmentLayout) -> list[Segment]:
        """What the tail and some runs come to, written."""
        schema, few = state_schema(stream.spec), plan.rows < SMALL
        columns = tuple(name for name in stream.spec.schema.names if not name.startswith("_"))
        kernel = SparkKernel(self.session.spark, self.log.root)
        with Leaves(kernel.spark) as leaves:
            rows = kernel.scan(leaves, Source(stream.name, columns), _read_again(stream, plan), together=few)
            content = ["_event_time", "_of", *columns]
            one = ", ".join(f"FIRST({quoted(name)}) AS {quoted(name)}" for name in content)
            # Told apart by text: groups of Spark's take -0.0 for 0.0, and no maps.
            net = f"SELECT {one}, SUM(_weight) AS _weight FROM {rows.source} GROUP BY {told_apart(content)}"
            bits = bits_for(plan.rows) if plan.hashed else 0
            part = part_sql(plan.hashed, bits)
            frame = leaves.frame(f"SELECT {listed(schema.names)}, {part} AS _bucket FROM ({net}) WHERE _weight <> 0")
        frame = frame.coalesce(1) if few else frame.repartition("_bucket") if bits else frame
        plain = replace(layout, event_time="", key=None)
        found = write_buckets(
            frame.sortWithinPartitions("_bucket"), plain, schema, extra=_PART, role=Role.STATE, ordinals=False
        )
        return [telling(w.segment, Parts(bits, frozenset([w.bucket]))) if bits else w.segment for w in found]


_PART = (pa.field("_bucket", pa.int64()),)  # where others write a bucket, a state has the part of the hash


def _read_again(stream: StreamState, plan: StatePlan) -> Feed:
    """The tail and the runs that are netted."""
    tail = ReadPlan(stream.spec, ReadRange(first_position=plan.after + 1, last_position=plan.position), plan.tail)
    state = tuple(logged.segment for logged in plan.merged)
    if stream.role == BASE:
        bounds = (Bounds(0, 0, plan.position, None),)
        return Feed(tail, bounds, stream.revised_by(plan.position), state=state)
    return Feed(tail, revisions=True, derived=True, state=state)


def wanted(live: Live) -> list[Wanted]:
    """The streams that are worth a state, each with what its rows are spread by."""
    readers: Readers = {}
    for query in live.queries.values():
        for leaf, hashed in _read_whole(live, query):
            _note(readers, live, leaf, hashed, query)
    for store in live.stores.values():
        for leaf in _made_anew(live, store):
            _note(readers, live, leaf, (), store)
    tables = {q.stored.stream_id: q for q in live.queries.values() if q.from_changes and not q.hidden}
    for stream_id in tables:
        readers.setdefault((stream_id, ()), [])
    _share(readers)
    found = []
    for (stream_id, hashed), of_stream in readers.items():
        came = [reader.came for reader in of_stream if _goes_on(live, reader)]
        if stream_id in tables:
            came.append(tables[stream_id].came)
        state = live.state(stream_id)
        worth = state.first_revision is not None or (hashed and state.rows >= WORTH_SPREADING)
        if came and worth:
            found.append(Wanted(state, hashed, min(came)))
    return found


def _share(readers: Readers) -> None:
    """Whoever reads all of a stream can as well read a state that is spread by somebody else's keys."""
    for stream_id in [number for number, hashed in readers if not hashed]:
        spread = sorted(hashed for number, hashed in readers if number == stream_id and hashed)
        if spread:
            readers[stream_id, spread[0]] += readers.pop((stream_id, ()))


def _note(readers: Readers, live: Live, leaf: Leaf, hashed: Hashed, reader: LiveQuery | LiveStore) -> None:
    query = live.query_of(leaf, reader.terms)
    if query is not None:
        stream_id = query.stored.stream_id
    else:
        assert isinstance(leaf, Source)
        stream_id = live.stream(leaf.stream).id
    readers.setdefault((stream_id, hashed), []).append(reader)


def _goes_on(live: Live, reader: LiveQuery | LiveStore) -> bool:
    """Whether a reader has begun and has not halted: one that has neither needs what is old to it to stay apart."""
    if reader.stored.bucket is None:
        return False
    users = [reader] if isinstance(reader, LiveQuery) else live.users_of(reader)
    return any(not query.halted for query in users)


def _read_whole(live: Live, query: LiveQuery) -> Iterator[tuple[Leaf, Hashed]]:
    """The leaves that a query reads again whatever their event times, and the keys by which it does."""
    box = core(query.plan)
    if not isinstance(box, Join | Lookup):
        return
    equal = equal_columns(live, query)
    for side, part in enumerate(box.parts):
        if isinstance(box, Join) and box.banded and has_event_time(part):
            continue
        if isinstance(box, Lookup) and side == 0:
            continue
        for leaf in leaves_of(part):
            if not (isinstance(leaf, Keep) and leaf.upstream):
                yield leaf, equal.leaves[side].get(leaf, ())


def _made_anew(live: Live, store: LiveStore) -> Iterator[Leaf]:
    """The leaves that a running aggregate reads again when rows have gone that it cannot subtract."""
    if store.box.pane is None and RESET in live.state(store.stored.stream_id).spec.schema.names:
        for leaf in leaves_of(store.box):
            if not (isinstance(leaf, Source) and leaf.messages) and may_be_revised(live, leaf, store.terms):
                yield leaf
