"""Buffers stay within their limits, and are empty of old items once everybody has acknowledged."""

from __future__ import annotations

from anabranch.lab.checkers.violation import Violation
from anabranch.lab.world import World

_BUCKETS_HELD = 50  # what a calm world may still hold: some rounds of acknowledgements


def buffers_bounded(world: World) -> list[Violation]:
    found = []
    most = world.spec.limits.most
    sources = len(world.spec.sources)
    for name, place in world.nodes.items():
        for stream, line in place.node.lines.items():
            largest = max((chunk.tuples for record in place.records for chunk in record.stable), default=0)
            if most is not None and place.most_buffered > most + largest:
                detail = f"{name} held {place.most_buffered} tuples of {stream}; {most} are allowed"
                found.append(Violation("buffers_bounded", detail))
            # What the sources have outstanding: once stable, once tentative.
            if most is not None and place.most_held > 2 * sources * (most + largest):
                detail = f"{name} held {place.most_held} tuples of its inputs; {sources} sources may have {most} each"
                found.append(Violation("buffers_bounded", detail))
            kept = {chunk.bucket for chunk in line.out.buffer.chunks}
            if world.spec.truncates and len(kept) > _BUCKETS_HELD:
                found.append(Violation("buffers_bounded", f"{name} still holds {len(kept)} buckets of {stream}"))
            behind = len(line.sunion.arrived)
            if behind > _BUCKETS_HELD:
                found.append(Violation("buffers_bounded", f"the input of {stream} at {name} holds {behind} buckets"))
    return found
