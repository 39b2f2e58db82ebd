"""Property 1: where a path is available from a source to a client, results are not later than the bound.

A path is a chain of live places and uncut links. While the same path has been available for the bound and what it
takes to notice and to switch, the client must have got, stable or tentative, everything up to the bound before now.
"""

from __future__ import annotations

from anabranch.lab.checkers.violation import Violation
from anabranch.lab.paths import path
from anabranch.lab.simulation import SECOND
from anabranch.lab.world import World


def delay_bound_kept(world: World) -> list[Violation]:
    spec = world.spec
    allowed = spec.promised + slack(world)
    found = []
    for client in world.clients.values():
        for stream, record in client.records.items():
            for now, lag in _gaps(record.reached, spec.duration):
                if lag > allowed and path(world, stream, client.name, now - allowed, now):
                    detail = f"{client.name} has nothing of {stream} from the last {lag / SECOND:.3f} s"
                    detail += f" at {now / SECOND:.3f} s; {allowed / SECOND:.3f} s are allowed"
                    found.append(Violation("delay_bound_kept", detail))
                    break
    return found


def slack(world: World) -> int:
    """What passes without any delay on purpose: noticing, switching, and the normal latency of each hop."""
    spec = world.spec
    hop = spec.link.latency + spec.link.jitter + spec.delays.settle
    boundary = max(source.boundary_every for source in spec.sources)
    notice = spec.timing.keep_alive + spec.timing.patience + spec.link.set_up + 4 * spec.link.latency
    return spec.bucket + boundary + (spec.depth + 1) * hop + notice + spec.timing.stall


def _gaps(reached: list[tuple[int, int]], duration: int) -> list[tuple[int, int]]:
    """The moments just before anything newer came, each with how old the newest was by then."""
    moments = []
    before = 0
    for now, stime in reached:
        moments.append((now, now - before))
        before = stime
    moments.append((duration, duration - before))
    return [(now, lag) for now, lag in moments if now <= duration]
