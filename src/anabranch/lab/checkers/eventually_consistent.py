"""Property 2: once failures have healed nothing tentative stands, and the stable output goes on to the end.

A client's view is its stable items followed by tentative ones that were not undone. In the end there are none of the
latter, and the stable boundary of every stream has passed the last item.
"""

from __future__ import annotations

from anabranch.lab.checkers.violation import Violation
from anabranch.lab.world import World


def eventually_consistent(world: World) -> list[Violation]:
    found = []
    for client in world.clients.values():
        for stream, record in client.records.items():
            if record.standing:
                detail = f"{len(record.standing)} tentative chunks of {stream} still stand at {client.name}"
                found.append(Violation("eventually_consistent", detail))
            reached = client.client.inputs[stream].boundary
            if reached < world.spec.duration:
                detail = f"{stream} is stable at {client.name} only up to {reached}"
                found.append(Violation("eventually_consistent", detail))
    return found
