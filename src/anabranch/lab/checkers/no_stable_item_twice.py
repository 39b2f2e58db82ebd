"""No stream says a stable item twice, and no client gets one twice."""

from __future__ import annotations

from anabranch.lab.checkers.violation import Violation
from anabranch.lab.world import World
from anabranch.protocol.dpc.items import ItemId


def no_stable_item_twice(world: World) -> list[Violation]:
    found = []
    for record in world.stream_records:
        if record.repeated:
            said = f"{record.node} says {record.repeated[0]} of {record.stream} again"
            found.append(Violation("no_stable_item_twice", said))
    for client in world.clients.values():
        for stream, seen in client.records.items():
            last = None
            for chunk in seen.stable:
                first = ItemId(chunk.bucket, chunk.first)
                if last is not None and first <= last:
                    found.append(Violation("no_stable_item_twice", f"{client.name} gets {first} of {stream} again"))
                    break
                last = chunk.last
    return found
