"""In the end all replicas of a fragment have said the same stable items, to the byte."""

from __future__ import annotations

from anabranch.lab.checkers.violation import Violation
from anabranch.lab.world import World
from anabranch.protocol.dpc.items import Item, ItemId


def replicas_agree_after_heal(world: World) -> list[Violation]:
    found = []
    said: dict[str, dict[ItemId, tuple[str, Item]]] = {}
    for record in world.stream_records:
        known = said.setdefault(record.stream, {})
        for chunk in record.stable:
            for ordinal, item in enumerate(chunk.items, chunk.first):
                identity = ItemId(chunk.bucket, ordinal)
                node, before = known.setdefault(identity, (record.node, item))
                if before != item:
                    detail = f"{identity} of {record.stream} is {item} at {record.node} and {before} at {node}"
                    return [Violation("replicas_agree_after_heal", detail)]
    for fragment in world.spec.fragments:
        for stream in fragment.lines:
            ends = {node: world.nodes[node].node.lines[stream].soutput.last for node in fragment.nodes}
            if len(set(ends.values())) > 1:
                detail = f"the last stable item of {stream} differs: " + ", ".join(f"{n} {i}" for n, i in ends.items())
                found.append(Violation("replicas_agree_after_heal", detail))
    return found
