"""A process that advances a warehouse and is killed on the way: `killed.py WAREHOUSE POINT`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import anabranch as ab
from anabranch.engine.step import Step
from anabranch.log.register import Register


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    warehouse, point = sys.argv[1:]
    if point == "parallel":
        Step._serial = die  # type: ignore[method-assign]
    elif point == "serial":
        Step._commit = die  # type: ignore[method-assign]
    elif point == "commit":
        from anabranch.log import steps

        steps.set_position = die
    elif point == "committed":
        commit = Register.commit_step

        def committed(*args: Any, **options: Any) -> Any:
            commit(*args, **options)
            die()

        Register.commit_step = committed  # type: ignore[method-assign]
    with ab.connect(warehouse, master="local[1]", memory="1g") as engine:
        engine.advance()


if __name__ == "__main__":
    main()
