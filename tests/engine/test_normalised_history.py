"""BOREALIS 3.3 as it runs: windows of 2 hours with a bound of 5 hours, and over them windows of 1 hour with 10 hours.

The first corrects what is up to 3 hours old; so the second never needs more than 4 hours of what the first has
emitted, whatever its own bound says, and what is older goes.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import anabranch as ab
from anabranch.log.reading import ReadRange
from anabranch.model.time import EPOCH

DAY = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3_600_000_000


def at(hour: float) -> datetime:
    return DAY + timedelta(hours=hour)


def row(hour: float, v: int, kind: str = "insert") -> dict[str, Any]:
    return {"v": v, "ts": at(hour), "_change_type": kind}


def files(engine: ab.Engine, name: str) -> list[int]:
    """The hours after which the files end that are held of a stream; what has been let go of is not on the disk."""
    log = engine._log
    log.collect_garbage(0)
    state = log.stream(name)
    held = [s.segment for s in log.plan(name, ReadRange(held=True)).segments]
    assert {log.root / s.path for s in held} == set((log.root / "data" / str(state.id)).rglob("*.parquet"))
    origin = (DAY - EPOCH) // timedelta(microseconds=1)
    return sorted(((s.event_max or 0) - origin) // HOUR for s in held)


@pytest.mark.proof
def test_intermediate_results_go_that_nobody_needs(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (v INT, ts TIMESTAMP) EVENT TIME ts HISTORY '5 hours'")
    engine.sql("CREATE STREAM one HISTORY '5 hours' AS SELECT max(v) AS v FROM s <SLICES '2 hours'>")
    engine.sql(
        "CREATE STREAM two HISTORY '10 hours' AS SELECT max(v) AS v, cq_close(*) AS t FROM one <SLICES '1 hour'>"
    )
    s, one = engine.stream("s"), engine.stream("one")
    most: dict[float, dict[float, int]] = defaultdict(dict)  # by window, and by hour
    held = []
    for turn in range(7):
        now = turn * 2 + 1.75
        for number, hour in enumerate((turn * 2 + 0.5, now)):
            most[hour // 2][hour] = 10 * turn + number
        s.append([row(hour, most[hour // 2][hour]) for hour in (turn * 2 + 0.5, now)])
        engine.advance()
        if turn > 1:  # the greatest of its window, in each direction; 2 hours old, or 3
            for hour, old in ((now - 2, True), (now - 3, False))[turn % 2 :: 2]:
                window = most[hour // 2]
                first = max(window, key=lambda at: window[at])
                change = [row(first, window.pop(first), "delete")] if old else [row(hour, 99 + turn)]
                if not old:
                    window[hour] = 99 + turn
                s.append(change)
                engine.advance()
        for stream in (s, one):
            stream.retain()
        held.append((len(files(engine, "s")), len(files(engine, "one"))))
    expected = sorted((int(window) * 2 + 2, max(rows.values())) for window, rows in most.items() if window < 6)
    shown = sorted(((r.t.replace(tzinfo=UTC) - DAY) // timedelta(hours=1), r.v) for r in engine.table("two").collect())
    assert shown == expected
    assert engine.ignored("one").count() == engine.ignored("two").count() == 0
    assert min(files(engine, "s")) >= 13.75 - 5 - 1, "as long as was declared"
    assert min(files(engine, "one")) >= 13.75 - 4 - 1, "as long as the second can need it"
    assert max(held[4:]) <= (held[3][0] + 1, held[3][1] + 1), "and there are never more"
    assert s.retain().rows == one.retain().rows == 0
