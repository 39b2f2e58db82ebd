"""In the end every node is STABLE again, and nobody waits for anybody."""

from __future__ import annotations

from anabranch.lab.checkers.violation import Violation
from anabranch.lab.world import World
from anabranch.protocol.dpc.states import State


def no_deadlock(world: World) -> list[Violation]:
    return [
        Violation("no_deadlock", f"{name} is in {place.node.state} when all has been calm for a while")
        for name, place in world.nodes.items()
        if place.alive and place.node.state is not State.STABLE
    ]
