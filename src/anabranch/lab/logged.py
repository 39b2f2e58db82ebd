"""What nodes say, kept in the production log: stable items in its runs, tentative ones in its overlay.

Every replica's stream is a stream of one warehouse. A stable chunk is a run whose identity is the chunk's, so saying
it again changes nothing. Tentative items are appends of a speculative unit of work, on top of the stable position; an
undo, or the crash of their node, aborts it. The clock of the log is the world's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from anabranch.lab.expected import failure_free
from anabranch.lab.world import World
from anabranch.log.log import Log, StreamState
from anabranch.log.reading import ReadRange
from anabranch.log.units import UnitOfWork
from anabranch.model.run import RunId
from anabranch.model.stream import StreamSpec
from anabranch.model.time import to_datetime
from anabranch.protocol.dpc.items import Chunk, Element, Insertion, Item, Tentative, Undo

_EPOCH = 1_767_225_600_000_000  # the world begins on 2026-01-01
_LEASE = 1 << 50  # a world's hour passes in a second; leases are tried elsewhere
_ORDINALS = 1 << 20
_COLUMNS = "k BIGINT, v BIGINT, bucket BIGINT, ordinal BIGINT, ts TIMESTAMP"

Place = tuple[int, int]  # bucket and ordinal
Body = tuple[int, int]


class LoggedStore:
    """A warehouse into which nodes of a world speak: all of them, or only some."""

    def __init__(self, warehouse: Path, only: Collection[str] | None = None) -> None:
        self.only = only
        self.now = 0
        self.log = Log(warehouse, clock=lambda: _EPOCH + self.now, lease_us=_LEASE)
        self.undone = 0
        self._streams: dict[str, StreamState] = {}
        self._overlays: dict[str, UnitOfWork] = {}

    def say(self, node: str, stream: str, elements: tuple[Element, ...]) -> None:
        if self.only is not None and node not in self.only:
            return
        name = f"{node}_{stream}"
        for element in elements:
            match element:
                case Insertion(chunk):
                    self._commit(name, chunk)
                case Tentative(chunk):
                    self._overlay(name).append(_rows(chunk))
                case Undo():
                    self.drop_overlay(node, stream)

    def drop_overlay(self, node: str, stream: str) -> None:
        unit = self._overlays.pop(f"{node}_{stream}", None)
        if unit is not None:
            unit.abort()
            self.undone += 1

    def _commit(self, name: str, chunk: Chunk) -> None:
        self.now = max(self.now, chunk.items[-1].stime)
        run_id = RunId(name, 1 + chunk.bucket * _ORDINALS + chunk.first)
        with self.log.unit_of_work(self._stream(name), run_id=run_id, single=True) as unit:
            unit.append(_rows(chunk))

    def _overlay(self, name: str) -> UnitOfWork:
        if name not in self._overlays:
            self._overlays[name] = self.log.unit_of_work(self._stream(name), speculative=True)
        return self._overlays[name]

    def _stream(self, name: str) -> StreamState:
        if name not in self._streams:
            spec = StreamSpec.declare(name, _COLUMNS, event_time="ts", ahead="36500 days")
            self._streams[name] = self.log.create_stream(spec)
        return self._streams[name]

    # What the log says.

    def stable(self, node: str, stream: str) -> list[tuple[Place, Body]]:
        """The stable items of a replica's stream, in the order of the log."""
        return self._read(f"{node}_{stream}", ReadRange())

    def tentative(self, node: str, stream: str) -> int:
        """How many items are in its overlay."""
        name = f"{node}_{stream}"
        return len(self._read(name, ReadRange(tentative=True))) - len(self._read(name, ReadRange()))

    def _read(self, name: str, wanted: ReadRange) -> list[tuple[Place, Body]]:
        if name not in self._streams:
            return []
        segments = self.log.plan(name, wanted).segments
        found: list[tuple[Any, ...]] = []
        for logged in sorted(segments, key=lambda s: s.first_position or 0):
            table = pq.read_table(self.log.root / logged.segment.path, columns=["bucket", "ordinal", "k", "v"])
            found += zip(*(table[column].to_pylist() for column in table.column_names), strict=True)
        return [((bucket, ordinal), (k, v)) for bucket, ordinal, k, v in found]

    def close(self) -> None:
        self.log.close()


def _rows(chunk: Chunk) -> list[dict[str, Any]]:
    return [
        {"k": item.body[0], "v": item.body[1], "bucket": chunk.bucket, "ordinal": ordinal, "ts": _time(item)}
        for ordinal, item in enumerate(chunk.items, chunk.first)
    ]


def _time(item: Item) -> Any:
    return to_datetime(_EPOCH + item.stime)


def faults_of(world: World, store: LoggedStore) -> list[str]:
    """Where the log of a world that has run and healed is not what the failure-free run would have written."""
    expected = failure_free(world)
    said = []
    for fragment in world.spec.fragments:
        for stream in fragment.lines:
            wanted = [
                ((bucket, ordinal), item.body)
                for bucket, items in sorted(expected[stream].items())
                for ordinal, item in enumerate(items)
            ]
            for node in fragment.nodes:
                if store.only is None or node in store.only:
                    said += _compare(world, store, node, stream, wanted)
    return said


def _compare(
    world: World, store: LoggedStore, node: str, stream: str, wanted: Sequence[tuple[Place, Body]]
) -> list[str]:
    got = store.stable(node, stream)
    if store.tentative(node, stream):
        return [f"{node} still has tentative items of {stream}"]
    if len(set(got)) != len(got):
        return [f"{node} has stable items of {stream} twice"]
    if world.nodes[node].incarnation == 1:
        return [] if got == list(wanted) else [f"the log of {stream} at {node} is not that of the failure-free run"]
    # While it was down others have said what it has taken over from them as a state.
    return [] if set(got) <= set(wanted) else [f"{node} has logged items of {stream} that there should not be"]
