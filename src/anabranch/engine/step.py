"""A step: recorded buckets through all phases, and one transaction.

    parallel   every store takes the new rows of its streams and adds partial results
    serial     every query says the windows that progress has closed
    repair     and the closed windows that new rows have touched, as revisions

Serial and repair are one plan: the difference between the answer before a bucket and after it, over
the windows that the bucket can have changed. A query whose expressions fail halts where it is; the
others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock

from pyspark.errors import PySparkException
from pyspark.sql import Row

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.progress import is_timeless, progress_of
from anabranch.diagram.query import OnError
from anabranch.diagram.reach import Interval
from anabranch.diagram.stages import Leaf
from anabranch.engine.abreast import abreast
from anabranch.engine.analysis import Analysis
from anabranch.engine.bounds import Oldest, write_ignored
from anabranch.engine.columnar.kernel import ColumnarKernel, Planned
from anabranch.engine.columnar.saying import SayJob
from anabranch.engine.emit import Written
from anabranch.engine.feeds import Feeds, times_of
from anabranch.engine.guard import SETTINGS, Guard
from anabranch.engine.kept import Choice
from anabranch.engine.kernel import (
    SMALL,
    Feed,
    SparkKernel,
    failed_rows,
    prepare_partials,
)
from anabranch.engine.kernels import columnar, together
from anabranch.engine.live import Live, LiveQuery, LiveStore, Recipes
from anabranch.engine.mistakes import halts, quietly, row_error
from anabranch.engine.newest import Beyond, Newest
from anabranch.engine.relation import Leaves, Relation
from anabranch.engine.rereads import rereading
from anabranch.engine.rows import lower_linear
from anabranch.engine.saying import Groups, Saying, columnar_job, find_groups, say_groups, say_rows
from anabranch.engine.session import Session
from anabranch.engine.storing import store_partials
from anabranch.log.buckets import Bucket
from anabranch.log.commit import Output
from anabranch.log.intents import Intent
from anabranch.log.leases import Lease
from anabranch.log.log import Log, StreamState
from anabranch.log.register import reader_of
from anabranch.log.segments import SegmentLayout
from anabranch.log.steps import Ended, Move, Reading
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunDraft, RunKind, Segment
from anabranch.model.schema import Schema


@dataclass
class Taken:
    """What a step has done so far, to be committed together."""

    moves: list[Move] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    partials: dict[int, list[Written]] = field(default_factory=dict)  # by store, not yet committed
    halted: list[tuple[LiveQuery, AnabranchError]] = field(default_factory=list)
    opened: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by query: segments of partial results
    dropped: dict[str, int] = field(default_factory=dict)  # by query: revisions that matter too little to be said
    reach: dict[str, tuple[int, int]] = field(default_factory=dict)  # by query: of a Join by bounds, where it grew
    changes: int = 0


class Step:
    """Recorded buckets, on their way through a warehouse's stores and queries."""

    def __init__(self, log: Log, session: Session, lease: Lease, buckets: Sequence[Bucket], recipes: Recipes) -> None:
        self.log = log
        self.session = session
        self.lease = lease
        self.buckets = tuple(buckets)
        self.upto = buckets[-1].number
        self.live = Live(log, recipes)
        self.taken = Taken()
        self._intents: dict[int, Intent] = {}  # by stream
        self._beginning = Lock()
        # A store may be further behind than all queries that run, if the one that used it has halted.
        furthest = min((s.came for s in self.live.stores.values() if self.live.advances(s)), default=self.upto)
        earlier = log.register.buckets_after(min(furthest, buckets[0].number - 1))
        self.stimes = {bucket.number: bucket.stime for bucket in earlier if bucket.number <= self.upto}
        beyond = Beyond(self.live, Newest(log, self.live, session))
        self.feeds = Feeds(log, self.live, sorted(self.stimes), self.taken.outputs, beyond)

    def run(self) -> Taken:
        """Process and commit; on an error nothing of the step remains."""
        try:
            with quietly():
                waiting = list(self.live.queries.values())  # in the order in which they were made: inputs first
                while ready := {query.name: query for query in waiting if self._has_inputs(query)}:
                    self._take(list(ready.values()))
                    waiting = [query for query in waiting if query.name not in ready]
            self._commit()
        except BaseException as error:
            for intent in self._intents.values():
                self.log.intents.release(intent)
            if isinstance(error, AnabranchError) and error.id == "UNKNOWN_STREAM":
                raise _dropped(error) from error
            raise
        for intent in self._intents.values():
            self.log.intents.forget(intent)
        return self.taken

    def _has_inputs(self, query: LiveQuery) -> bool:
        """Whether everything that a query reads has come as far as the step goes."""
        return all(self._came(before) >= self.upto for before in self.live.inputs_of(query.plan, query.terms))

    def _take(self, queries: Sequence[LiveQuery]) -> None:
        """Queries that do not read one another through all phases, as far as they can together."""
        store_partials(self, [store for query in queries for store in self.live.stores_of(query)])
        self._serial(queries)

    def _came(self, query: LiveQuery) -> int:
        moved = (m.after for m in self.taken.moves if m.kind == "query" and m.id == query.stored.id)
        return max([query.came, *moved])

    # What both phases share.

    def ignore_at_source(self, queries: Sequence[LiveQuery], feeds: Mapping[Leaf, Feed]) -> None:
        """Set aside the deletions of rows beyond the history bound of a stream without a key."""
        for leaf, feed in feeds.items():
            if feed.oldest is None or not feed.oldest.concerns(times_of(feed.plan.segments)):
                continue
            kernel = SparkKernel(self.session.apart(queries[0].settings), self.log.root)
            with Leaves(kernel.spark) as leaves:
                rows = kernel.scan(leaves, leaf, replace(feed, resolved=False), together=feed.rows < SMALL)
                frame = leaves.frame(feed.oldest.ignored(rows))
            for query in queries:
                self.set_aside(query, write_ignored(frame, self.layout(self.state(query.stored.stream_id))))

    def oldest(self, reader: LiveQuery | LiveStore, box: Box, times: Sequence[Interval]) -> Oldest | None:
        """What a box of a reader ignores of rows at some event times in this step, if anything."""
        buckets = [number for number in self.feeds.buckets if number > reader.came]
        if reader.stored.bucket is None:
            buckets = buckets[1:]  # in its first it takes all that there is
        return self.feeds.bounds.of_box(reader.terms, box, buckets, times)

    def set_aside(self, query: LiveQuery, aside: Sequence[Written]) -> None:
        for part in aside:
            draft = RunDraft(RunKind.ROWS, (part.segment,), bucket=part.bucket, stime=self.stimes[part.bucket],
                             progress=self.progress(query.sources, part.bucket, query.plan))  # fmt: skip
            stream_id = query.stored.stream_id
            self.taken.outputs.append(Output(stream_id, draft, self.intent_of(stream_id)))

    def read(self, reader: str, feeds: Mapping[Leaf, Feed]) -> None:
        for leaf, feed in feeds.items():
            if feed.derived:
                # What this step has said itself has no positions yet: it is let go of by the next one.
                said = self.log.stream(feed.plan.spec.name)
                later = None if feed.last is None else self.log.moments.first_after(said.id, feed.last)
                self.taken.readings.append(Reading(said.id, reader, said.last_position if later is None else later - 1))
            elif feed.bounds and isinstance(leaf, Source):
                self.taken.readings.append(Reading(self.live.stream(leaf.stream).id, reader, feed.bounds[-1].end))

    # Serial and repair.

    def _serial(self, queries: Sequence[LiveQuery]) -> None:
        """All that queries have to say: together what the columnar kernel can do, the rest by Spark, abreast."""
        behind = [q for q in queries if not q.halted and q.came < self.upto and not self._has_halted(q)]
        kernel = columnar(self.session, self.log.root)
        groups: dict[str, Groups] = {}
        jobs: dict[str, SayJob] = {}
        for query in behind:
            if not (query.linear or query.rereads):
                try:
                    groups[query.name] = find_groups(self, query)
                    job = None if kernel is None else columnar_job(self, groups[query.name])
                except Exception as error:
                    self.halt([query], error, {}, None)
                    continue
                if job is not None:
                    jobs[query.name] = job
        states = {name: self.state(groups[name].query.stored.stream_id) for name in jobs}
        self.begin(state.id for state in states.values())
        plans = {name: partial(_plan_saying, job, self.layout(states[name]), states[name].spec.schema)
                 for name, job in jobs.items()}  # fmt: skip
        said = {
            name: Saying(tuple(written), groups[name].compared.released)
            for name, written in together(kernel, plans).items()
        }
        self._say_all([query for query in behind if not self._has_halted(query)], groups, said)

    def _has_halted(self, query: LiveQuery) -> bool:
        return any(q is query for q, _ in self.taken.halted)

    def _say_all(self, queries: Sequence[LiveQuery], groups: Mapping[str, Groups], known: Mapping[str, Saying]) -> None:
        """What queries say in this step: what is known, and what Spark says now."""
        feeds: dict[str, dict[Leaf, Feed]] = {query.name: {} for query in queries}
        said: dict[str, Saying | Exception] = dict(known)
        works: dict[str, Callable[[], Saying]] = {}
        for query in queries:
            of_query = groups.get(query.name)
            if of_query is None:
                try:
                    feeds[query.name] = {leaf: self.feeds.new(leaf, query) for leaf in query.leaves}
                except AnabranchError as error:
                    said[query.name] = error
                    continue
                works[query.name] = partial(self._say_new, query, feeds[query.name])
            elif not of_query.choices:
                said[query.name] = Saying((), of_query.compared.released)
            elif query.name not in said:
                works[query.name] = partial(say_groups, self, of_query)
        said |= abreast(self.session.spark, works)
        for query in queries:
            saying = said[query.name]
            if isinstance(saying, Exception):
                self.halt([query], saying, feeds[query.name], None)
                continue
            self.ignore_at_source([query], feeds[query.name])
            self._say(query, saying)
            self.read(reader_of(query.stored), feeds[query.name])

    def _say_new(self, query: LiveQuery, feeds: Mapping[Leaf, Feed]) -> Saying:
        """What a query says that takes rows one by one, or reads them again."""
        return rereading(self, query, feeds).say() if query.rereads else say_rows(self, query, feeds)

    def _say(self, query: LiveQuery, saying: Saying) -> None:
        written: dict[int, list[Segment]] = {}
        for part in saying.written:
            written.setdefault(part.bucket, []).append(part.segment)
        state = self.state(query.stored.stream_id)
        progress = state.progress
        for bucket in self.buckets:
            if bucket.number <= query.came:
                continue
            segments = written.get(bucket.number, [])
            reached = self.progress(query.sources, bucket.number, query.plan)
            if not segments and reached == progress:
                continue
            progress = reached
            kind = RunKind.REVISIONS if saying.revisions else RunKind.ROWS
            draft = RunDraft(kind, tuple(segments), bucket=bucket.number, stime=bucket.stime, progress=progress)
            intent = self.intent_of(state.id) if segments else None
            self.taken.outputs.append(Output(state.id, draft, intent))
            self.taken.changes += 0 if query.hidden else draft.rows
        self.taken.moves.append(
            Move("query", query.stored.id, query.stored.bucket, self.upto, released=saying.released,
                 dropped=self.taken.dropped.get(query.name, 0), reach=self.taken.reach.get(query.name))
        )  # fmt: skip

    def progress_at(self, sources: Sequence[str], bucket: int) -> dict[str, int | None]:
        """The progress of streams at the end of a bucket."""
        return {name: self.live.progress_at(name, bucket) for name in sources}

    def progress(self, sources: Sequence[str], bucket: int, box: Box) -> int | None:
        """The progress of what comes out of a box, as headers carry it."""
        if is_timeless(box, {name for name in sources if self.live.stream(name).spec.timeless}):
            return None
        return progress_of(box, self.progress_at(sources, bucket))

    def fresh(self, query: LiveQuery, box: Partials) -> list[Written]:
        """Partial results of a query that this step has made and not committed yet."""
        return self.taken.partials.get(self.live.store_of(query, box).stored.id, [])

    def fresh_segments(self, query: LiveQuery, box: Partials) -> list[Segment]:
        return [part.segment for part in self.fresh(query, box)]

    def note_opened(self, query: LiveQuery, choices: Mapping[Partials, Choice]) -> None:
        """Remember which segments of partial results a query has opened, for whoever wants to know."""
        self.taken.opened[query.name] = tuple(s.path for choice in choices.values() for s in choice.segments)

    def note_dropped(self, query: LiveQuery, many: int) -> None:
        """Remember how many revisions of a query are not said, to be counted with the step."""
        self.taken.dropped[query.name] = many

    def note_reach(self, query: LiveQuery, reach: tuple[int, int]) -> None:
        """Remember how far apart the partners of a Join by bounds can be, to be recorded with the step."""
        self.taken.reach[query.name] = reach

    def state(self, stream_id: int) -> StreamState:
        return self.live.state(stream_id)

    def intent_of(self, stream_id: int) -> str | None:
        return self._intents[stream_id].id if stream_id in self._intents else None

    def layout(self, state: StreamState) -> SegmentLayout:
        """Where a stream's new segments go; one intent for each stream of the step."""
        with self._beginning:
            if state.id not in self._intents:
                self.begin([state.id])
        return self.log.layout(state, self._intents[state.id])

    def begin(self, stream_ids: Iterable[int]) -> None:
        """Say that some streams will be written, all at once."""
        new = self.log.intents.begin_all(number for number in stream_ids if number not in self._intents)
        self._intents |= {intent.stream_id: intent for intent in new}

    def halt(
        self, queries: Sequence[LiveQuery], error: Exception, feeds: Mapping[Leaf, Feed], store: LiveStore | None
    ) -> None:
        """Stop queries, and those that read their answers, if it is their own fault that they cannot go on."""
        if not halts(error):
            raise error
        why = error if isinstance(error, AnabranchError) else None
        quoted = self._quoted(queries[0], feeds, store) if why is None else None
        readers = [reader for query in queries for reader in self.live.readers_of(query)]
        known = [query for query, _ in self.taken.halted]
        for query in [*queries, *readers]:
            if not query.halted and query not in known:
                known.append(query)
                self.taken.halted.append((query, why or row_error(f"query {query.name!r}", quoted, error)))

    def _quoted(self, query: LiveQuery, feeds: Mapping[Leaf, Feed], store: LiveStore | None) -> str | None:
        """A row on which an expression fails, as JSON; None where it is a result on which one fails."""
        if not feeds:
            return None
        again = query.rereads and store is None
        try:
            found = rereading(self, query, feeds).failing() if again else self._failing(query, feeds, store)
        except PySparkException:
            return None  # no row of its own fails, but the plan itself
        return None if found is None else f"{found.row}, which {found._reason}"

    def _failing(self, query: LiveQuery, feeds: Mapping[Leaf, Feed], store: LiveStore | None) -> Row | None:
        guard = Guard(OnError.QUARANTINE)
        kernel = SparkKernel(self.session.apart({**query.settings, **SETTINGS}), self.log.root)
        with Leaves(kernel.spark) as leaves:

            def lower(box: Box) -> Relation:
                if isinstance(box, Source | Keep):
                    return kernel.scan(leaves, box, feeds[box], guard=guard)
                return lower_linear(box, lower, guard)

            if store is None:
                rows = lower(query.plan)
            else:
                recipe = Analysis(self.live, kernel.spark, store.settings).recipe_of(leaves, store.box)
                rows = prepare_partials(store.box, lower, recipe.ties, guard)
            return leaves.frame(failed_rows(rows)).first()

    def _commit(self) -> None:
        taken = self.taken
        self.log.register.commit_step(self.lease, taken.moves, taken.readings, taken.outputs, self._ended())
        for query, error in taken.halted:
            self.log.register.halt(self.lease, [query.stored.id], error)

    def _ended(self) -> Ended:
        """The step's intents that were not used, and those that leave nothing to sweep, so that nobody looks again."""
        outputs, intents = self.taken.outputs, list(self._intents.values())
        used = {output.intent_id for output in outputs}
        paths = {segment.path for output in outputs for segment in output.draft.segments}
        # Where a query has halted, a task of it may still be writing.
        swept = (
            [] if self.taken.halted else [i for i in intents if self.log.storage.holds_only(i.stream_id, i.id, paths)]
        )
        return Ended([i.id for i in intents if i.id not in used], [i.id for i in swept])


def _plan_saying(job: SayJob, layout: SegmentLayout, schema: Schema, kernel: ColumnarKernel) -> Planned:
    return kernel.say(job, layout, schema)


def _dropped(error: AnabranchError) -> AnabranchError:
    return AnabranchError(
        "POSITION_CONFLICT",
        place="step of the engine",
        need="the streams that were there when it began",
        got=f"no {error.got} any more",
        next_step="Advance again; nothing was committed.",
    )
