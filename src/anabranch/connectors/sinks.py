"""Sinks: the stable changes of a stream, taken to a database or to files, each exactly once.

A sink takes whole buckets, in order, some at a time. Where it writes, the writing and the note of how far
it has come are one: a transaction of the database, or a rename. So whatever dies when, nothing is lost and
nothing is doubled. Sinks are fed after the steps of an engine, under its lease, whose epoch fences them: an
engine that was paused and replaced writes nothing. A sink that fails halts alone, with its error; one
whose error passes by itself is tried again at the next advance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from anabranch.connectors.files import FileTarget
from anabranch.connectors.postgres import PostgresTarget
from anabranch.connectors.targets import Goods, Target, is_postgres, shown
from anabranch.diagram.keys import key_of
from anabranch.engine.live import Live
from anabranch.engine.mistakes import spark_words
from anabranch.engine.pieces import reach
from anabranch.engine.session import Session
from anabranch.log.leases import Lease
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadRange
from anabranch.log.sinks import StoredSink, new_sink_id
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import check_name, unknown_column

# What one transaction of a database takes at most, unless one bucket has more.
MOST_ROWS = 1_000_000


@dataclass(frozen=True)
class SinkState:
    """A sink as it is now; `to` without its password."""

    name: str
    stream: str
    to: str
    table: str | None
    key: tuple[str, ...]
    insert_only: bool
    position: int
    waiting: int
    halted: Mapping[str, str] | None
    retries: bool


class Names(Protocol):
    def resolve(self, name: str) -> str: ...


class Sinks:
    """The sinks of one warehouse, for whoever creates and feeds them."""

    def __init__(self, log: Log, session: Session, names: Names) -> None:
        self.log = log
        self.session = session
        self.names = names

    # Making and dropping.

    def create(
        self,
        name: str,
        stream: str,
        to: str,
        *,
        table: str | None = None,
        key: Sequence[str] | str = (),
        insert_only: bool = False,
        format: str | None = None,
        tentative: bool = False,
    ) -> None:
        """Create a sink. The same one again changes nothing; another one under its name is an error."""
        check_name(name, "sink")
        self.log.require_main("a new sink")
        place = f"sink {name!r}"
        if tentative:
            raise AnabranchError(
                "NOT_SUPPORTED", place=f"{place}, tentative=", need="stable changes", got="tentative ones too",
                next_step="Leave it out, and read tentative changes with engine.subscribe(stream, tentative=True).",
            )  # fmt: skip
        state = self.log.stream(self.names.resolve(stream))
        wanted = (key,) if isinstance(key, str) else tuple(key)
        definition = {
            "to": to,
            "table": table,
            "insert_only": insert_only,
            "format": format,
            "key": list(self._key(state, wanted, insert_only, place) if is_postgres(to) else wanted),
        }
        there = {sink.name: sink for sink in self.log.sinks.all()}.get(name)
        if there is not None and (there.stream_id, dict(there.definition)) == (state.id, definition):
            return
        self.log.sinks.require_new(name)
        sink_id = new_sink_id()
        goods = _goods(StoredSink(sink_id, name, state.id, state.name, definition, 0, 0, None), state)
        if state.last_position:
            self.log.plan(state.name, ReadRange(1, state.last_position))  # history that is gone is told now
        _target(goods, definition).prepare()
        self.log.sinks.create(name, state.id, definition, sink_id)

    def _key(self, state: StreamState, wanted: tuple[str, ...], insert_only: bool, place: str) -> tuple[str, ...]:
        """The columns that tell the rows of a table apart: as said, or as the stream has them."""
        columns = tuple(c for c in state.spec.schema.names if not c.startswith("_"))
        known = self._known_key(state.name)
        if insert_only:
            if wanted:
                raise AnabranchError(
                    "BAD_ARGUMENT", place=place, need="either KEY or INSERT ONLY", got="both",
                    next_step="Leave out KEY: a table of insertions has every one of them.",
                )  # fmt: skip
            return ()
        spelled = {name.lower(): name for name in columns}
        for name in wanted:
            if name.lower() not in spelled:
                raise unknown_column(f"{place}, key", name, columns, "Check the spelling.")
        key = tuple(spelled[name.lower()] for name in wanted) or known
        if not key:
            raise AnabranchError(
                "BAD_ARGUMENT", place=place, need="columns that tell the rows of the table apart",
                got=f"stream {state.name!r}, of which they are not known",
                next_step="Say KEY (a, b), put the columns of GROUP BY and cq_close(*) into the SELECT, "
                "or take insertions alone with INSERT ONLY.",
            )  # fmt: skip
        if state.spec.key and set(key) != set(state.spec.key):
            raise AnabranchError(
                "BAD_ARGUMENT", place=f"{place}, key", need=f"the stream's own key, {', '.join(state.spec.key)}",
                got=", ".join(key), next_step="Leave out KEY.",
            )  # fmt: skip
        return key

    def _known_key(self, name: str) -> tuple[str, ...] | None:
        live = Live(self.log)
        query = live.queries.get(name)
        if query is None:
            return self.log.stream(name).spec.key or None
        return key_of(query.asked, self._known_key)

    def drop(self, name: str) -> None:
        """Forget a sink. What it has written stays; its note in the database goes, if the database answers."""
        self.log.require_main("a sink to be dropped")  # its note in the database is main's
        sink = self.log.sinks.find(name)
        try:
            self._target_of(sink).forget()
        except AnabranchError:
            pass  # out of reach: the note is a few bytes, and no other sink reads it
        self.log.sinks.drop(sink)

    def resume(self, name: str) -> None:
        self.log.require_main("a sink to be resumed")
        self.log.sinks.resume(self.log.sinks.find(name))

    def there(self, name: str) -> bool:
        return any(sink.name == name for sink in self.log.sinks.all())

    def states(self) -> list[SinkState]:
        return [
            SinkState(
                s.name, s.stream, shown(s.definition["to"]), s.definition["table"], tuple(s.definition["key"]),
                s.definition["insert_only"], s.position, s.waiting, s.halted, s.halted is not None and s.tries,
            )
            for s in self.log.sinks.all()
        ]  # fmt: skip

    # Feeding.

    def waiting(self) -> bool:
        return any(sink.tries and sink.waiting for sink in self.log.sinks.all())

    def feed(self, lease: Lease) -> tuple[str, ...]:
        """Take to every sink what it has not got yet; those that fail are named."""
        failed = []
        for sink in self.log.sinks.all():
            if not sink.tries or not sink.waiting:
                continue
            try:
                self._feed(sink, lease)
            except Exception as error:
                self.log.sinks.halt(lease, sink, _in_our_words(sink, error))
                failed.append(sink.name)
        return tuple(failed)

    def _feed(self, sink: StoredSink, lease: Lease) -> None:
        stream = self.log.stream_by_id(sink.stream_id)
        target = self._target_of(sink)
        came = target.begin(lease.epoch, sink.position)
        while came < stream.last_position:
            upto = reach(self.log, stream, came + 1, stream.last_position, MOST_ROWS)
            if upto is None:
                upto = stream.last_position  # nothing but empty runs: there is nothing to write
            else:
                target.take(target.goods.read(self.log, self.session, came + 1, upto), came, upto)
            self.log.sinks.moved(lease, sink, upto)
            came = upto
        if came > sink.position:
            self.log.sinks.moved(lease, sink, came)

    def _target_of(self, sink: StoredSink) -> Target:
        return _target(_goods(sink, self.log.stream_by_id(sink.stream_id)), sink.definition)


def _goods(sink: StoredSink, stream: StreamState) -> Goods:
    definition = sink.definition
    return Goods(sink.id, sink.name, stream, tuple(definition["key"]), bool(definition["insert_only"]))


def _target(goods: Goods, definition: Mapping[str, Any]) -> Target:
    if is_postgres(definition["to"]):
        return PostgresTarget(goods, definition["to"], definition["table"], definition["format"])
    return FileTarget(goods, definition["to"], definition["table"], definition["format"])


def _in_our_words(sink: StoredSink, error: Exception) -> AnabranchError:
    if isinstance(error, AnabranchError):
        return error
    return AnabranchError(
        "SINK_REFUSED",
        place=f"sink {sink.name!r} of stream {sink.stream!r}",
        need="changes that can be written",
        got=spark_words(error) or type(error).__name__,
        next_step=f"Mend what is said here, then RESUME SINK {sink.name}.",
    )
