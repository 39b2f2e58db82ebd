"""The transition table: every state and every event."""

from __future__ import annotations

from itertools import product

import pytest

from anabranch.protocol.dpc.states import TRANSITIONS, Event, State, follow, worst

# Fig. 5, with crashes and the recovery of 4.5.
POSSIBLE = {
    (State.STABLE, Event.INPUT_FAILED): State.UP_FAILURE,
    (State.STABLE, Event.CRASHED): State.FAILURE,
    (State.UP_FAILURE, Event.MASKED): State.STABLE,
    (State.UP_FAILURE, Event.AUTHORISED): State.STABILIZATION,
    (State.UP_FAILURE, Event.CRASHED): State.FAILURE,
    (State.STABILIZATION, Event.CAUGHT_UP): State.STABLE,
    (State.STABILIZATION, Event.INPUT_FAILED): State.UP_FAILURE,
    (State.STABILIZATION, Event.CRASHED): State.FAILURE,
    (State.FAILURE, Event.REBUILT): State.STABLE,
}


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_every_pair(state: State, event: Event) -> None:
    if (state, event) in POSSIBLE:
        assert follow(state, event) is POSSIBLE[state, event]
    else:
        with pytest.raises(AssertionError):
            follow(state, event)


def test_every_state_can_become_stable_again() -> None:
    reached = {State.STABLE}
    for _ in State:
        reached |= {before for before, events in TRANSITIONS.items() if reached & set(events.values())}
    assert reached == set(State)


def test_the_worst_state_is_the_node_s() -> None:
    assert worst([State.STABLE, State.STABILIZATION, State.UP_FAILURE]) is State.STABILIZATION
    assert worst([]) is State.STABLE
