"""What readers can still have to read again of a stream: retention keeps to it, and reading insists on it.

A *reader* is a store, or a query that takes rows itself. Its next bucket is processed with a history bound, which
counts from how far event time had passed before that bucket (`bounds.py`). What the bound makes it ignore it never
reads, so it needs no event time below

    a base stream without a key    what has passed of it, less its own bound: a deletion must find its row
    partial results that merge     what has passed, less the bound: a deletion recomputes its pane
    a Join with a band             what has passed, less the bound, or what lies around a left row whose band passes
    a Sort                         what progress has not passed: the rest it has emitted
    anything else that reads       all: a Join without a band compares with every row, a Lookup with the whole table,
    rows again                     windows of rows begin where the last one began, however long ago that was

A bound in rows leaves what the newest rows before its next bucket begin with (`newest.py`), of which the catalog knows
only between which event times it lies: the earlier one must be held, the later one must be there.

The less a reader has come along the more it needs: one that has halted, what it will need when it is resumed; one
that has not begun, all that there is. What was gone already when a reader was created it does without.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.diagram.bounds import stretch
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.partials import Partials
from anabranch.diagram.boxes.sort import Sort
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.limits import KEPT
from anabranch.diagram.progress import progress_into
from anabranch.diagram.stages import Leaf, core, leaves_of
from anabranch.engine.bounds import bound_of, rows_of
from anabranch.engine.live import Live, LiveQuery, LiveStore
from anabranch.log.buckets import BASE
from anabranch.log.log import StreamState
from anabranch.log.retention import ALL, NOTHING, Readers


def need_of(live: Live, reader: LiveQuery | LiveStore, leaf: Leaf, *, sure: bool = False) -> int:
    """The event time before which a reader does not read a leaf again: at least, or what it needs for `sure`."""
    if reader.stored.bucket is None:
        return ALL
    return min(_by_deletions(live, reader, leaf, sure), _by_box(live, reader, leaf, sure))


def _by_deletions(live: Live, reader: LiveQuery | LiveStore, leaf: Leaf, sure: bool) -> int:
    """A deletion from a stream without a key must find its row."""
    if live.query_of(leaf, reader.terms) is not None:
        return NOTHING
    assert isinstance(leaf, Source)
    spec = live.stream(leaf.stream).spec
    if leaf.messages:
        return NOTHING
    if spec.history_rows is not None:
        return _newest(live, leaf.stream, spec.history_rows, reader.came, sure)
    return _before(live.progress_at(leaf.stream, reader.came), spec.history)


def _by_box(live: Live, reader: LiveQuery | LiveStore, leaf: Leaf, sure: bool) -> int:
    box = reader.box if isinstance(reader, LiveStore) else core(reader.plan)
    if isinstance(leaf, Keep) and leaf.upstream:
        return NOTHING  # it is computed again, and of its log only what is new is read
    match box:
        case Partials():
            return NOTHING if stretch(box) is None else _within(live, reader, box, sure)
        case Join() if stretch(box) is not None:
            around = _before(live.passed_into(box, reader.came), stretch(box))
            return min(_within(live, reader, box, sure), around)
        case Sort():
            names = {b.stream for b in box.walk() if isinstance(b, Source)}
            reached = progress_into(box, {name: live.progress_at(name, reader.came) for name in names})
            return ALL if reached is None else reached
        case Lookup() if leaf not in leaves_of(box.parts[1]):
            return NOTHING  # what was found is in its own log
        case Join() | Lookup() | Counts():
            return ALL
    return NOTHING


def _within(live: Live, reader: LiveQuery | LiveStore, box: Box, sure: bool) -> int:
    """What a bound leaves to be read again: by time or by rows, whichever is less."""
    limits = [_before(live.passed_into(box, reader.came), bound_of(live, box, reader.terms))]
    limits += [_newest(live, name, rows, reader.came, sure) for name, rows in rows_of(live, box, reader.terms).items()]
    return max(limits)


def _newest(live: Live, name: str, rows: int, bucket: int, sure: bool) -> int:
    """Where the newest rows of a stream begin: no later than here, or for `sure` no earlier."""
    stream = live.stream(name)
    between = live.newest(stream, rows, live.log.register.bounds_at(stream.id, bucket).end)
    return ALL if between is None else between[sure]


def _before(passed: int | None, bound: int | None) -> int:
    return ALL if passed is None or bound is None else passed - bound


def readers_of(live: Live) -> Iterator[tuple[LiveQuery | LiveStore, Box]]:
    """All that read streams, each with what it reads them through."""
    yield from ((store, store.box) for store in live.stores.values())
    yield from ((query, query.plan) for query in live.queries.values() if query.linear or query.rereads)


def needs_of(live: Live) -> Readers:
    """What all readers need; of what a query has said, as far as it may go at all."""
    needs: dict[int, int] = {}
    for reader, box in readers_of(live):
        for leaf in leaves_of(box):
            query = live.query_of(leaf, reader.terms)
            state = live.stream(leaf.stream) if query is None and isinstance(leaf, Source) else None
            number = query.stored.stream_id if query is not None else state.id if state is not None else None
            assert number is not None
            needs[number] = min(needs.get(number, NOTHING), need_of(live, reader, leaf))
    for query in live.queries.values():
        number = query.stored.stream_id
        needs[number] = min(needs.get(number, _alone(live, query)), _by_itself(query))
    for state in live.log.streams():
        if state.role == BASE and state.spec.history_rows is not None:
            needs[state.id] = min(needs.get(state.id, NOTHING), _declared(live, state, state.spec.history_rows))
    asked = {("query", query.stored.id) for query in live.queries.values()}
    return Readers(frozenset(asked | {("store", number) for number in live.stores}), needs)


def _declared(live: Live, state: StreamState, rows: int) -> int:
    """What people declared, counted in rows: up to the last bucket; before there are any, up to now."""
    end = live.log.register.bounds_at(state.id, NOTHING).end if live.queries else state.last_position
    between = live.newest(state, rows, end)
    return ALL if between is None else between[0]


def _alone(live: Live, query: LiveQuery) -> int:
    """What is held of an answer that no query reads: as much as its own bound says."""
    return (
        ALL if query.stored.bucket is None else _before(live.passed_into(query.plan, query.came), query.limits.history)
    )


def _by_itself(query: LiveQuery) -> int:
    """Whether what a query has said is read again for its own sake, or for that of people."""
    if query.terms.upstream:
        return ALL  # goes by positions (`Advancer`)
    if query.hidden:
        return ALL if isinstance(core(query.plan), Counts | Lookup) else NOTHING
    table = query.from_changes or query.revise_every == KEPT
    return ALL if table or query.limits.history is None else NOTHING


def retained_streams(live: Live) -> list[StreamState]:
    """The streams of which anything may go."""
    bounded = [s for s in live.log.streams() if (s.spec.history, s.spec.history_rows) != (None, None)]
    base = [state for state in bounded if state.role == BASE]
    derived = [q for q in live.queries.values() if _by_itself(q) == NOTHING]
    return [*base, *(live.state(query.stored.stream_id) for query in derived)]
