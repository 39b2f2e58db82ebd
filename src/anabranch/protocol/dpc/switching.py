"""Which replica of an upstream neighbour to read (DPC Table II).

A node prefers replicas in STABLE over those in UP_FAILURE, and these over all others. Each row of the table is a
condition on the current replica and the others, and whether to switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from anabranch.protocol.dpc.states import State


class Row(IntEnum):
    """The rows of Table II, from the top."""

    CURRENT_IS_STABLE = 1
    ANOTHER_IS_STABLE = 2
    STAY_IN_UP_FAILURE = 3
    ANOTHER_IS_IN_UP_FAILURE = 4
    NONE_IS_BETTER = 5


class Switch(NamedTuple):
    row: Row
    to: str | None  # None: do nothing


def switch(current: State, others: Mapping[str, State]) -> Switch:
    """What Table II says, given the states of the stream at the current replica and at all others, in order."""
    if current is State.STABLE:
        return Switch(Row.CURRENT_IS_STABLE, None)
    stable = _first(others, State.STABLE)
    if stable is not None:
        return Switch(Row.ANOTHER_IS_STABLE, stable)
    if current is State.UP_FAILURE:
        return Switch(Row.STAY_IN_UP_FAILURE, None)
    available = _first(others, State.UP_FAILURE)
    if available is not None:
        return Switch(Row.ANOTHER_IS_IN_UP_FAILURE, available)
    return Switch(Row.NONE_IS_BETTER, None)


def _first(others: Mapping[str, State], wanted: State) -> str | None:
    return next((replica for replica, state in others.items() if state is wanted), None)
