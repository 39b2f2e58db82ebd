"""Which places could hear one another, and through which a client could be reached, for a whole stretch of time.

Only faults that were planned count, and nodes that were rebuilding their state or had a full buffer: what else the
protocol made of it does not.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.lab.spec import FaultKind
from anabranch.lab.world import World
from anabranch.protocol.dpc.states import State

_OF_LINKS = (FaultKind.CUT, FaultKind.ONE_WAY, FaultKind.LOSE, FaultKind.SLOW)


def is_up(world: World, place: str, since: int, until: int) -> bool:
    """Whether a place was running, with a consistent state, all the time."""
    for fault in world.spec.faults:
        if fault.kind not in _OF_LINKS and fault.a == place and fault.at <= until and since <= fault.until:
            return False
    if place not in world.nodes:
        return True
    if _was_blocked(world, place, since, until):
        return False
    for states in world.nodes[place].states.values():
        down = [state for at, state in states.changes if since < at <= until and state is State.FAILURE]
        if down or states.at(max(since, 0)) is State.FAILURE:
            return False
    return True


def _was_blocked(world: World, node: str, since: int, until: int) -> bool:
    """Whether a buffer was full at any time."""
    changes = world.nodes[node].blocked
    before = [blocked for at, blocked in changes if at <= since]
    return before[-1:] == [True] or any(blocked for at, blocked in changes if since < at <= until)


def in_reach(world: World, a: str, b: str, since: int, until: int) -> bool:
    """Whether two places could hear each other all the time."""
    if not (is_up(world, a, since, until) and is_up(world, b, since, until)):
        return False
    return not any(
        fault.kind in _OF_LINKS and {fault.a, fault.b} == {a, b} and fault.at <= until and since <= fault.until
        for fault in world.spec.faults
    )


def path(world: World, stream: str, reader: str, since: int, until: int) -> bool:
    """Whether items of some source could have come to a reader of a stream all the time, over the same places."""
    return _found(world, stream, reader, since, until, {})


def _found(world: World, stream: str, reader: str, since: int, until: int, known: dict[tuple[str, str], bool]) -> bool:
    key = stream, reader
    if key not in known:
        producers = world.spec.producers[stream]
        near = [place for place in producers if in_reach(world, place, reader, since, until)]
        known[key] = any(
            place in world.sources
            or any(_found(world, above, place, since, until, known) for above in _reads(world, stream))
            for place in near
        )
    return known[key]


def _reads(world: World, stream: str) -> Iterable[str]:
    return next(reads for f in world.spec.fragments for name, (reads, _) in f.lines.items() if name == stream)
