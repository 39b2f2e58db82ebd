"""The reduce phase: many partial results of one pane become one, still partial (TRUVISO 4.6).

It works beside the live path: it reads segments that nobody changes, writes new ones, and swaps them in one
short transaction. A reader that planned before still finds the old files for a while.

Nothing waits for a reduction, so none that fails stops anything: neither the step after which it was tried, nor
sinks, nor the reductions of other stores. What it has written is given back, the failure is counted and reported, and
the store is reduced again after a pause (`engine/retries.py`), alone, so that one bad store holds up no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

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
from anabranch.engine.key_ranges import are_mixed
from anabranch.engine.live import Live, LiveStore
from anabranch.engine.paths import literal_path
from anabranch.engine.read import spark_schema
from anabranch.engine.relation import Leaves, Relation, listed, quoted
from anabranch.engine.resets import RESET, counting
from anabranch.engine.retries import Backoff, Retries
from anabranch.engine.session import Session
from anabranch.engine.spreading import MOST_BITS, part_sql, spread_keys
from anabranch.log.intents import Intent
from anabranch.log.log import Log, StreamState
from anabranch.log.reduction import ReductionPlan
from anabranch.model.errors import AnabranchError
from anabranch.model.run import Segment

BACKOFF = Backoff(1_000_000, 60_000_000)
# Another engine, or a query that was dropped, has come first: what is left is planned anew.
_OVERTAKEN = ("POSITION_CONFLICT", "UNKNOWN_STREAM")


class Reducer:
    """Reduces stores: small amounts at once, large ones in a thread of its own, so that no step waits for them."""

    def __init__(self, log: Log, session: Session, retries: Retries) -> None:
        self.log = log
        self.session = session
        self.retries = retries
        self._thread: ThreadPoolExecutor | None = None
        self._working: dict[int, Future[None]] = {}

    def reduce(self, live: Live) -> None:
        """Reduce every store that has many small runs. Never raises what goes wrong with one."""
        numbers = {store.stored.id for store in live.stores.values()}
        self._working = {number: work for number, work in self._working.items() if not work.done()}
        self.retries.forget(lambda work: work[0] == "reduction" and work[1] not in numbers)
        together: list[tuple[LiveStore, ReductionPlan]] = []
        for store in live.stores.values():
            number = store.stored.id
            if number in self._working or not self.retries.due(("reduction", number)):
                continue
            plan = self._plan(live, store)
            if plan is None:
                continue  # there is nothing to do, or it cannot be known now
            if plan.rows >= SMALL:
                self._thread = self._thread or ThreadPoolExecutor(1, "anabranch-reduce")
                self._working[number] = self._thread.submit(self._try, live, [(store, plan)])
            elif self.retries.failures(("reduction", number)):
                self._try(live, [(store, plan)])  # alone, so that it holds up no other
            else:
                together.append((store, plan))
        self._try(live, together)

    def reduce_now(self, live: Live) -> bool:
        """Reduce every store once that has many small runs, large ones too; whether there was any. Raises failures."""
        for working in self._working.values():
            working.result()
        plans = []
        for store in live.stores.values():
            plan = self.log.register.plan_reduction(store.stored.stream_id, _horizon(live, store))
            if plan is not None:
                plans.append((store, plan))
        for number in self._reduce(live, plans):
            self.retries.succeeded(("reduction", number))
        return bool(plans)

    def close(self) -> None:
        """Let what is under way finish."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _plan(self, live: Live, store: LiveStore) -> ReductionPlan | None:
        try:
            return self.log.register.plan_reduction(store.stored.stream_id, _horizon(live, store))
        except Exception as error:
            self._failed(live, [store], error)
            return None

    def _try(self, live: Live, plans: Sequence[tuple[LiveStore, ReductionPlan]]) -> None:
        """Rewrite what is planned; a failure is counted, for the next try, and goes no further."""
        left = {store.stored.id: store for store, _ in plans}
        try:
            for number in self._reduce(live, plans):
                del left[number]
                self.retries.succeeded(("reduction", number))
        except Exception as error:
            self._failed(live, list(left.values()), error)

    def _failed(self, live: Live, stores: Sequence[LiveStore], error: Exception) -> None:
        if isinstance(error, AnabranchError) and error.id in _OVERTAKEN:
            return
        for store in stores:
            names = ", ".join(repr(query.name) for query in live.users_of(store))
            what = f"reducing the partial results of {names} (number {store.stored.id})"
            self.retries.failed(("reduction", store.stored.id), what, error, BACKOFF)

    def _reduce(self, live: Live, plans: Sequence[tuple[LiveStore, ReductionPlan]]) -> Iterator[int]:
        """Rewrite what is planned, together as far as the columnar kernel can; the stores that are done, by number."""
        for store, plan in plans:
            if not plan.rewritten:
                self.log.register.commit_reduction(plan, [], None)
                yield store.stored.id
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
                yield rewrite.number
        finally:
            for intent in intents:
                self.log.intents.release(intent)


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
        segments = [logged.segment for logged in plan.rewritten]
        keys = spread_keys(store.box, self.state.spec.schema)
        self.mixed = bool(keys) and are_mixed(segments, self.state.spec)
        self.layout = replace(self.log.layout(self.state, intent), spread=keys, cut_parts=self.mixed)
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
        if self.mixed and self.plan.rows >= SMALL:
            few = few.repartition(F.expr(part_sql([quoted(key) for key in keys], MOST_BITS)))
        elif box.pane is None and keys and self.plan.rows >= SMALL:
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
