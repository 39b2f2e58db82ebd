"""Answers with what is not committed yet: speculative units of work (TRUVISO 5.5).

The rows of an open speculative unit go through the same boxes as any other. The difference that they make
to the stable answer is said in the query's feed, marked tentative, on top of the bucket that it was
computed on. As soon as that bucket is not the last any more, or a unit has begun, grown or ended, what
was said is undone by its inverse, and said anew. The stable answer never sees any of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.progress import sources_of
from anabranch.diagram.reach import Interval, dirty, needed
from anabranch.diagram.stages import Leaf, leaves_of
from anabranch.engine.aggregates import takes_deletions
from anabranch.engine.analysis import Analysis
from anabranch.engine.answers import Answers, Kept, Version
from anabranch.engine.changes import ORDER, Emission
from anabranch.engine.emit import CHANGE_TYPE, Written, write_buckets
from anabranch.engine.kept import Shelf
from anabranch.engine.kernel import Feed, PartialJob, SparkKernel
from anabranch.engine.kernels import compute_partials
from anabranch.engine.live import Live, LiveQuery, LiveStore
from anabranch.engine.mistakes import is_query_error, quietly
from anabranch.engine.paths import literal_path
from anabranch.engine.read import spark_schema
from anabranch.engine.relation import Leaves, Relation, listed
from anabranch.engine.rows import lower_linear
from anabranch.engine.saying import changes_between
from anabranch.engine.session import Session
from anabranch.log.buckets import Bounds
from anabranch.log.leases import Lease
from anabranch.log.log import Log
from anabranch.log.overlays import OverlayItem
from anabranch.log.reading import ReadPlan, ReadRange
from anabranch.model.run import ChangeType, RunDraft, RunKind

# After every bucket that will ever be.
UNCOMMITTED = 1 << 60
_INVERSE = {
    ChangeType.INSERT: ChangeType.DELETE,
    ChangeType.DELETE: ChangeType.INSERT,
    ChangeType.UPDATE_PREIMAGE: ChangeType.UPDATE_POSTIMAGE,
    ChangeType.UPDATE_POSTIMAGE: ChangeType.UPDATE_PREIMAGE,
}


@dataclass(frozen=True)
class Open:
    """The open items of the base streams, and the progress with them."""

    items: Mapping[str, tuple[OverlayItem, ...]]
    progress: Mapping[str, int | None]

    def ids(self, sources: Sequence[str]) -> list[int]:
        return [item.id for source in sources for item in self.items.get(source, ())]


def open_units(log: Log, live: Live) -> Open:
    """What is open now, in the streams that queries read."""
    names = dict.fromkeys(name for query in live.queries.values() for name in query.sources)
    items, progress = {}, {}
    for name in names:
        items[name], progress[name] = log.overlays.overlay_of(live.stream(name).id)
    return Open(items, progress)


class Tentative:
    """Says, and undoes, what open units of work would change."""

    def __init__(self, log: Log, session: Session, lease: Lease, live: Live) -> None:
        self.log = log
        self.session = session
        self.lease = lease
        self.live = live

    def undo(self, now: Open) -> int:
        """Take back what was said on another bucket or of other items; how many queries had to."""
        undone = 0
        for query in self.live.queries.values():
            said = query.stored.tentative
            if said is None or query.halted:
                continue
            if said["bucket"] == query.stored.bucket and said["items"] == now.ids(query.sources):
                continue
            self._undo(query)
            undone += 1
        return undone

    def _undo(self, query: LiveQuery) -> None:
        said = query.stored.tentative
        assert said is not None
        if said["position"] is None:
            self.log.overlays.undo(self.lease, query.stored, None, None)
            return
        feed = self.log.stream_by_id(query.stored.feed_id)
        spark = self.session.apart(query.settings)
        segments = [
            s.segment
            for s in self.log.plan(
                feed.name, ReadRange(first_position=said["position"], last_position=said["position"])
            ).segments
        ]
        with Leaves(spark) as leaves:
            schema = spark_schema(feed.spec.schema).add("_change_type", T.StringType()).add("_ordinal", T.LongType())
            paths = [literal_path(str(self.log.root / s.path)) for s in segments]
            name = leaves.add(spark.read.schema(schema).parquet(*paths).coalesce(1))
            swapped = " ".join(f"WHEN '{a}' THEN '{b}'" for a, b in _INVERSE.items())
            inverse = leaves.frame(
                f"SELECT {listed(feed.spec.schema.names)}, CASE _change_type {swapped} END AS _change_type "
                f"FROM {name} SORT BY _ordinal DESC"
            )
        with self.log.intents.lasting(feed.id) as intent:
            written = write_buckets(inverse, self.log.layout(feed, intent), feed.spec.schema, extra=CHANGE_TYPE)
            draft = self._draft(query, written, said["bucket"], {"undoes": said["position"]})
            self.log.overlays.undo(self.lease, query.stored, draft, intent.id)

    def say(self, now: Open) -> int:
        """Say what the open items change in the answers that have not heard of them."""
        said = 0
        for query in self.live.queries.values():
            ids = now.ids(query.sources)
            if not ids or query.halted or not query.speculates or query.stored.bucket is None:
                continue
            if query.stored.tentative is not None or self._deletes_what_merges(query, now):
                continue
            try:
                with quietly():
                    for store in self.live.stores_of(query):
                        self._partials(store, now)
                    self._say(query, now, ids)
            except Exception as error:
                if not is_query_error(error):
                    raise
                continue  # an expression fails on a row that may never be committed: say nothing of it
            said += 1
        return said

    def _deletes_what_merges(self, query: LiveQuery, now: Open) -> bool:
        """Whether an open unit deletes rows under results that do not subtract: only its commit makes those again."""
        deletes = any(item.revisions for source in query.sources for item in now.items.get(source, ()))
        return deletes and not all(takes_deletions(store.box.calls) for store in self.live.stores_of(query))

    def _partials(self, store: LiveStore, now: Open) -> None:
        """Reduce the items that a store has not taken yet to partial results of their own."""
        have = self.log.overlays.derived_of(store.stored.stream_id)
        for source in sources_of(store.box):
            for item in now.items.get(source, ()):
                if item.id not in have:
                    self._reduce_item(store, source, item)

    def _reduce_item(self, store: LiveStore, source: str, item: OverlayItem) -> None:
        state = self.log.stream_by_id(store.stored.stream_id)
        spark = self.session.apart(store.settings)
        feeds: dict[Leaf, Feed] = {
            leaf: self._feed(leaf, (item,) if leaf.stream == source else ())
            for leaf in leaves_of(store.box)
            if isinstance(leaf, Source)
        }
        with Leaves(spark) as leaves:
            recipe = Analysis(self.live, spark, store.settings).recipe_of(leaves, store.box)
        with self.log.intents.lasting(state.id) as intent:
            job = PartialJob(store.box, recipe, feeds, state.spec.schema, self.log.layout(state, intent))
            written = [w.segment for w in compute_partials(self.session, spark, self.log.root, job).partials]
            self.log.overlays.add_derived(self.lease, state.id, item, self.log.entry_point, written, intent.id)

    def _feed(self, leaf: Source, items: Sequence[OverlayItem]) -> Feed:
        segments = tuple(s for item in items for s in item.segments)
        plan = ReadPlan(self.live.stream(leaf.stream).spec, ReadRange(), segments)
        bounds = (Bounds(UNCOMMITTED, 0, 0, None),)
        return Feed(plan, bounds, any(item.revisions for item in items))

    def _say(self, query: LiveQuery, now: Open, ids: list[int]) -> None:
        feed = self.log.stream_by_id(query.stored.feed_id)
        bucket = query.stored.bucket
        assert bucket is not None
        with self.log.intents.lasting(feed.id) as intent:
            frame = self._rows(query, now) if query.linear else self._groups(query, now)
            written = []
            if frame is not None:
                written = write_buckets(frame, self.log.layout(feed, intent), feed.spec.schema, extra=CHANGE_TYPE)
            draft = self._draft(query, written, bucket, {"items": ids}) if written else None
            said = {"bucket": bucket, "items": ids}
            self.log.overlays.say_tentative(self.lease, query.stored, draft, intent.id, said)

    def _groups(self, query: LiveQuery, now: Open) -> DataFrame | None:
        bucket = query.stored.bucket
        assert bucket is not None
        stable = {n: self.log.register.bounds_at(self.live.stream(n).id, bucket).progress for n in query.sources}
        versions = [Version(bucket, stable), Version(UNCOMMITTED, now.progress)]

        def touched(box: Partials) -> Sequence[Interval]:
            state = self.log.stream_by_id(self.live.store_of(query, box).stored.stream_id)
            return self.log.overlays.derived_ranges(state.id)

        changed = dirty(query.plan, touched, stable, now.progress)
        if not changed:
            return None
        ranges = needed(query.plan, changed)
        with Leaves(self.session.apart(query.settings)) as leaves:
            shelf = Shelf(self.log, self.live, query, leaves)

            def kept(box: Partials) -> Kept:
                return shelf.read(box, shelf.choose(box, ranges[box], tentative=True))

            answers, emission = Answers(versions, kept, shelf.recipe), Emission(bucket, 1, 0, release=True)
            schema = self.log.stream_by_id(query.stored.feed_id).spec.schema
            said = leaves.frame(changes_between(answers, query, [emission], schema).sql)
        names = schema.names
        return said.coalesce(1).sortWithinPartitions(*ORDER).select(*names, "_change_type")

    def _rows(self, query: LiveQuery, now: Open) -> DataFrame:
        kernel = SparkKernel(self.session.apart(query.settings), self.log.root)
        names = self.log.stream_by_id(query.stored.feed_id).spec.schema.names
        with Leaves(kernel.spark) as leaves:

            def lower(box: Box) -> Relation:
                if isinstance(box, Source):
                    return kernel.scan(leaves, box, self._feed(box, now.items.get(box.stream, ())))
                return lower_linear(box, lower)

            rows = lower(query.plan)
            kind = f"CASE WHEN _weight < 0 THEN '{ChangeType.DELETE}' ELSE '{ChangeType.INSERT}' END AS _change_type"
            others = [name for name in names if name != "_bucket"]
            sql = f"SELECT {listed(others)}, {query.stored.bucket}L AS _bucket, {kind} FROM {rows.source}"
            said = leaves.frame(sql)
        return said.coalesce(1).select(*names, "_change_type")

    def _draft(
        self, query: LiveQuery, written: Sequence[Written], bucket: int, cause: Mapping[str, object]
    ) -> RunDraft:
        state = self.log.stream_by_id(query.stored.stream_id)
        return RunDraft(
            RunKind.REVISIONS, tuple(w.segment for w in written), bucket=bucket,
            stime=self.log.overlays.stime_of(bucket), progress=state.progress, cause=dict(cause),
        )  # fmt: skip
