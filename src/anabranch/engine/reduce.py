"""The reduce phase: many partial results of one pane become one, still partial (TRUVISO 4.6).

It works beside the live path: it reads segments that nobody changes, writes new ones, and swaps them in one
short transaction. A reader that planned before still finds the old files for a while.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from pyspark.sql import DataFrame

from anabranch.diagram.limits import KEPT
from anabranch.diagram.stages import leaves_of
from anabranch.engine.aggregates import Lowered
from anabranch.engine.analysis import Analysis
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
        for store in live.stores.values():
            number = store.stored.id
            if number in self._working:
                continue
            plan = self.log.register.plan_reduction(store.stored.stream_id, _horizon(live, store))
            if plan is None:
                continue
            if plan.rows < SMALL:
                self._reduce(live, store, plan)
            else:
                self._thread = self._thread or ThreadPoolExecutor(1, "anabranch-reduce")
                self._working[number] = self._thread.submit(self._reduce, live, store, plan)

    def close(self) -> None:
        """Let what is under way finish."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _reduce(self, live: Live, store: LiveStore, plan: ReductionPlan) -> None:
        if not plan.rewritten:
            self.log.register.commit_reduction(plan, [], None)
            return
        with self.log.intents.lasting(store.stored.stream_id) as intent:
            written = _rewrite(self.log, self.session, live, store, plan, intent)
            self.log.register.commit_reduction(plan, written, intent.id)


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


def _rewrite(
    log: Log, session: Session, live: Live, store: LiveStore, plan: ReductionPlan, intent: Intent
) -> list[Segment]:
    state = log.stream_by_id(store.stored.stream_id)
    layout = log.layout(state, intent)
    spark = session.apart(store.settings)
    with Leaves(spark) as leaves:
        lowered = Analysis(live, spark, store.settings).recipe_of(leaves, store.box).lowered
        if not _may_be_reset(live, store, state):
            job = ReduceJob(store.box, lowered, state.spec.schema, tuple(s.segment for s in plan.rewritten))
            kernel = columnar(session, log.root)
            done = together(kernel, {store.stored.id: lambda kernel: kernel.reduce(job, layout)})
            if done:
                return [w.segment for w in done[store.stored.id]]
        few = _reduced(log, leaves, store, plan, state, lowered)
    keys = [key.name for key in store.box.keys]
    if store.box.pane is None and keys and plan.rows >= SMALL:
        few = few.repartitionByRange(*keys)  # so that headers tell narrow ranges of keys
    ordered = few.sortWithinPartitions("_pane", *keys)
    return [w.segment for w in write_buckets(ordered, layout, state.spec.schema, ordinals=False, split=False)]


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
