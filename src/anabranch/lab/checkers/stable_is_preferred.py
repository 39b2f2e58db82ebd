"""Property 3: nobody takes tentative items while a stable replica of the stream has long been within reach."""

from __future__ import annotations

from anabranch.lab.checkers.violation import Violation
from anabranch.lab.paths import in_reach
from anabranch.lab.simulation import SECOND
from anabranch.lab.world import World
from anabranch.protocol.dpc.states import State


def stable_is_preferred(world: World) -> list[Violation]:
    spec = world.spec
    # To find out by two heartbeats, to subscribe, and for what was under way.
    notice = 2 * spec.timing.keep_alive + spec.timing.patience + 4 * (spec.link.latency + spec.link.jitter)
    notice += spec.link.set_up + 2 * spec.bucket + spec.timing.stall
    found = []
    for client in world.clients.values():
        for stream, record in client.records.items():
            replicas = spec.producers[stream]
            for now, sender in record.tentative_from:
                better = [r for r in replicas if r != sender and _was_stable(world, r, stream, now - notice, now)]
                better = [r for r in better if in_reach(world, r, client.name, now - notice, now)]
                if better and now > notice:
                    detail = f"{client.name} takes tentative {stream} from {sender} at {now / SECOND:.3f} s"
                    detail += f" while {better[0]} is stable"
                    found.append(Violation("stable_is_preferred", detail))
                    break
    return found


def _was_stable(world: World, replica: str, stream: str, since: int, until: int) -> bool:
    states = world.nodes[replica].states[stream]
    changes = [state for at, state in states.changes if since < at <= until]
    return states.at(since) is State.STABLE and all(state is State.STABLE for state in changes)
