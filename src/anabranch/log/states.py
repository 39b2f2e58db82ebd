"""What a stream amounts to, materialised beside its log.

A log has every change that there ever was. Whoever reads a stream again (a Join without a band, a Lookup, a table)
needs only what the changes come to: each row with its net weight, how often it was added less how often it was taken
away. A *state* holds that for all positions up to one; the rest of the log, its *tail*, is read as it is. So state and
tail together give what the whole log gives, wherever the one ends. Weights add up, so a row whose weight is zero
vanishes; a negative weight, a deletion whose row has not come, stays.

A state is made of segments of a role of their own. The segments that one turn of upkeep has written cover a range of
positions, and are a *run* of it. A turn takes the tail and, from the newest on, every run that is not
much larger than what has been taken so far; small ones always. So the runs grow geometrically towards
older ones, each row is rewritten once for each size, and what is no longer there is at most a part of what is. Where
rows are many, a run's segments are cut by a hash of some columns, and each tells its part (`engine/hashing.py`).

A state holds the log's tail: its position is a reader's, which retention and compaction respect. A state that is
gone, or not made yet, costs reading the log from its beginning, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from anabranch.log import buckets, tables
from anabranch.log.catalog import Catalog
from anabranch.log.clock import Clock
from anabranch.log.gc import release_files
from anabranch.log.headers import insert_segments, logged_from, segment_values
from anabranch.log.intents import end_intents, require_open
from anabranch.log.positions import Position, set_positions
from anabranch.log.reading import ReadPlan, ReadRange, plan_read
from anabranch.log.references import verify
from anabranch.model.errors import AnabranchError
from anabranch.model.run import LoggedSegment, Role, Segment

# So many runs of a log's tail are worth a turn.
LEAST_RUNS = 8
# A run is rewritten together with newer rows once they are one in so many of its own.
_RATIO = 4
_SMALL_ROWS = 4_096
_MOST_ROWS = 20_000_000
_AGAIN = "Nothing was changed; the next turn plans anew."

Hashed = tuple[str, ...]


@dataclass(frozen=True)
class Materialised:
    """What a stream amounts to at the end of a bucket, up to a position."""

    id: int
    stream_id: int
    hashed: Hashed
    bucket: int
    position: int
    segments: tuple[LoggedSegment, ...]

    @property
    def rows(self) -> int:
        return sum(logged.segment.rows for logged in self.segments)


@dataclass(frozen=True)
class StatePlan:
    """The tail of a log and the segments of its state that become one run, up to a position."""

    stream_id: int
    hashed: Hashed
    state: Materialised | None
    tail: tuple[LoggedSegment, ...]
    merged: tuple[LoggedSegment, ...]
    bucket: int
    position: int

    @property
    def rows(self) -> int:
        return sum(logged.segment.rows for logged in (*self.tail, *self.merged))

    @property
    def first_position(self) -> int:
        """The first position whose rows are in the run."""
        return min((s.first_position or 1 for s in self.merged), default=self.after + 1)

    @property
    def after(self) -> int:
        return 0 if self.state is None else self.state.position


class States:
    """The states of one warehouse; every method is a short transaction."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self.catalog = catalog
        self.clock = clock

    def all(self) -> list[tuple[int, int, Hashed]]:
        """All that there are: the number, the stream, and what its rows are spread by."""
        table = tables.states
        with self.catalog.read() as connection:
            rows = connection.execute(sa.select(table.c.id, table.c.stream_id, table.c.hashed)).all()
        return [(row.id, row.stream_id, tuple(row.hashed)) for row in rows]

    def read(
        self, stream_id: int, upto: int | None, hashed: Hashed = (), last: int | None = None
    ) -> tuple[Materialised, ReadPlan] | None:
        """A state that holds nothing after a bucket, and the tail after it up to a position; None if there is none.

        Spread by some columns, if there is one like that.
        """
        with self.catalog.read() as connection:
            found = [s for s in _states_of(connection, stream_id) if upto is None or s.bucket <= upto]
            if not found:
                return None
            best = max(found, key=lambda s: (s.hashed == hashed, s.position))
            stream = connection.execute(sa.select(tables.streams).where(tables.streams.c.id == stream_id)).one()
            wanted = ReadRange(first_position=best.position + 1, last_position=last, held=True)
            tail = plan_read(connection, stream, wanted, self.clock())
        for logged in tail.segments:
            if logged.segment.reference:
                verify(logged.segment, tail.spec.name)
        return best, tail

    def plan(self, stream_id: int, hashed: Hashed, bucket: int, least_runs: int = LEAST_RUNS) -> StatePlan | None:
        """What the next turn takes, up to the end of a bucket; None if that is not worth it yet, or cannot be done."""
        with self.catalog.read() as connection:
            stream = connection.execute(sa.select(tables.streams).where(tables.streams.c.id == stream_id)).first()
            if stream is None:
                return None
            state = next((s for s in _states_of(connection, stream_id) if s.hashed == hashed), None)
            after = 0 if state is None else state.position
            position = _position_at(connection, stream, bucket)
            if position <= after or _runs_between(connection, stream_id, after, position) < least_runs:
                return None
            wanted = ReadRange(first_position=after + 1, last_position=position, held=True)
            tail = plan_read(connection, stream, wanted, self.clock()).segments
        if any(_spans(logged, place) for logged in tail for place in (after, position)):
            return None  # compacted beyond: once readers have come further, so can this
        merged = () if state is None else _worth_merging(state, sum(logged.segment.rows for logged in tail))
        plan = StatePlan(stream_id, hashed, state, tail, merged, bucket, position)
        return plan if plan.rows <= _MOST_ROWS or state is None else replace(plan, merged=())

    def commit(self, plan: StatePlan, written: Sequence[Segment], intent_id: str | None) -> None:
        """Let a run take the place of what was read for it. It changes no answer, so it needs no lease."""
        now = self.clock()
        place = f"state of stream number {plan.stream_id}"
        with self.catalog.write() as connection:
            if intent_id is not None:
                require_open(connection, intent_id, now=now, place=place, next_step=_AGAIN)
            number = _moved(connection, plan, place)
            _replace_segments(connection, plan, number, written, intent_id, now, place)
            hold = Position(_holder(number), "query", plan.position)
            set_positions(connection, [(plan.stream_id, hold)])
            if intent_id is not None:
                end_intents(connection, intent_id)

    def drop(self, numbers: Iterable[int]) -> None:
        """Forget states that nobody reads any more."""
        table, segments = tables.states, tables.segments
        with self.catalog.write() as connection:
            for number in numbers:
                state = connection.execute(sa.select(table).where(table.c.id == number)).first()
                if state is None:
                    continue
                mine = _rows_of(connection, state.segments)
                connection.execute(segments.delete().where(segments.c.id.in_([row.id for row in mine])))
                release_files(connection, [row.path for row in mine], self.clock())
                held = tables.positions.c.name == _holder(number)
                connection.execute(
                    tables.positions.delete().where(held, tables.positions.c.stream_id == state.stream_id)
                )
                connection.execute(table.delete().where(table.c.id == number))


def _holder(number: int) -> str:
    """The name under which a state holds the tail: two words, which people's names are not."""
    return f"state {number}"


def _rows_of(connection: sa.Connection, numbers: Sequence[int]) -> list[Any]:
    segments = tables.segments
    some = sa.select(segments).where(segments.c.id.in_(numbers), segments.c.role == str(Role.STATE))
    return list(connection.execute(some.order_by(segments.c.last_position, segments.c.id))) if numbers else []


def _states_of(connection: sa.Connection, stream_id: int) -> list[Materialised]:
    table = tables.states
    rows = connection.execute(sa.select(table).where(table.c.stream_id == stream_id).order_by(table.c.id)).all()
    return [
        Materialised(
            row.id, stream_id, tuple(row.hashed), row.bucket, row.position,
            tuple(logged_from(segment) for segment in _rows_of(connection, row.segments)),
        )
        for row in rows
    ]  # fmt: skip


def _position_at(connection: sa.Connection, stream: Any, bucket: int) -> int:
    """The last position of a stream that is in a bucket or before it."""
    if stream.role == buckets.BASE:
        return buckets.bounds_at(connection, stream.id, bucket).end
    runs = tables.runs
    mine = sa.select(runs.c.position).where(runs.c.stream_id == stream.id, runs.c.bucket <= bucket)
    return int(connection.execute(mine.order_by(runs.c.position.desc()).limit(1)).scalar() or 0)


def _runs_between(connection: sa.Connection, stream_id: int, after: int, upto: int) -> int:
    runs = tables.runs
    some = (runs.c.stream_id == stream_id) & (runs.c.position > after) & (runs.c.position <= upto) & (runs.c.rows > 0)
    return int(connection.execute(sa.select(sa.func.count()).select_from(runs).where(some)).scalar_one())


def _spans(logged: LoggedSegment, position: int) -> bool:
    """Whether a segment has rows on both sides of a position's end."""
    first, last = logged.first_position, logged.last_position
    return first is not None and last is not None and first <= position < last


def _worth_merging(state: Materialised, rows: int) -> tuple[LoggedSegment, ...]:
    """The runs, from the newest on, that are not much larger than what has been taken before them."""
    runs: dict[int, list[LoggedSegment]] = {}
    for logged in state.segments:
        runs.setdefault(logged.last_position or 0, []).append(logged)
    merged: list[LoggedSegment] = []
    for _, run in sorted(runs.items(), reverse=True):
        more = sum(logged.segment.rows for logged in run)
        if more > max(_RATIO * rows, _SMALL_ROWS - rows):
            break
        merged += run
        rows += more
    return tuple(merged)


def _moved(connection: sa.Connection, plan: StatePlan, place: str) -> int:
    """The number of the state, which is now at the plan's position; if it is still where the plan found it."""
    table, segments = tables.states, tables.segments
    across = (
        sa.select(segments.c.id)
        .where(segments.c.stream_id == plan.stream_id, segments.c.role == str(Role.ROWS))
        .where(segments.c.first_position <= plan.position, segments.c.last_position > plan.position)
    )
    if connection.execute(across.limit(1)).first() is not None:
        raise _overtaken(place, "a compaction beyond the position that it reaches")
    if plan.state is not None:
        here = (table.c.id == plan.state.id) & (table.c.stream_id == plan.stream_id)
        here &= table.c.position == plan.state.position
        moved = table.update().where(here).values(bucket=plan.bucket, position=plan.position)
        if not connection.execute(moved).rowcount:
            raise _overtaken(place, "another engine's")
        return plan.state.id
    others = connection.execute(sa.select(table.c.hashed).where(table.c.stream_id == plan.stream_id)).scalars()
    if connection.execute(sa.select(tables.streams.c.id).where(tables.streams.c.id == plan.stream_id)).first() is None:
        raise _overtaken(place, "a stream that was dropped")
    if any(tuple(hashed) == plan.hashed for hashed in others):
        raise _overtaken(place, "another engine's")
    values = {"stream_id": plan.stream_id, "hashed": list(plan.hashed)}
    made = connection.execute(table.insert().values(**values, bucket=plan.bucket, position=plan.position, segments=[]))
    assert made.inserted_primary_key is not None
    return int(made.inserted_primary_key[0])


def _replace_segments(
    connection: sa.Connection,
    plan: StatePlan,
    number: int,
    written: Sequence[Segment],
    intent_id: str | None,
    now: int,
    place: str,
) -> None:
    table, segments = tables.states, tables.segments
    gone = {logged.segment.path for logged in plan.merged}
    before = connection.execute(sa.select(table.c.segments).where(table.c.id == number)).scalar_one()
    old = _rows_of(connection, before)
    if gone:
        ids = [row.id for row in old if row.path in gone]
        if len(ids) < len(gone):
            raise _overtaken(place, "segments that are gone")
        connection.execute(segments.delete().where(segments.c.id.in_(ids)))
        release_files(connection, sorted(gone), now)
    of_state = [replace(segment, role=Role.STATE) for segment in written]
    range_ = (plan.first_position, plan.position)
    insert_segments(connection, [segment_values(s, plan.stream_id, intent_id, *range_) for s in of_state])
    mine = (segments.c.intent_id == intent_id) & (segments.c.role == str(Role.STATE))
    new = connection.execute(sa.select(segments.c.id).where(mine)).scalars().all() if of_state else []
    numbers = [*(row.id for row in old if row.path not in gone), *new]
    connection.execute(table.update().where(table.c.id == number).values(segments=numbers))


def _overtaken(place: str, got: str) -> AnabranchError:
    return AnabranchError(
        "POSITION_CONFLICT",
        place=place,
        need="the state and the log as they were read",
        got=got,
        next_step=_AGAIN,
    )
