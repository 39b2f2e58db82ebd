"""In the end, the stable output at each client is that of the failure-free run, item by item."""

from __future__ import annotations

from anabranch.lab.checkers.violation import Violation
from anabranch.lab.expected import failure_free
from anabranch.lab.world import World
from anabranch.protocol.dpc.items import Item


def output_equals_failure_free(world: World) -> list[Violation]:
    expected = failure_free(world)
    found = []
    for client in world.clients.values():
        for stream, record in client.records.items():
            got: dict[int, tuple[Item, ...]] = {}
            for chunk in record.stable:
                got[chunk.bucket] = got.get(chunk.bucket, ()) + chunk.items
            wanted = expected[stream]
            for bucket in sorted(got.keys() | wanted.keys()):
                if got.get(bucket, ()) != wanted.get(bucket, ()):
                    detail = f"{client.name}, bucket {bucket} of {stream}: {_short(got.get(bucket, ()))}"
                    detail += f" instead of {_short(wanted.get(bucket, ()))}"
                    found.append(Violation("output_equals_failure_free", detail))
                    break
    return found


def _short(items: tuple[Item, ...]) -> str:
    return f"{len(items)} items {[(item.stime, item.body) for item in items[:3]]}"
