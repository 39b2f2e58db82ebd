"""The failure-free run: what one perfect machine would have said, from the sources' logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anabranch.lab.boxes import Boxes
from anabranch.lab.spec import WorldSpec
from anabranch.lab.world import World
from anabranch.protocol.dpc.items import Item

Buckets = Mapping[int, tuple[Item, ...]]


def failure_free(world: World) -> dict[str, Buckets]:
    """The stable items of every stream, by bucket."""
    spec = world.spec
    size = spec.bucket
    streams: dict[str, dict[int, tuple[Item, ...]]] = {}
    for name, source in world.sources.items():
        streams[name] = _cut(source.log, size)
    last = max((bucket for found in streams.values() for bucket in found), default=0)
    extra = 1 + max((b.reach // size for f in spec.fragments for _, b in f.lines.values()), default=0)
    for name, reads, boxes in _in_order(spec):
        state = boxes.fresh()
        said: dict[int, tuple[Item, ...]] = {}
        for bucket in range(last + extra):
            inputs = {read: streams[read].get(bucket, ()) for read in reads}
            output = state.run(bucket * size, (bucket + 1) * size, inputs)
            if output:
                said[bucket] = tuple(output)
        streams[name] = said
    return dict(streams)


def _cut(items: list[Item], size: int) -> dict[int, tuple[Item, ...]]:
    found: dict[int, list[Item]] = {}
    for item in items:
        found.setdefault(item.stime // size, []).append(item)
    return {bucket: tuple(here) for bucket, here in found.items()}


def _in_order(spec: WorldSpec) -> Iterator[tuple[str, tuple[str, ...], Boxes]]:
    """Every line, after those whose streams it reads."""
    known = {source.name for source in spec.sources}
    waiting = [(name, reads, boxes) for f in spec.fragments for name, (reads, boxes) in f.lines.items()]
    while waiting:
        ready = [line for line in waiting if known.issuperset(line[1])]
        assert ready, "a diagram has no loops"
        yield from ready
        known.update(name for name, *_ in ready)
        waiting = [line for line in waiting if line[0] not in known]
