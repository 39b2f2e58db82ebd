"""A process that feeds a sink and stops for ever where the test wants to kill it.

python -m tests.sites.sink_scripts WAREHOUSE PHASE
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import anabranch as ab
from anabranch.connectors import postgres
from anabranch.connectors.postgres import PostgresTarget
from anabranch.log.sinks import SinkRegister
from tests.sites.spark_scripts import say, stop_before

SMALL = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k",
    "spark.sql.shuffle.partitions": "1",
}


class Stopping:
    """A connection that never gets to its commit."""

    def __init__(self, connection: Any, stop: Any) -> None:
        self._connection = connection
        self.commit = stop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def arm(phase: str) -> None:
    """Stop in a phase of the sink's work."""

    def stop() -> None:
        say("reached", phase)
        signal.pause()

    if phase == "before_copy":
        stop_before(postgres, "collect_reports", stop)
    elif phase == "before_transaction":
        stop_before(PostgresTarget, "_apply", stop)
    elif phase == "inside_transaction":
        insert = PostgresTarget._insert

        def inserted(*args: Any) -> None:
            insert(*args)
            stop()

        PostgresTarget._insert = inserted  # type: ignore[method-assign]
    elif phase == "before_commit":
        apply = PostgresTarget._apply

        def applied(target: Any, connection: Any, *args: Any) -> None:
            apply(target, Stopping(connection, stop), *args)

        PostgresTarget._apply = applied  # type: ignore[method-assign]
    elif phase == "after_transaction":
        stop_before(SinkRegister, "moved", stop)


def main(place: str, phase: str) -> None:
    engine = ab.connect(place, master="local[1]", memory="512m", config=SMALL)
    engine.spark.range(1).count()
    arm(phase)
    say("ready")
    sys.stdin.readline()
    engine.advance()
    say("never reached", phase)


if __name__ == "__main__":
    os.environ["PYTHONFAULTHANDLER"] = "1"
    main(*sys.argv[1:])
