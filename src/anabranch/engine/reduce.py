"""The reduce phase: many partial results of one pane become one, still partial (TRUVISO 4.6).

It works beside the live path: it reads segments that nobody changes, writes new ones, and swaps them in one
short transaction. A reader that planned before still finds the old files for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from pyspark.sql import DataFrame

from anabranch.diagram.limits import KEPT
from anabranch.diagram.stages import leaves_of
from anabranch.engine.aggregates import Lowered
from anabranch.engine.analysis import Analysis
from anabranch.engine.columnar.kernel import ColumnarKernel, Declined, Planned
from anabranch.engine.columnar.reducing import ReduceJob
from anabranch.engine.emit import write_buckets
from anabranch.engine.groups import merged
from anabranch.engine.kept import may_be_revised
from anabranch.engine.kernel import SMALL
from anabranch.engine.kernels import columnar, together
from anabranch.engine.live import Live, LiveStore
from anabranch.engine.paths import literal_path
from anabranch.engine.read import spark_schema
from anabranch.engine.relation import Leaves, Relation, listed
from anabranch.engine.resets import RESET, counting
from anabranch.engine.session import Session
from anabranch.log.intents import Intent
from anabranch.log.log import Log, StreamState
from anabranch.log.reduction import ReductionPlan
from anabranch.model.errors import AnabranchError
from anabranch.model.run import Segment


class Reducer:
    """Reduces stores: small amounts at once, large ones in a thread of its own, so that no step waits for them."""

    def __init__(self, log: Log, session: Session) -> None:
        self.log = log
        self.session = session
        self._thread: ThreadPoolExecutor | None = None
        self._working: dict[int, Future[None]] = {}

    def reduce(self, live: Live) -> None:
        """Reduce every store that has many small runs."""
        self._working = {number: work for number, work in self._working.items() if not _done(work)}
        small = []
        for store in live.stores.values():
            number = store.stored.id
            if number in self._working:
                continue
            plan = self.log.register.plan_reduction(store.stored.stream_id, _horizon(live, store))
            if plan is None:
                continue
            if plan.rows < SMALL:
                small.append((store, plan))
            else:
                self._thread = self._thread or ThreadPoolExecutor(1, "anabranch-reduce")
                self._working[number] = self._thread.submit(self._reduce, live, [(store, plan)])
        self._reduce(live, small)

    def close(self) -> None:
        """Let what is under way finish."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _reduce(self, live: Live, plans: Sequence[tuple[LiveStore, ReductionPlan]]) -> None:
        """Rewrite what is planned, together as far as the columnar kernel can."""
        for _, plan in plans:
            if not plan.rewritten:
                self.log.register.commit_reduction(plan, [], None)
        work = [(store, plan) for store, plan in plans if plan.rewritten]
        intents = self.log.intents.begin_all(store.stored.stream_id for store, _ in work)
        try:
            rewrites = [_Rewrite(self, live, *one, intent) for one, intent in zip(work, intents, strict=True)]
            done = together(columnar(self.session, self.log.root), {r.number: r.planned for r in rewrites})
            for rewrite in rewrites:
                written = done.get(rewrite.number)
                segments = rewrite.by_spark() if written is None else [w.segment for w in written]
                self.log.register.commit_reduction(rewrite.plan, segments, rewrite.intent.id)
                self.log.intents.forget(rewrite.intent)
                intents.remove(rewrite.intent)
        finally:
            for intent in intents:
                self.log.intents.release(intent)


def _done(work: Future[None]) -> bool:
    """Whether a reduction has ended; one that another engine or a dropped query overtook is planned anew."""
    if not work.done():
        return False
    error = work.exception()
    if error is not None and not isinstance(error, AnabranchError):
        raise error
    return True


def _horizon(live: Live, store: LiveStore) -> int:
    """The last bucket up to which every query that uses a store has said its revisions, and every reader has them."""
    users = live.users_of(store)
    # What is left out until there is a table is compared with what was said, not with partial results.
    said = [
        (query.stored.bucket if query.revise_every == KEPT else query.stored.released) or 0
        for query in users
        if query.stored.bucket is not None
    ]
    # Whoever has its history computed again needs the answers of the bucket to which it has come.
    said += [reader.came for query in users if query.terms.upstream for reader in live.readers_of(query)]
    return min(said, default=store.came)


class _Rewrite:
    """Partial results of a store that are to become fewer."""

    def __init__(self, reducer: Reducer, live: Live, store: LiveStore, plan: ReductionPlan, intent: Intent) -> None:
        self.log, self.live, self.store, self.plan, self.intent = reducer.log, live, store, plan, intent
        self.number = store.stored.id
        self.state = self.log.stream_by_id(store.stored.stream_id)
        self.layout = self.log.layout(self.state, intent)
        self.spark = reducer.session.apart(store.settings)
        with Leaves(self.spark) as leaves:
            self.lowered = Analysis(live, self.spark, store.settings).recipe_of(leaves, store.box).lowered

    def planned(self, kernel: ColumnarKernel) -> Planned:
        if _may_be_reset(self.live, self.store, self.state):
            raise Declined("partial results that were reset")
        segments = tuple(logged.segment for logged in self.plan.rewritten)
        return kernel.reduce(ReduceJob(self.store.box, self.lowered, self.state.spec.schema, segments), self.layout)

    def by_spark(self) -> list[Segment]:
        schema, box = self.state.spec.schema, self.store.box
        keys = [key.name for key in box.keys]
        with Leaves(self.spark) as leaves:
            few = _reduced(self.log, leaves, self.store, self.plan, self.state, self.lowered)
        if box.pane is None and keys and self.plan.rows >= SMALL:
            few = few.repartitionByRange(*keys)  # so that headers tell narrow ranges of keys
        ordered = few.sortWithinPartitions("_pane", *keys)
        return [w.segment for w in write_buckets(ordered, self.layout, schema, ordinals=False, split=False)]


def _may_be_reset(live: Live, store: LiveStore, state: StreamState) -> bool:
    revised = any(may_be_revised(live, leaf, store.terms) for leaf in leaves_of(store.box))
    return RESET in state.spec.schema.names and revised


def _reduced(
    log: Log, leaves: Leaves, store: LiveStore, plan: ReductionPlan, state: StreamState, lowered: Lowered
) -> DataFrame:
    """The partial results of a plan, merged by Spark."""
    names, keys = state.spec.schema.names, [key.name for key in store.box.keys]
    paths = [literal_path(str(log.root / s.segment.path)) for s in plan.rewritten]
    frame = leaves.spark.read.schema(spark_schema(state.spec.schema)).parquet(*paths)
    name = leaves.add(frame.coalesce(1) if plan.rows < SMALL else frame)
    rows = Relation(f"SELECT * FROM {name}", tuple(names))
    # A merged result belongs to the newest of its buckets: all of them are said already.
    also = ["MAX(_bucket) AS _bucket"]
    if RESET in names:
        # What a reset has ended goes; the reset stays, to end what is kept elsewhere, in one bucket with its place.
        others = listed([n for n in names if n != "_bucket"])
        newest = f"(SELECT MAX(_bucket) FROM {name}) AS _bucket"
        rows = counting(rows, ["_pane", *keys])
        rows = Relation(f"SELECT {others}, {newest} FROM {rows.source}", tuple(names))
        also.append(f"BOOL_OR({RESET}) AS {RESET}")
    made = merged(rows, lowered, ["_pane", *keys], also=also)
    return leaves.frame(f"SELECT {listed(names)} FROM {made.source}")
