"""Promises, one to a file: each looks at a world that has run, and says where it was broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.lab.checkers.buffers_bounded import buffers_bounded
from anabranch.lab.checkers.delay_bound_kept import delay_bound_kept
from anabranch.lab.checkers.eventually_consistent import eventually_consistent
from anabranch.lab.checkers.no_deadlock import no_deadlock
from anabranch.lab.checkers.no_stable_item_twice import no_stable_item_twice
from anabranch.lab.checkers.output_equals_failure_free import output_equals_failure_free
from anabranch.lab.checkers.replicas_agree_after_heal import replicas_agree_after_heal
from anabranch.lab.checkers.stable_is_preferred import stable_is_preferred
from anabranch.lab.checkers.tentative_only_when_due import tentative_only_when_due
from anabranch.lab.checkers.violation import Violation
from anabranch.lab.world import World

Checker = Callable[[World], list[Violation]]

# Safety first; then what must hold once everything has healed.
CHECKERS: Mapping[str, Checker] = {
    checker.__name__: checker
    for checker in (
        delay_bound_kept,  # Property 1
        stable_is_preferred,  # Property 3
        tentative_only_when_due,  # Property 4
        no_stable_item_twice,
        buffers_bounded,
        no_deadlock,
        eventually_consistent,  # Property 2
        replicas_agree_after_heal,
        output_equals_failure_free,
    )
}


def check(world: World) -> list[Violation]:
    """All promises, in order."""
    return [violation for checker in CHECKERS.values() for violation in checker(world)]
