"""How long an SUnion waits before it processes what is incomplete (DPC 6).

When a failure begins, an SUnion waits as long as it may, hoping that the failure is short: `first`. All SUnions
downstream of a failure begin to wait at the same moment, because boundaries stop for all of them; so each may wait
for the whole bound X, and the waits do not add up (6.3). After that, a policy says what becomes of new items, one
while the failure lasts and one while a replica reconciles its state:

    SUSPEND   nothing, until it is over
    DELAY     each bucket waits for `each` after it came
    PROCESS   a bucket is processed as soon as it is complete as far as it can be

With `budget`, items carry by how much they were delayed so far, and an SUnion waits no longer than the budget still
allows, wherever it is in a diagram (6.3, Fig. 21).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from anabranch.model.errors import AnabranchError


class Policy(StrEnum):
    SUSPEND = "suspend"
    DELAY = "delay"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Delays:
    """The waits of one SUnion, in microseconds."""

    first: int
    each: int = 0
    failure: Policy = Policy.PROCESS
    stabilization: Policy = Policy.PROCESS
    budget: int | None = None
    # What an SUnion waits for more of a bucket when no boundary tells that it is complete (6.2, footnote 5).
    settle: int = 300_000
    tentative_boundaries: bool = True

    def wait(self, delayed: int) -> int:
        """How long a bucket waits under DELAY, given by how much it was delayed upstream."""
        return self.each if self.budget is None else max(0, min(self.each, self.budget - delayed))

    def policy(self, covering: bool) -> Policy:
        """What to do with new items; `covering` while a replica reconciles its state."""
        return self.stabilization if covering else self.failure


class Assignment(StrEnum):
    """How an end-to-end bound is divided among SUnions."""

    UNIFORM = "uniform"  # each SUnion an equal share along the longest path
    FULL = "full"  # each SUnion all of it, once
    CARRIED = "carried"  # each SUnion what the items have not used up


def assign(
    upstream: Mapping[str, Sequence[str]],
    bound: int,
    how: Assignment,
    *,
    precaution: float = 1.0,
    failure: Policy = Policy.PROCESS,
    stabilization: Policy = Policy.PROCESS,
) -> dict[str, Delays]:
    """The waits of every node of a diagram, given the nodes that each reads and the bound X in microseconds.

    >>> diagram = {"a": [], "b": ["a"], "c": ["a", "b"]}
    >>> {node: waits.first for node, waits in assign(diagram, 9_000_000, Assignment.UNIFORM).items()}
    {'a': 3000000, 'b': 3000000, 'c': 3000000}
    >>> {node: waits.first for node, waits in assign(diagram, 9_000_000, Assignment.FULL).items()}
    {'a': 9000000, 'b': 9000000, 'c': 9000000}
    """
    usable = round(bound * precaution)
    longest = _longest(upstream)
    match how:
        case Assignment.UNIFORM:
            share = usable // max(longest, 1)
            each = Delays(share, share, failure, stabilization)
        case Assignment.FULL:
            each = Delays(usable, 0, failure, stabilization)
        case Assignment.CARRIED:
            each = Delays(usable, usable, failure, stabilization, budget=usable)
    return dict.fromkeys(upstream, each)


def accumulated(upstream: Mapping[str, Sequence[str]], waits: Mapping[str, Delays], failing: str) -> dict[str, int]:
    """What DELAY adds up to at each node if every node from `failing` on waits for its whole share."""
    reached: dict[str, int] = {}
    for node in _ordered(upstream):
        before = [reached[above] for above in upstream[node] if above in reached]
        if before or node == failing:
            sofar = max(before, default=0)
            reached[node] = sofar + waits[node].wait(sofar)
    return reached


def _longest(upstream: Mapping[str, Sequence[str]]) -> int:
    """How many nodes the longest path has."""
    depth: dict[str, int] = {}
    for node in _ordered(upstream):
        depth[node] = 1 + max((depth[above] for above in upstream[node] if above in depth), default=0)
    return max(depth.values(), default=0)


def _ordered(upstream: Mapping[str, Sequence[str]]) -> list[str]:
    """The nodes, each after all that it reads."""
    done: list[str] = []
    waiting = dict(upstream)
    while waiting:
        free = [node for node, above in waiting.items() if not any(up in waiting for up in above)]
        if not free:
            raise AnabranchError(
                "BAD_ARGUMENT",
                place="delay assignment",
                need="a diagram without loops",
                got=f"a loop among {', '.join(sorted(waiting))}",
                next_step="Cut the loop.",
            )
        for node in free:
            del waiting[node]
        done += free
    return done
