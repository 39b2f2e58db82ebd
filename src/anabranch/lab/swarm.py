"""Many drawn worlds: every promise is checked in each, and what happened is counted.

A world that breaks a promise is run again with fewer faults, first to last, until the shortest schedule that still
breaks one is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from anabranch.lab.checkers import check
from anabranch.lab.checkers.violation import Violation
from anabranch.lab.draw import drawn
from anabranch.lab.simulation import SECOND
from anabranch.lab.spec import Fault, WorldSpec
from anabranch.lab.world import World
from anabranch.protocol.dpc.line import Rules
from anabranch.protocol.dpc.states import TRANSITIONS
from anabranch.protocol.dpc.switching import Row


@dataclass(frozen=True)
class Failure:
    """A world that broke a promise, and the shortest prefix of its schedule that still does."""

    seed: int
    violations: tuple[Violation, ...]
    prefix: tuple[Fault, ...]

    @property
    def command(self) -> str:
        return f"anabranch lab replay {self.seed} --faults {len(self.prefix)}"

    def __str__(self) -> str:
        said = [f"seed {self.seed}: {self.violations[0]}"]
        said += [f"  {fault}" for fault in self.prefix]
        return "\n".join([*said, f"  replay with: {self.command}"])


@dataclass
class Swarm:
    """What a number of worlds came to."""

    worlds: int = 0
    simulated: int = 0  # microseconds
    events: int = 0
    faults: int = 0
    items: int = 0
    transitions: Counter[str] = field(default_factory=Counter)
    rules: Counter[int] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    @property
    def hours(self) -> float:
        return self.simulated / SECOND / 3600

    def add(self, world: World) -> None:
        self.worlds += 1
        self.simulated += world.simulation.now
        self.events += world.simulation.events
        self.faults += len(world.spec.faults)
        self.items += sum(len(source.log) for source in world.sources.values())
        self.transitions += world.trace.transitions
        self.rules += world.trace.rules

    @property
    def counts(self) -> dict[str, int]:
        """How often each transition and each row of Table II was taken; those never taken, too."""
        named = {f"{before} -> {after}": 0 for before, events in TRANSITIONS.items() for after in events.values()}
        named |= {name: self.transitions[name] for name in named}
        return named | {f"Table II, row {int(row)}": self.rules[row] for row in Row}


def run(seed: int, *, faults: int | None = None, rules: Rules | None = None, trace: bool = False) -> World:
    """The world of a seed, with all faults or the first of them, to its end."""
    return World(prefix_of(drawn(seed, rules), faults), trace=trace).run()


def prefix_of(spec: WorldSpec, faults: int | None) -> WorldSpec:
    return spec if faults is None else replace(spec, faults=spec.faults[:faults])


def swarm(
    first: int, runs: int, *, rules: Rules | None = None, going_on: Callable[[], bool] = lambda: True
) -> Iterator[Swarm]:
    """Run worlds one after the other; the sum so far after each."""
    total = Swarm()
    for seed in range(first, first + runs):
        if not going_on():
            return
        world = run(seed, rules=rules)
        total.add(world)
        violations = check(world)
        if violations:
            total.failures.append(shrunk(seed, violations, rules))
        yield total


def shrunk(seed: int, violations: list[Violation], rules: Rules | None = None) -> Failure:
    """The shortest prefix of the schedule with which the world still breaks a promise."""
    whole = drawn(seed, rules).faults
    for length in range(len(whole)):
        found = check(run(seed, faults=length, rules=rules))
        if found:
            return Failure(seed, tuple(found), whole[:length])
    return Failure(seed, tuple(violations), whole)
