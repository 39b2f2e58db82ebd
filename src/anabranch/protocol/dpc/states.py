"""The consistency states of a node, and what moves it from one to the next (DPC Fig. 5).

    STABLE          every input brings stable items; so does every output
    UP_FAILURE      an input is missing or tentative; what is available is processed, late enough to hope and
                    early enough to keep the bound
    STABILIZATION   the failure has healed; the state is put back to the checkpoint and stable input is
                    processed again, until the node has caught up or fails again
    FAILURE         as seen from outside only: the node does not answer. A node that restarts is in it, too, and
                    silent until it has rebuilt a consistent state and caught up (4.5)

A failure that heals before anything tentative was processed needs no reconciliation: it was masked. Before
STABILIZATION a node needs the authorisation of a replica, which promises to stay available meanwhile; a node none
of whose replicas can be reached goes unasked.

Transitions are data: whatever is not in the table cannot happen.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class State(StrEnum):
    STABLE = "STABLE"
    UP_FAILURE = "UP_FAILURE"
    STABILIZATION = "STABILIZATION"
    FAILURE = "FAILURE"


class Event(StrEnum):
    INPUT_FAILED = "input failed"  # missing boundaries, tentative items, or an upstream that says so
    MASKED = "masked"  # healed before anything tentative was processed
    AUTHORISED = "authorised"  # healed; a replica covers, or none can be reached
    CAUGHT_UP = "caught up"  # everything that was tentative is corrected, the queues are clear
    CRASHED = "crashed"
    REBUILT = "rebuilt"  # from empty, or from a replica's state, and caught up


TRANSITIONS: Final = MappingProxyType(
    {
        State.STABLE: {Event.INPUT_FAILED: State.UP_FAILURE, Event.CRASHED: State.FAILURE},
        State.UP_FAILURE: {
            Event.MASKED: State.STABLE,
            Event.AUTHORISED: State.STABILIZATION,
            Event.CRASHED: State.FAILURE,
        },
        State.STABILIZATION: {
            Event.CAUGHT_UP: State.STABLE,
            Event.INPUT_FAILED: State.UP_FAILURE,
            Event.CRASHED: State.FAILURE,
        },
        State.FAILURE: {Event.REBUILT: State.STABLE},
    }
)


def follow(state: State, event: Event) -> State:
    """The next state. An event that the state does not know is a bug of ours."""
    assert event in TRANSITIONS[state], f"{event} in {state}"
    return TRANSITIONS[state][event]


# From best to worst, as a downstream node sees it (4.3).
WORSE: Final = (State.STABLE, State.UP_FAILURE, State.STABILIZATION, State.FAILURE)


def worst(states: list[State]) -> State:
    """The state of a node that advertises one for all its outputs."""
    return max(states, key=WORSE.index, default=State.STABLE)
