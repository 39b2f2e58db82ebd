"""Property 4: nothing tentative is said before the first delay has passed, so that shorter failures are masked.

A node that begins to say something tentative has been without the boundaries of all its inputs for as long as it may
wait. Where items carry how long they were delayed, what was waited upstream counts.
"""

from __future__ import annotations

from anabranch.lab.checkers.violation import Violation
from anabranch.lab.simulation import SECOND
from anabranch.lab.world import World


def tentative_only_when_due(world: World) -> list[Violation]:
    return [
        Violation("tentative_only_when_due", f"{node} at {now / SECOND:.3f} s, after {waited} of {first} microseconds")
        for now, node, waited, first in world.first_tentative
        if waited < first and world.spec.delays.budget is None
    ]
