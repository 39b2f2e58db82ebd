"""History bounds in rows: the newest n by event time, before each bucket, whatever files are there and however cut."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import pytest

import anabranch as ab
from anabranch.log.reading import ReadRange
from tests.engine.test_retention import at, delete, insert, table

MOST = "SELECT max(v) AS m, count(*) AS c FROM s <SLICES '10 minutes'>"


def limit(rows: list[dict[str, Any]], many: int) -> datetime:
    """The event time of the n-th newest of all that came."""
    return sorted((row["ts"] for row in rows), reverse=True)[many - 1]


def ignored(engine: ab.Engine, name: str) -> list[tuple[int, str]]:
    found = engine.ignored(name).selectExpr("get_json_object(row, '$.v') AS v", "_reason", "_bucket").collect()
    return sorted((int(row.v), row._reason) for row in found)


@pytest.mark.parametrize("retain", [True, False])
def test_deletions_beyond_the_newest_rows_are_ignored(engine: ab.Engine, retain: bool) -> None:
    engine.sql("CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts HISTORY 4 ROWS")
    engine.sql(f"CREATE STREAM most AS {MOST}; CREATE STREAM each AS SELECT v FROM s")
    s = engine.stream("s")
    came: list[dict[str, Any]] = []

    def bucket(*rows: dict[str, Any]) -> None:
        s.append(list(rows))
        came.extend(rows)
        engine.advance()
        if retain:
            s.retain()

    bucket(insert(1, at(12)), insert(9, at(12, 1)), insert(2, at(12, 5)))
    bucket(delete(9, at(12, 1)), insert(3, at(12, 20)))
    assert ignored(engine, "each") == ignored(engine, "most") == [], "three rows had come: all are held"
    bucket(insert(4, at(12, 30)), insert(5, at(12, 40)), insert(8, at(12, 41)))
    assert limit(came, 4) == at(12, 20)
    bucket(delete(2, at(12, 5)), delete(3, at(12, 20)), insert(7, at(12, 6)), insert(1, at(13, 30)))
    why = "rows older than the newest 4 rows would have to be read again"
    assert ignored(engine, "each") == ignored(engine, "most") == [(2, why)]
    assert table(engine, "most") == Counter([(7, 3), (4, 1), (8, 2)]), "the late row counts"
    assert table(engine, "each") == Counter([(v,) for v in (1, 2, 4, 5, 8, 7, 1)])
    held = engine._log.plan("s", ReadRange(held=True)).segments
    assert (sum(segment.segment.rows for segment in held) < len(came)) == retain
    facts = {row.column: row.type for row in engine.sql("DESCRIBE s").collect()}  # type: ignore[union-attr]
    assert facts["# history"] == "4 rows"


def test_a_query_may_have_such_a_bound_of_its_own(engine: ab.Engine) -> None:
    """Of a pane that began before the newest rows a deletion is ignored; what only counts takes it."""
    engine.sql("CREATE STREAM s (k INT, v INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql(f"CREATE STREAM some HISTORY 3 ROWS AS {MOST}; CREATE STREAM every AS {MOST}")
    s = engine.stream("s")
    s.append([insert(9, at(12, 8)), insert(1, at(12, 9)), insert(5, at(12, 12)), insert(6, at(12, 13))])
    engine.advance()
    s.append([delete(9, at(12, 8)), delete(6, at(12, 13)), insert(1, at(12, 45))])
    engine.advance()
    assert [v for v, _ in ignored(engine, "some")] == [9], "12:08 is in a pane from 12:00 on, before the newest three"
    assert table(engine, "some") == Counter([(9, 2), (5, 1)])
    assert table(engine, "every") == Counter([(1, 1), (5, 1)])
