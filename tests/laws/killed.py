"""A process that advances a warehouse and is killed on the way: `killed.py WAREHOUSE POINT`.

A point is a function of the engine, by its name, and whether the process dies before it or after it. A name that is
gone is an error, and so is a process that comes to its end alive: whoever asked for a kill gets one, or fails.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from typing import Any

import anabranch as ab
from anabranch.engine.step import Step
from anabranch.log import steps
from anabranch.log.reduction import plan_reduction
from anabranch.log.register import Register


@dataclass(frozen=True)
class Point:
    """A function of a class or a module, before or after which a process dies."""

    owner: Any
    name: str
    after: bool = False


# The phases of a step, in their order.
STEP = {
    "recorded": Point(Step, "run"),  # the bucket is there, and nothing of it has been read
    "parallel": Point(Step, "_serial"),  # partial results are written
    "serial": Point(Step, "_commit"),  # everything is written, and nothing is committed
    "commit": Point(steps, "set_positions"),  # in the middle of the transaction: runs and buckets, but no positions
    "committed": Point(Register, "commit_step", after=True),
}
# What comes after it, where there are enough runs of partial results.
POINTS = {**STEP, "reduction": Point(Register, "commit_reduction")}


def arm(name: str) -> None:
    """From now on this process dies at a point."""
    point = POINTS[name]
    original = getattr(point.owner, point.name)

    def dying(*arguments: Any, **options: Any) -> Any:
        if point.after:
            original(*arguments, **options)
        print(f"dies at {name}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(point.owner, point.name, dying)


def main() -> None:
    warehouse, name = sys.argv[1:]
    if name == "reduction":
        plan_reduction.__defaults__ = (2,)  # so few runs become one
    arm(name)
    with ab.connect(warehouse, master="local[1]", memory="1g") as engine:
        engine.advance()


if __name__ == "__main__":
    main()
