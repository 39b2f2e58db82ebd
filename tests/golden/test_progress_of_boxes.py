"""How progress passes through each box, value by value; in minutes after 2026-01-01T12:00, to the microsecond.

The streams have come to 12:14 (`s`), 12:10 (`r`) and nowhere (`silent`); `prices` is a table, for which nobody waits.
"""

from __future__ import annotations

import pytest

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.progress import is_timeless, progress_of
from anabranch.diagram.rewrites import rewrite
from anabranch.diagram.rewrites.known import Key, Known
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import CreateQuery
from anabranch.model.time import instant_us

NOON = instant_us("2026-01-01T12:00:00Z", "noon")
MINUTE = 60_000_000
YEARS = 100 * 365 * 24 * 60 * MINUTE
COLUMNS = {
    "s": ("k", "n", "ts"), "r": ("k", "m", "ts"), "silent": ("k", "n", "ts"), "keyed": ("k", "n", "ts"),
    "prices": ("k", "price", "since"), "names": ("k", "name", "since"),
}  # fmt: skip
KEYED = {"keyed": Key(("k",), "ts"), "prices": Key(("k",), "since"), "names": Key(("k",), "since")}
TABLES = ("prices", "names")
STREAMS = {
    "s": NOON + 14 * MINUTE, "r": NOON + 10 * MINUTE, "silent": None, "keyed": NOON + 14 * MINUTE,
    "prices": NOON + YEARS, "names": NOON + YEARS,
}  # fmt: skip


def box(text: str) -> Box:
    (statement,) = parse(f"CREATE STREAM q AS {text}")
    assert isinstance(statement, CreateQuery)
    return compile_query(statement, lambda name: COLUMNS[name]).box


def shown(made: Box) -> int | None:
    return None if is_timeless(made, TABLES) else progress_of(made, STREAMS)


LAST = -1  # a microsecond before
CASES = {
    # Filter and Map pass it on.
    "SELECT k FROM s WHERE n > 1": 14 * MINUTE,
    "SELECT k, n FROM silent": None,
    # Union and Join take the minimum; one side that is unknown makes it unknown.
    "SELECT k FROM s UNION ALL SELECT k FROM r": 10 * MINUTE,
    "SELECT k FROM s UNION ALL SELECT k FROM silent": None,
    "SELECT n, m FROM s JOIN r ON s.k = r.k": 10 * MINUTE,
    "SELECT n, m FROM s JOIN r ON s.k = r.k WITHIN '3 minutes'": 10 * MINUTE,
    "SELECT s.n, m FROM s JOIN r ON s.k = r.k JOIN silent AS t ON s.k = t.k": None,
    # A left row waits for a partner as long as its band is.
    "SELECT n, m FROM s LEFT JOIN r ON s.k = r.k WITHIN '3 minutes'": 7 * MINUTE,
    "SELECT n, m FROM r LEFT JOIN s ON s.k = r.k WITHIN '3 minutes'": 7 * MINUTE,
    "SELECT n, m FROM s LEFT JOIN r ON s.k = r.k": 10 * MINUTE,
    # The next close that has not come, less a microsecond.
    "SELECT count(*) AS c FROM s <SLICES '5 minutes'>": 15 * MINUTE + LAST,
    "SELECT k, sum(n) AS c FROM s <VISIBLE '10 minutes' ADVANCE '2 minutes'> GROUP BY k": 16 * MINUTE + LAST,
    "SELECT count(*) AS c FROM (SELECT k FROM s UNION ALL SELECT k FROM r) <SLICES '5 minutes'>": 15 * MINUTE + LAST,
    "SELECT sum(c) AS c FROM (SELECT count(*) AS c FROM s <SLICES '5 minutes'>) <SLICES '15 minutes'>":
        15 * MINUTE + LAST,
    "SELECT count(*) AS c FROM (SELECT n, m FROM s LEFT JOIN r ON s.k = r.k WITHIN '3 minutes') <SLICES '5 minutes'>":
        10 * MINUTE + LAST,
    "SELECT count(*) AS c FROM silent <SLICES '5 minutes'>": None,
    # The first instant of the grid that is not yet said: 12:14 waits for rows of 12:14 itself.
    "SELECT last(n) AS n FROM s <RESAMPLE '5 minutes' HOLD '10 minutes'>": 15 * MINUTE,
    "SELECT last(n) AS n FROM s <RESAMPLE '2 minutes' HOLD '4 minutes'>": 14 * MINUTE,
    # Every other box passes its input's on.
    "SELECT sum(n) AS n FROM s <SLICES 3 ROWS>": 14 * MINUTE,
    "SELECT k, m FROM r ORDER BY EVENT TIME": 10 * MINUTE,
    "SELECT k, n FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY n) <= 1": 14 * MINUTE,
    "SELECT k, sum(n) AS n FROM s GROUP BY k": 14 * MINUTE,
    "SELECT k, sum(n) AS n FROM keyed GROUP BY k": 14 * MINUTE,
    "SELECT k, count(*) AS c FROM silent GROUP BY k": None,
    # Nobody waits for a table; what reads nothing else has no place in time.
    "SELECT n, price FROM s LOOKUP prices AS p ON s.k = p.k WITHOUT REVISION": 14 * MINUTE,
    "SELECT n, price FROM s LOOKUP prices AS p ON s.k = p.k": 14 * MINUTE,
    "SELECT s.n, t.m FROM s LOOKUP r AS t ON s.k = t.k WITHOUT REVISION": 14 * MINUTE,
    "SELECT n, price FROM s JOIN prices AS p ON s.k = p.k": 14 * MINUTE,
    "SELECT n, price FROM silent AS s JOIN prices AS p ON s.k = p.k": None,
    "SELECT p.k, price, name FROM prices AS p JOIN names AS n ON p.k = n.k": None,
    "SELECT max(price) AS m FROM prices": None,
}  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_progress_as_the_user_wrote_it_and_as_it_is_computed(text: str) -> None:
    expected = None if CASES[text] is None else NOON + CASES[text]
    asked = box(text)
    assert shown(asked) == expected
    assert shown(rewrite(asked, Known(keyed=KEYED)).box) == expected
