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
from anabranch.engine.bounds import bound_of
from anabranch.engine.live import Live, LiveQuery, LiveStore
from anabranch.log.log import StreamState
from anabranch.log.retention import ALL, NOTHING, Readers


def need_of(live: Live, reader: LiveQuery | LiveStore, leaf: Leaf) -> int:
    """The event time before which a reader does not read a leaf again."""
    if reader.stored.bucket is None:
        return ALL
    return min(_by_deletions(live, reader, leaf), _by_box(live, reader, leaf))


def _by_deletions(live: Live, reader: LiveQuery | LiveStore, leaf: Leaf) -> int:
    """A deletion from a stream without a key must find its row."""
    if live.query_of(leaf, reader.terms) is not None:
        return NOTHING
    assert isinstance(leaf, Source)
    history = live.stream(leaf.stream).spec.history
    return NOTHING if leaf.messages else _before(live.progress_at(leaf.stream, reader.came), history)


def _by_box(live: Live, reader: LiveQuery | LiveStore, leaf: Leaf) -> int:
    box = reader.box if isinstance(reader, LiveStore) else core(reader.plan)
    if isinstance(leaf, Keep) and leaf.upstream:
        return NOTHING  # it is computed again, and of its log only what is new is read
    match box:
        case Partials():
            return NOTHING if stretch(box) is None else _within(live, reader, box, 0)
        case Join() if stretch(box) is not None:
            return _within(live, reader, box, stretch(box) or 0)
        case Sort():
            names = {b.stream for b in box.walk() if isinstance(b, Source)}
            reached = progress_into(box, {name: live.progress_at(name, reader.came) for name in names})
            return ALL if reached is None else reached
        case Lookup() if leaf not in leaves_of(box.parts[1]):
            return NOTHING  # what was found is in its own log
        case Join() | Lookup() | Counts():
            return ALL
    return NOTHING


def _within(live: Live, reader: LiveQuery | LiveStore, box: Box, around: int) -> int:
    bound = bound_of(live, box, reader.terms)
    return _before(live.passed_into(box, reader.came), None if bound is None else max(bound, around))


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
    asked = {("query", query.stored.id) for query in live.queries.values()}
    return Readers(frozenset(asked | {("store", number) for number in live.stores}), needs)


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
    base = [state for state in live.log.streams() if state.role == "base" and state.spec.history is not None]
    derived = [q for q in live.queries.values() if _by_itself(q) == NOTHING]
    return [*base, *(live.state(query.stored.stream_id) for query in derived)]
