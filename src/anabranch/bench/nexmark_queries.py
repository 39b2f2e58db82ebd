"""The queries of Nexmark, each three times: in this engine's SQL, as one batch, and for Structured Streaming.

The batch is plain Spark SQL over all rows; it says what is right. `{bid}` and the like stand for a stream's rows.
Where Structured Streaming has no way to the same answer, the reason stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

_APPEND, _UPDATE = "append", "update"


@dataclass(frozen=True)
class Rival:
    """How Structured Streaming is asked."""

    mode: str  # append or update
    sql: str
    key: tuple[str, ...] = ()  # where it updates: of equal keys the one that was said last counts
    watermark: bool = False  # whether it waits for late rows, and says the rest when time has passed


@dataclass(frozen=True)
class Query:
    name: str
    title: str
    reads: tuple[str, ...]
    ours: str  # statements, of which the last one makes the query
    batch: str
    rival: Rival | None = None
    why_none: str = ""


_BIDS = ("bid",)
_ALL_OF_BIDS = "auction, bidder, price, channel, url, ts, extra"


def _of_rows(name: str, title: str, select: str, where: str = "") -> Query:
    """A query that answers each bid by itself: it is the same everywhere."""
    sql = f"SELECT {select} FROM {{bid}}{where}"
    ours = f"CREATE STREAM {name} AS SELECT {select} FROM bid{where}"
    return Query(name, title, _BIDS, ours, sql, Rival(_APPEND, sql))


_Q0 = _of_rows("q0", "pass through", _ALL_OF_BIDS)
_Q1 = _of_rows("q1", "currency", "auction, bidder, 0.908 * price AS price, ts, extra")
_Q2 = _of_rows("q2", "some auctions", "auction, price", " WHERE auction % 123 = 0")

_Q3_BATCH = """
    SELECT p.name, p.city, p.state, a.id FROM {auction} AS a JOIN {person} AS p ON a.seller = p.id
    WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
"""
_Q3 = Query(
    "q3",
    "local items",
    ("person", "auction"),
    """
    CREATE STREAM q3 AS
    SELECT p.name, p.city, p.state, a.id FROM auction AS a JOIN person AS p ON a.seller = p.id
    WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    _Q3_BATCH,
    Rival(_APPEND, _Q3_BATCH),
)

# WITHIN BETWEEN is the band: the bids that came while an auction was open. Pairs are kept, to be aggregated, so a
# sub-query leaves of them only what is needed.
_Q4 = Query(
    "q4",
    "average price by category",
    ("auction", "bid"),
    """
    CREATE STREAM q4 AS
    SELECT category, avg(final) AS price FROM (
        SELECT id, category, max(price) AS final FROM (
            SELECT a.id, a.category, b.price
            FROM auction AS a JOIN bid AS b ON a.id = b.auction WITHIN BETWEEN a.ts AND a.expires)
        GROUP BY id, category)
    GROUP BY category
    """,
    """
    SELECT category, avg(final) AS price FROM (
        SELECT a.id, a.category, max(b.price) AS final FROM {auction} AS a JOIN {bid} AS b
        ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires GROUP BY a.id, a.category)
    GROUP BY category
    """,
    why_none="no aggregate over a running one",
)

# A result stands at the last instant of its window, so the windows that end together are one slice of results, and
# a band of nothing pairs the counts of a window with the highest of them. Ties are all said.
_Q5_OURS = """
        SELECT auction, count(*) AS num, cq_close(*) AS t
        FROM bid <VISIBLE '10 seconds' ADVANCE '2 seconds'> GROUP BY auction"""
_Q5_BATCH = """
        SELECT auction, count(*) AS num, window(ts, '10 seconds', '2 seconds') AS w
        FROM {bid} GROUP BY auction, window(ts, '10 seconds', '2 seconds')"""
_Q5 = Query(
    "q5",
    "hot items",
    _BIDS,
    f"""
    CREATE STREAM q5 AS
    SELECT c.auction, c.num, c.t FROM ({_Q5_OURS}) AS c
    JOIN (SELECT max(num) AS most, cq_close(*) AS t FROM ({_Q5_OURS}) <SLICES '2 seconds'>) AS m
    ON c.t = m.t AND c.num >= m.most WITHIN '0 seconds'
    """,
    f"""
    WITH counts AS ({_Q5_BATCH}), most AS (SELECT w, max(num) AS most FROM counts GROUP BY w)
    SELECT c.auction, c.num, c.w.end AS t FROM counts AS c JOIN most AS m ON c.w = m.w AND c.num >= m.most
    """,
    Rival(
        _APPEND,
        f"""
        WITH counts AS ({_Q5_BATCH}),
            most AS (SELECT window(window_time(w), '2 seconds') AS w, max(num) AS most FROM counts
                GROUP BY window(window_time(w), '2 seconds'))
        SELECT c.auction, c.num, c.w.end AS t FROM counts AS c JOIN most AS m
        ON c.w.end = m.w.end AND c.num >= m.most
        """,
        watermark=True,
    ),
)

_Q7_SELECT = "SELECT b.auction, b.price, b.bidder, b.ts, b.extra"
_Q7_BATCH = f"""
    {_Q7_SELECT} FROM {{bid}} AS b JOIN (
        SELECT max(price) AS price, window(ts, '10 seconds') AS w FROM {{bid}} GROUP BY window(ts, '10 seconds')) AS h
    ON b.price = h.price AND b.ts >= h.w.start AND b.ts < h.w.end
"""
_Q7 = Query(
    "q7",
    "highest bids",
    _BIDS,
    f"""
    CREATE STREAM q7 AS
    {_Q7_SELECT} FROM bid AS b JOIN (
        SELECT max(price) AS price, cq_open(*) AS opened, cq_close(*) AS closed FROM bid <SLICES '10 seconds'>) AS h
    ON b.price = h.price AND b.ts >= h.opened AND b.ts < h.closed WITHIN '10 seconds'
    """,
    _Q7_BATCH,
    Rival(_APPEND, _Q7_BATCH, watermark=True),
)

_Q8_BATCH = """
    SELECT p.id, p.name, p.w.start AS started FROM (
        SELECT id, name, window(ts, '10 seconds') AS w FROM {person} GROUP BY id, name, window(ts, '10 seconds')) AS p
    JOIN (SELECT seller, window(ts, '10 seconds') AS w FROM {auction} GROUP BY seller, window(ts, '10 seconds')) AS s
    ON p.id = s.seller AND p.w = s.w
"""
_Q8 = Query(
    "q8",
    "new users who sell",
    ("person", "auction"),
    """
    CREATE STREAM q8 AS
    SELECT p.id, p.name, p.started FROM (
        SELECT id, name, cq_open(*) AS started FROM person <SLICES '10 seconds'> GROUP BY id, name) AS p
    JOIN (SELECT seller, cq_open(*) AS started FROM auction <SLICES '10 seconds'> GROUP BY seller) AS s
    ON p.id = s.seller AND p.started = s.started WITHIN '0 seconds'
    """,
    _Q8_BATCH,
    Rival(_APPEND, _Q8_BATCH, watermark=True),
)

_Q9_COLUMNS = """a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.ts, a.expires, a.seller, a.category,
        a.extra, b.auction, b.bidder, b.price, b.ts AS bid_ts, b.extra AS bid_extra"""
# The same, as the highest of all pairs; of equal prices the first bid.
_Q9_RIVAL = f"""
    SELECT won.* FROM (
        SELECT max_by(struct(*), struct(price, -unix_micros(bid_ts))) AS won FROM (
            SELECT {_Q9_COLUMNS}
            FROM {{auction}} AS a JOIN {{bid}} AS b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires)
        GROUP BY id)
"""
_Q9_RANK = "row_number() OVER (PARTITION BY id ORDER BY price DESC, bid_ts)"
_Q9 = Query(
    "q9",
    "winning bids",
    ("auction", "bid"),
    f"""
    CREATE STREAM q9 AS
    SELECT * FROM (
        SELECT {_Q9_COLUMNS}
        FROM auction AS a JOIN bid AS b ON a.id = b.auction WITHIN BETWEEN a.ts AND a.expires)
    QUALIFY {_Q9_RANK} = 1
    """,
    f"""
    SELECT * EXCEPT (place) FROM (
        SELECT *, {_Q9_RANK} AS place FROM (
            SELECT {_Q9_COLUMNS}
            FROM {{auction}} AS a JOIN {{bid}} AS b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires))
    WHERE place = 1
    """,
    Rival(_UPDATE, _Q9_RIVAL, key=("id",)),
)

_Q17_SELECT = """
    SELECT auction, date_format(ts, 'yyyy-MM-dd') AS day, count(*) AS total_bids,
        count(*) FILTER (WHERE price < 10000) AS rank1_bids,
        count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
        count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
        min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
"""
_Q17_GROUP = "GROUP BY auction, date_format(ts, 'yyyy-MM-dd')"
_Q17_BATCH = f"{_Q17_SELECT} FROM {{bid}} {_Q17_GROUP}"
_Q17 = Query(
    "q17",
    "auctions by day",
    _BIDS,
    f"CREATE STREAM q17 AS {_Q17_SELECT} FROM bid {_Q17_GROUP}",
    _Q17_BATCH,
    Rival(_UPDATE, _Q17_BATCH, key=("auction", "day")),
)

_Q18_RANK = "row_number() OVER (PARTITION BY bidder, auction ORDER BY ts DESC)"
_Q18 = Query(
    "q18",
    "last bids",
    _BIDS,
    f"CREATE STREAM q18 AS SELECT {_ALL_OF_BIDS} FROM bid QUALIFY {_Q18_RANK} = 1",
    f"SELECT {_ALL_OF_BIDS} FROM (SELECT *, {_Q18_RANK} AS place FROM {{bid}}) WHERE place = 1",
    Rival(
        _UPDATE,
        f"""
        SELECT auction, bidder, last.price, last.channel, last.url, last.ts, last.extra FROM (
            SELECT auction, bidder, max_by(struct({_ALL_OF_BIDS}), ts) AS last FROM {{bid}} GROUP BY auction, bidder)
        """,
        key=("auction", "bidder"),
    ),
)

QUERIES = {query.name: query for query in (_Q0, _Q1, _Q2, _Q3, _Q4, _Q5, _Q7, _Q8, _Q9, _Q17, _Q18)}
