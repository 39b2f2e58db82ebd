"""The parallel phase: every store takes the new rows of its streams and adds partial results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.progress import sources_of
from anabranch.diagram.reach import EVERYTHING, Interval, join
from anabranch.diagram.stages import Leaf, leaves_of
from anabranch.engine.abreast import abreast
from anabranch.engine.analysis import Analysis
from anabranch.engine.columnar.kernel import ColumnarKernel, Planned
from anabranch.engine.emit import Written
from anabranch.engine.feeds import times_of
from anabranch.engine.final import Final, source_of
from anabranch.engine.guard import SETTINGS, Guard
from anabranch.engine.kept import may_be_revised
from anabranch.engine.kernel import Feed, PartialJob, PartialsWritten, SparkKernel
from anabranch.engine.kernels import columnar, together
from anabranch.engine.key_ranges import holding
from anabranch.engine.live import LiveQuery, LiveStore
from anabranch.engine.mistakes import is_query_error
from anabranch.engine.relation import Leaves
from anabranch.engine.resets import RESET
from anabranch.engine.spreading import spread_keys
from anabranch.log.commit import Output
from anabranch.log.log import StreamState
from anabranch.log.register import reader_of
from anabranch.log.steps import Move
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunDraft, RunKind

if TYPE_CHECKING:
    from anabranch.engine.step import Step


def store_partials(step: Step, stores: Sequence[LiveStore]) -> None:
    """All that stores have to add: together what the columnar kernel can do, the rest by Spark, abreast."""
    moved = {move.id for move in step.taken.moves if move.kind == "store"}
    behind = {s.stored.id: s for s in stores if s.stored.id not in moved and s.came < step.upto and _users(step, s)}
    feeds: dict[int, dict[Leaf, Feed]] = {}
    for number, store in list(behind.items()):
        try:
            feeds[number] = {leaf: step.feeds.new(leaf, store) for leaf in leaves_of(store.box)}
        except AnabranchError as error:
            step.halt(_users(step, store), error, {}, store)
            del behind[number]
    step.begin(s.stored.stream_id for n, s in behind.items() if any(f.plan.segments for f in feeds[n].values()))
    jobs: dict[int, PartialJob] = {}
    for number, store in behind.items():
        try:
            if any(feed.plan.segments for feed in feeds[number].values()):
                jobs[number] = _job(step, store, feeds[number])
        except Exception as error:
            step.halt(_users(step, store), error, feeds[number], store)
    kernel = columnar(step.session, step.log.root)
    plans = {number: partial(_plan_partials, job) for number, job in jobs.items()}
    made: dict[int, PartialsWritten | Exception] = {
        number: PartialsWritten(tuple(written)) for number, written in together(kernel, plans).items()
    }
    rest = {number: partial(_by_spark, step, behind[number], job) for number, job in jobs.items() if number not in made}
    made |= abreast(step.session.spark, rest)
    for number, store in behind.items():
        if number in made or not any(feed.plan.segments for feed in feeds[number].values()):
            _add(step, store, feeds[number], made.get(number, PartialsWritten(())))


def _users(step: Step, store: LiveStore) -> list[LiveQuery]:
    return [query for query in step.live.users_of(store) if not query.halted]


def _add(step: Step, store: LiveStore, feeds: Mapping[Leaf, Feed], made: PartialsWritten | Exception) -> None:
    """What a store gets in this step, which may be nothing."""
    users = _users(step, store)
    if isinstance(made, Exception):
        step.halt(users, made, feeds, store)
        return
    for of_users in (made.aside, made.ignored):
        for query, parts in zip(users, of_users, strict=False):
            step.set_aside(query, parts)
    by_bucket: dict[int, list[Written]] = {}
    for part in made.partials:
        by_bucket.setdefault(part.bucket, []).append(part)
    for bucket, here in sorted(by_bucket.items()):
        panes = [list(pane) for part in here for pane in part.panes]
        draft = RunDraft(
            RunKind.PARTIALS, tuple(p.segment for p in here), bucket=bucket, stime=step.stimes[bucket],
            progress=step.progress(sources_of(store.box), bucket, store.box), cause={"panes": panes},
        )  # fmt: skip
        step.taken.outputs.append(Output(store.stored.stream_id, draft, step.intent_of(store.stored.stream_id)))
    step.ignore_at_source(users, feeds)
    step.taken.partials[store.stored.id] = list(made.partials)
    step.taken.moves.append(Move("store", store.stored.id, store.stored.bucket, step.upto))
    step.read(reader_of(store.stored), feeds)


def _job(step: Step, store: LiveStore, feeds: Mapping[Leaf, Feed]) -> PartialJob:
    state = step.state(store.stored.stream_id)
    spark = step.session.apart(store.settings)
    with Leaves(spark) as leaves:
        recipe = Analysis(step.live, spark, store.settings).recipe_of(leaves, store.box)
    again = RESET in state.spec.schema.names and any(
        feed.revisions and may_be_revised(step.live, leaf, store.terms) for leaf, feed in feeds.items()
    )
    history = {leaf: step.feeds.history(leaf, store, _panes(store.box, feeds)) for leaf in feeds} if again else None
    times = [interval for feed in feeds.values() for interval in times_of(feed.plan.segments)]
    oldest = step.oldest(store, store.box, times) if again else None
    final = _final(step, store, state, feeds)
    users = _users(step, store)
    aside = oldest is not None or final is not None
    ignored = tuple(step.layout(step.state(query.stored.stream_id)) for query in users) if aside else ()
    layout = replace(step.layout(state), spread=spread_keys(store.box, state.spec.schema))
    return PartialJob(store.box, recipe, feeds, state.spec.schema, layout, history=history,
                      oldest=oldest, ignored=ignored, final=final)  # fmt: skip


def _final(step: Step, store: LiveStore, state: StreamState, feeds: Mapping[Leaf, Feed]) -> Final | None:
    """What is final in a stream with a key, if anything that it holds is old enough."""
    source = source_of(store.box)
    if source is None:
        return None
    stream = step.live.stream(source.stream)
    if stream.event_min is None or (stream.spec.history, stream.spec.history_rows) == (None, None):
        return None
    buckets = [b.bucket for b in feeds[source].bounds][1 if store.stored.bucket is None else 0 :]
    oldest = step.feeds.bounds.of_stream(source, buckets, [(stream.event_min, stream.event_min)])
    if oldest is None:
        return None
    segments = [logged.segment for logged in step.log.plan_panes(state, EVERYTHING)]
    if state.spec.key:
        key = state.spec.key[0]
        segments = holding(segments, [s.segment for s in feeds[source].plan.segments], state.spec.schema[key].type)
    return Final(oldest, stream.spec.event_time, state.spec.schema, tuple(segments))


def _by_spark(step: Step, store: LiveStore, job: PartialJob) -> PartialsWritten:
    try:
        return SparkKernel(step.session.apart(store.settings), step.log.root).partials(job)
    except Exception as error:
        guard = Guard(store.on_error)
        if not guard.on or not is_query_error(error):
            raise
        return _guarded(step, store, job, guard)


def _guarded(step: Step, store: LiveStore, job: PartialJob, guard: Guard) -> PartialsWritten:
    """The same job again, with expressions that fail row by row."""
    kernel = SparkKernel(step.session.apart({**store.settings, **SETTINGS}), step.log.root)
    users = _users(step, store)
    aside = tuple(step.layout(step.state(query.stored.stream_id)) for query in users) if guard.aside else ()
    return kernel.partials(replace(job, guard=guard, aside=aside))


def _plan_partials(job: PartialJob, kernel: ColumnarKernel) -> Planned:
    return kernel.partials(job)


def _first(instant: int, box: Partials) -> int:
    """When the pane of an instant begins."""
    assert box.pane is not None
    return instant - (instant - box.offset) % box.pane


def _panes(box: Partials, feeds: Mapping[Leaf, Feed]) -> tuple[Interval, ...]:
    """The event times of the panes that new rows are in."""
    pane = box.pane
    times = [interval for feed in feeds.values() for interval in times_of(feed.plan.segments)]
    if pane is None or any(interval in EVERYTHING for interval in times):
        return EVERYTHING
    return join((_first(low, box), _first(high, box) + pane - 1) for low, high in times)
