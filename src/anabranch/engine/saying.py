"""What a query says in a step: which versions to compare, what to read for it, and the changes written.

A query that answers each bucket compares the answer before it with the answer after it. One that defers
revisions says only what closes, until a bucket releases; then it compares with what it last said. A
query that is new compares with nothing: it says its whole answer in its first bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.explode import Explode
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.limits import KEPT
from anabranch.diagram.progress import progress_into, top_aggregate
from anabranch.diagram.reach import EVERYTHING, Interval, dirty, needed
from anabranch.diagram.stages import Leaf, boxes_of
from anabranch.engine import settle
from anabranch.engine.answers import NOTHING_SAID, Answers, Kept, Version
from anabranch.engine.changes import OF_GROUP, ORDER, Emission, difference, first_closed, first_said
from anabranch.engine.columnar.saying import Moment, SayJob
from anabranch.engine.emit import CHANGE_TYPE, Written, write_buckets
from anabranch.engine.guard import FAILED, NO_GUARD, QUOTED, SETTINGS, Guard
from anabranch.engine.kept import Choice, Shelf
from anabranch.engine.kernel import SMALL, Feed, SparkKernel, failed_rows, write_aside
from anabranch.engine.limits import Tally, important, insertions, last_said
from anabranch.engine.live import LiveQuery
from anabranch.engine.mistakes import is_query_error
from anabranch.engine.read import spark_schema
from anabranch.engine.relation import Leaves, Relation, listed
from anabranch.engine.rows import lower_linear
from anabranch.engine.settle import settled
from anabranch.log.buckets import Bucket
from anabranch.model.run import ChangeType
from anabranch.model.schema import Schema

if TYPE_CHECKING:
    from anabranch.engine.step import Step


@dataclass(frozen=True)
class Saying:
    """Changes of a query, written and not yet committed."""

    written: tuple[Written, ...] = ()
    released: int | None = None
    revisions: bool = True


@dataclass(frozen=True)
class Comparison:
    """The versions that a step compares, and what it emits from them."""

    versions: tuple[Version, ...]
    emissions: tuple[Emission, ...]
    released: int
    changed: tuple[Interval, ...] = ()  # the event times at which the versions may differ
    whole: bool = False  # whether all results are compared with what was said, whenever that was


def compare(step: Step, query: LiveQuery, buckets: Sequence[Bucket]) -> Comparison:
    """Which moments matter for what the step's buckets say."""
    came, last_release = query.stored.bucket, query.stored.released
    releases: list[bool] = []
    for bucket in buckets:
        # The first answer of all leaves nothing to defer.
        released = last_release is None or _releases(step, query, bucket, last_release)
        released &= last_release is None or not _says_once(query)
        releases.append(released)
        last_release = bucket.number if released else last_release
    start = query.stored.released if came is not None and any(releases) else came
    earlier = [] if came is None or start is None else step.log.register.buckets_after(start)
    between = [b.number for b in earlier if came is not None and b.number <= came]
    moments = [*([start] if start is not None else []), *between, *(b.number for b in buckets)]
    versions = [Version(number, step.progress_at(query.sources, number)) for number in moments]
    if start is None:
        versions.insert(0, NOTHING_SAID)
    at = {version.bucket: index for index, version in enumerate(versions)}
    emissions, said = [], 0
    for bucket, released in zip(buckets, releases, strict=True):
        emissions.append(Emission(bucket.number, at[bucket.number], said, released))
        said = at[bucket.number] if released else said
    assert last_release is not None
    return Comparison(tuple(versions), tuple(emissions), buckets[-1].number if _says_once(query) else last_release)


def _everything(step: Step, query: LiveQuery, buckets: Sequence[Bucket]) -> Comparison:
    """What was left out while there was no table to keep right is said: all that is right is compared with the log."""
    versions = [NOTHING_SAID, *(Version(b.number, step.progress_at(query.sources, b.number)) for b in buckets)]
    emissions = tuple(Emission(bucket.number, n, n - 1, True) for n, bucket in enumerate(buckets, 1))
    return Comparison(tuple(versions), emissions, buckets[-1].number, whole=True)


def _releases(step: Step, query: LiveQuery, bucket: Bucket, last: int) -> bool:
    """Whether a bucket says the revisions that were deferred."""
    if query.revise_every == KEPT:
        return step.live.keeps(query)
    return bucket.release or bucket.number - last >= query.revise_every


def _says_once(query: LiveQuery) -> bool:
    """Whether windows are said as they close and never again."""
    top = top_aggregate(query.plan)
    return query.limits.ignore and top is not None and top.window is not None


@dataclass(frozen=True)
class Groups:
    """What a query of aggregates has to say: what is compared, and what is read for it."""

    query: LiveQuery
    compared: Comparison
    choices: Mapping[Partials, Choice]
    new: bool  # whether nothing was said before
    alone: bool  # whether only the groups of new partial results matter

    @property
    def few(self) -> bool:
        return sum(choice.rows for choice in self.choices.values()) < SMALL


def find_groups(step: Step, query: LiveQuery) -> Groups:
    """Find out what the step's buckets can have changed; where there are no choices, nothing."""
    buckets = [b for b in step.buckets if b.number > query.came]
    whole = query.revise_every == KEPT and step.live.deferred(query)
    compared = _everything(step, query, buckets) if whole else compare(step, query, buckets)
    changed = EVERYTHING if whole else _changed(step, query, compared)
    if not changed:
        return Groups(query, compared, {}, new=False, alone=False)
    new = _says_first(query, compared)
    alone = not new and _only_fresh_matter(step, query, compared)
    choices = {}
    with Leaves(step.session.apart(query.settings)) as leaves:
        shelf = Shelf(step.log, step.live, query, leaves)
        for box, panes in needed(query.plan, changed).items():
            fresh = step.fresh_segments(query, box)
            choices[box] = shelf.choose(box, panes, fresh, only=fresh if alone and box.pane is None else None)
    step.note_opened(query, choices)
    return Groups(query, replace(compared, changed=changed), choices, new, alone)


def say_groups(step: Step, groups: Groups) -> Saying:
    """The changes of a query of aggregates, by Spark."""
    try:
        written = _difference(step, groups, NO_GUARD)
    except Exception as error:
        if not groups.query.guard.on or not is_query_error(error):
            raise
        written = _difference(step, groups, groups.query.guard)
    return Saying(tuple(written), groups.compared.released)


def _changed(step: Step, query: LiveQuery, compared: Comparison) -> tuple[Interval, ...]:
    first, last = compared.versions[0], compared.versions[-1]

    def touched(box: Partials) -> Sequence[Interval]:
        if first is NOTHING_SAID:
            return EVERYTHING
        if _says_once(query):
            return ()
        new = [pane for part in step.fresh(query, box) for pane in (part.panes or EVERYTHING)]
        return [*new, *_earlier(step, query, box, first.bucket)]

    return dirty(query.plan, touched, first.progress, last.progress)


def _earlier(step: Step, query: LiveQuery, box: Partials, since: int) -> list[Interval]:
    """The panes of partial results that steps before this one have added since a bucket.

    There are such where revisions were deferred, or where the query had halted while others went on.
    """
    store = step.live.store_of(query, box)
    if store.came <= since:
        return []
    found: list[Interval] = []
    for header in step.log.headers(step.live.state(store.stored.stream_id), newest=store.came - since):
        if header.bucket is not None and header.bucket > since:
            panes = (header.cause or {}).get("panes") or EVERYTHING
            found += [(int(low), int(high)) for low, high in panes]
    return found


def _difference(step: Step, groups: Groups, guard: Guard) -> list[Written]:
    query, choices = groups.query, groups.choices
    state = step.live.state(query.stored.stream_id)
    spark = step.session.apart({**query.settings, **SETTINGS} if guard.on else query.settings)
    with Leaves(spark) as leaves:
        said, failed, tally = _changes(step, groups, Shelf(step.log, step.live, query, leaves), guard)
    windowed = closes_of(query, groups.compared.versions) is not None
    spread = _spread(spark, said, choices.values()) if windowed and not groups.few else said.coalesce(1)
    ordered = spread.sortWithinPartitions(*ORDER).select(*state.spec.schema.names, "_change_type")
    written = write_buckets(ordered, step.layout(state), state.spec.schema, extra=CHANGE_TYPE)
    step.note_dropped(query, tally.dropped)
    return [*written, *write_aside(failed, step.layout(state))]


def columnar_job(step: Step, groups: Groups) -> SayJob | None:
    """The same for the columnar kernel, which says plain answers of one aggregate."""
    query, compared = groups.query, groups.compared
    if compared.whole or query.limits.cut or len(groups.choices) != 1:
        return None
    ((box, choice),) = groups.choices.items()
    with Leaves(step.session.apart(query.settings)) as leaves:
        shelf = Shelf(step.log, step.live, query, leaves)
        answer = shelf.analysis(box).columnar_answer(leaves, query.plan)
        if isinstance(answer, str) or shelf.resets(box, choice):
            return None
    versions = compared.versions[1:] if groups.new else compared.versions
    closes = closes_of(query, versions) or [None] * len(versions)
    moments = tuple(Moment(version.bucket, close) for version, close in zip(versions, closes, strict=True))
    return SayJob(answer, choice.state.spec.schema, choice.segments, choice.panes, choice.keys, moments,
                  compared.emissions, groups.new)  # fmt: skip


def _changes(step: Step, groups: Groups, shelf: Shelf, guard: Guard) -> tuple[DataFrame, DataFrame | None, Tally]:
    """What is said, what fails, and how many revisions matter too little, as plans of Spark's."""
    query, compared, choices = groups.query, groups.compared, groups.choices
    state = step.live.state(query.stored.stream_id)
    leaves, few = shelf.leaves, groups.few

    def kept(box: Partials) -> Kept:
        read = shelf.read(box, choices[box], together=few)
        if not groups.alone:
            return read
        fresh = step.fresh_segments(query, box)
        # Reading is spread over tasks; what concerns the new groups is little, and exchanged once.
        little = not few and sum(s.rows for s in fresh) < SMALL
        return replace(read, fresh=shelf.fresh(box, choices[box], fresh), together=little)

    first = groups.new and not guard.on
    answers = Answers(compared.versions[1:] if first else compared.versions, kept, shelf.recipe, guard)
    if first:
        changes = first_said(answers.lower(query.plan), compared.emissions[0].bucket)
    else:
        changes = changes_between(answers, query, compared.emissions, state.spec.schema)
    if query.limits.when is not None or compared.whole:
        before = last_said(step.log, leaves, query, compared.changed)
        bucket = compared.emissions[0].bucket if compared.whole else None
        changes = important(changes, before, query, spark_schema(state.spec.schema), guard, bucket)
    elif query.limits.ignore:
        changes = insertions(changes)
    tally = Tally(query)
    said = tally.left(leaves.frame(changes.sql))
    failed = leaves.frame(_failed(answers, query, compared.emissions)) if guard.aside else None
    return said, failed, tally


def _failed(answers: Answers, query: LiveQuery, emissions: Sequence[Emission]) -> str:
    """The results on which an expression fails, in the bucket in which they first do."""
    rows = answers.lower(query.plan)
    numbers = ", ".join(f"{e.version}, {e.bucket}L" for e in emissions)
    failing = f"SELECT _id, {QUOTED}, {FAILED}, _version FROM {rows.source} WHERE {FAILED} IS NOT NULL"
    first = f"SELECT {QUOTED}, {FAILED}, MIN(_version) AS _version FROM ({failing}) GROUP BY _id, {QUOTED}, {FAILED}"
    bucket = f"ELEMENT_AT(MAP({numbers}), _version) AS _bucket"
    return failed_rows(Relation(f"SELECT * FROM (SELECT *, {bucket} FROM ({first})) WHERE _bucket IS NOT NULL"))


def changes_between(answers: Answers, query: LiveQuery, emissions: Sequence[Emission], schema: Schema) -> Relation:
    """What a query says from one version of its answer to the next."""
    rows = answers.lower(query.plan)
    kinds = spark_schema(schema)
    if any(isinstance(box, Explode) for box in boxes_of(query.plan)):
        return _by_content(rows, emissions, closes_of(query, answers.versions), query.columns, kinds)
    places = [T.StructField(f"c{n}", kinds[name].dataType) for n, name in enumerate(rows.columns)]
    said = T.StructType([kinds["_event_time"], *places])
    return difference(rows, emissions, closes_of(query, answers.versions), said)


def _by_content(
    rows: Relation,
    emissions: Sequence[Emission],
    closes: Sequence[int | None] | None,
    columns: Sequence[str],
    kinds: T.StructType,
) -> Relation:
    """What a query says whose groups have many rows: those of the one version less those of the other.

    As elsewhere, a bucket that releases no revisions says the windows that closed in it.
    """
    moves: list[tuple[str, int, int]] = []
    for e in emissions:
        here = f"_version = {e.version}"
        moves.append((here if e.release else f"{here} AND _closed = {e.version}", e.bucket, 1))
        if e.release:
            moves.append((f"_closed < {e.version} AND _version = GREATEST(_closed, {e.said})", e.bucket, -1))
    items = ", ".join(f"NAMED_STRUCT('moves', {when}, '_bucket', {b}L, '_weight', {w})" for when, b, w in moves)
    names = listed(["_event_time", *columns])
    where = f" WHERE {FAILED} IS NULL" if FAILED in rows.carried else ""
    listing = f"INLINE(FILTER(ARRAY({items}), m -> m.moves)) AS (_moves, _bucket, _weight)"
    known = f"SELECT *, {first_closed(closes)} AS _closed FROM {rows.source}{where}"
    moved = f"SELECT {OF_GROUP} AS _of, {names}, {listing} FROM ({known})"
    found = settled(Relation(moved), columns, kinds)
    order = "NAMED_STRUCT('of', _of, 'pair', _pair) AS _id"
    return replace(found, sql=f"SELECT *, {order} FROM {found.source}")


def closes_of(query: LiveQuery, versions: Sequence[Version]) -> list[int | None] | None:
    """The progress that closes the windows of an answer in each version; None for one without windows."""
    top = top_aggregate(query.plan)
    if top is None or top.window is None:
        return None
    return [progress_into(top, version.progress) for version in versions]


def _says_first(query: LiveQuery, compared: Comparison) -> bool:
    """Whether all that there is to say is new: a query's first bucket, with one result for each group."""
    only = compared.versions[0] is NOTHING_SAID and len(compared.versions) == 2
    many = any(isinstance(box, Explode) for box in boxes_of(query.plan))
    return only and not (many or compared.whole or query.limits.when)


def _only_fresh_matter(step: Step, query: LiveQuery, compared: Comparison) -> bool:
    """Whether the partial results of this step name every group that can have changed in a closed window.

    Not so where results are gathered, which depend on all groups below, or where changes wait from earlier steps.
    """
    if any(isinstance(box, Aggregate) for box in boxes_of(query.plan)):
        return False
    return all(store.came <= compared.versions[0].bucket for store in step.live.stores_of(query))


def _spread(spark: SparkSession, said: DataFrame, choices: Iterable[Choice]) -> DataFrame:
    """Partitions of neighbouring event times, so that their order is the order of the items."""
    parts = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    known = [choice.range for choice in choices if choice.range is not None]
    low, high = min((r[0] for r in known), default=0), max((r[1] for r in known), default=0)
    width = max((high - low) // parts, 1)
    place = f"GREATEST(0, LEAST({parts - 1}, CAST((UNIX_MICROS(_at) - {low}L) DIV {width}L AS INT)))"
    return said.repartitionById(parts, F.expr(place))


def say_rows(step: Step, query: LiveQuery, feeds: Mapping[Leaf, Feed]) -> Saying:
    """The changes of a query of linear boxes: each new row, as the boxes leave it."""
    if not any(feed.plan.segments for feed in feeds.values()):
        return Saying(released=step.upto)
    try:
        written = _rows(step, query, feeds, NO_GUARD)
    except Exception as error:
        if not query.guard.on or not is_query_error(error):
            raise
        written = _rows(step, query, feeds, query.guard)
    return Saying(tuple(written), step.upto, any(feed.revisions for feed in feeds.values()))


def _rows(step: Step, query: LiveQuery, feeds: Mapping[Leaf, Feed], guard: Guard) -> list[Written]:
    settings = {**query.settings, **SETTINGS} if guard.on else query.settings
    kernel = SparkKernel(step.session.apart(settings), step.log.root)
    few = sum(feed.rows for feed in feeds.values()) < SMALL
    state = step.live.state(query.stored.stream_id)
    names = state.spec.schema.names
    # Insertions are said in the order in which they came; revisions are first added up.
    as_came = not any(feed.revisions for feed in feeds.values())
    with Leaves(kernel.spark) as leaves:

        def lower(box: Box) -> Relation:
            if isinstance(box, Source | Keep):
                return kernel.scan(leaves, box, feeds[box], guard=guard, ordered=as_came, together=few)
            return lower_linear(box, lower, guard)

        rows = lower(query.plan)
        good = Relation(f"SELECT * FROM {rows.source} WHERE {FAILED} IS NULL") if guard.aside else rows
        if as_came:
            order: tuple[str, ...] = ("_bucket", "_position", "_ordinal")
            changes = f"SELECT {listed([*names, *order[1:]])}, '{ChangeType.INSERT}' AS _change_type FROM {good.source}"
        else:
            order = settle.ORDER
            settling = settled(good, query.columns, spark_schema(state.spec.schema))
            changes = (insertions(settling) if query.limits.ignore else settling).sql
        said = leaves.frame(changes)
        failed = leaves.frame(failed_rows(rows)) if guard.aside else None
    spread = said.coalesce(1) if few else said.repartitionByRange(*order)
    ordered = spread.sortWithinPartitions(*order).select(*names, "_change_type")
    written = write_buckets(ordered, step.layout(state), state.spec.schema, extra=CHANGE_TYPE)
    return [*written, *write_aside(failed, step.layout(state))]
