"""Functions of the user's own on Spark: they run in tasks, for each group once, and fail alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest

import anabranch as ab
from anabranch.model.errors import AnabranchError

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
HERE = "tests.engine.test_apply"


def spread(rows: pd.DataFrame) -> Any:
    return rows["v"].max() - rows["v"].min()


def moves(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"v": rows["v"], "move": rows["v"].diff().fillna(0.0)})


def fails(rows: pd.DataFrame) -> Any:
    raise ValueError("not today")


def at(second: float) -> datetime:
    return ZERO + timedelta(seconds=second)


def table(engine: ab.Engine, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in engine.table(name).collect()), key=repr)


def test_values_and_rows_from_functions_are_corrected(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql(f"""CREATE STREAM spreads AS
        SELECT k, apply('{HERE}:spread', 'INT', v) FILTER (WHERE v > 0) AS s, count(*) AS n
        FROM s <SLICES '5 seconds'> GROUP BY k""")
    engine.sql(f"""CREATE STREAM moves AS SELECT v FROM s <SLICES '5 seconds'> GROUP BY k
        APPLY '{HERE}:moves' RETURNS (v INT, move DOUBLE)""")
    engine.sql(f"CREATE STREAM bad AS SELECT apply('{HERE}:fails', 'INT', v) AS s FROM s <SLICES '5 seconds'>")
    stream = engine.stream("s")
    stream.append([(1, v, at(v)) for v in (0, 1, 3, 9)])
    assert engine.advance().halted == ("bad",)
    assert engine.halted()["bad"]["got"] == "ValueError: not today"
    assert table(engine, "spreads") == [(1, 2, 3)]
    assert table(engine, "moves") == [(0, 0.0), (1, 1.0), (3, 2.0)]
    stream.append(
        [
            {"k": 1, "v": 7, "ts": at(2), "_change_type": "insert"},
            {"k": 1, "v": 1, "ts": at(1), "_change_type": "delete"},
        ]
    )
    engine.advance()
    assert table(engine, "spreads") == [(1, 4, 3)]
    assert table(engine, "moves") == [(0, 0.0), (3, -4.0), (7, 7.0)]


def test_functions_that_are_not_there_are_refused(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM s (v INT, ts TIMESTAMP) EVENT TIME ts")
    with pytest.raises(AnabranchError) as caught:
        engine.sql(f"CREATE STREAM q AS SELECT apply('{HERE}:nothing', 'INT', v) AS s FROM s <SLICES '5 seconds'>")
    assert caught.value.id == "BAD_EXPRESSION"
    assert "no such function" in caught.value.got
