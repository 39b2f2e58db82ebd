"""BOREALIS, sections 2.2, 2.3 and 3.1 to 3.2: insertion, deletion and replacement messages through every box.

The paper's messages are (+, t), (-, t) with only a key, and (<-, t) with a key and revised values. A box takes them and
gives the same kinds of messages: only the differences between its output with the original history and with the
revised one (the closed model), so any diagram of boxes can take what another one gives.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import anabranch as ab

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
SIGNS = {"insert": "+", "delete": "-", "update_preimage": "<- was", "update_postimage": "<- now"}
CARRIED = 6  # columns of the feed after those of the query: _change_type, _stability, where it stands


def quote(number: int, symbol: str, price: int, minute: float) -> dict[str, Any]:
    return {"id": number, "symbol": symbol, "price": price, "ts": ZERO + timedelta(minutes=minute)}


@pytest.fixture
def ticker(engine: ab.Engine) -> ab.Stream:
    """The paper's example: a stock ticker that fixes errors in quotes that it has sent."""
    engine.sql("CREATE STREAM ticker (id INT, symbol STRING, price INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    return engine.stream("ticker")


def buckets(engine: ab.Engine, name: str) -> list[list[tuple[Any, ...]]]:
    """The messages that a query has given, bucket by bucket; none where it had nothing to say."""
    told: dict[int, list[tuple[Any, ...]]] = {}
    for row in engine.changes(name).collect():
        told.setdefault(row._bucket, []).append((SIGNS[row._change_type], *tuple(row)[: len(row) - CARRIED]))
    return [told.get(number, []) for number in range(1, max(told) + 1)]


def table(engine: ab.Engine, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in engine.table(name).collect())


def minute_of(time: datetime) -> float:
    return (time.replace(tzinfo=UTC) - ZERO) / timedelta(minutes=1)


# 2.2 and the footnote of 3.2: what the messages mean.


def test_messages_by_key(engine: ab.Engine, ticker: ab.Stream) -> None:
    engine.sql("CREATE STREAM quotes AS SELECT id, price FROM ticker")
    ticker.append([quote(1, "a", 10, 1), quote(2, "a", 20, 2)])
    engine.advance()
    ticker.delete([1])  # (-, t) has only the key
    ticker.replace([quote(2, "a", 21, 2)])  # (<-, t) has the key and revised values
    engine.advance()
    ticker.append([quote(2, "a", 22, 2), quote(1, "a", 11, 1)])  # a live key is replaced, one that is gone comes anew
    ticker.replace([quote(3, "b", 30, 3)])  # nothing is there to be replaced: an insertion
    ticker.delete([4])  # nothing is there to be deleted
    engine.advance()
    assert buckets(engine, "quotes") == [
        [("+", 1, 10), ("+", 2, 20)],
        [("-", 1, 10), ("<- was", 2, 20), ("<- now", 2, 21)],
        [("+", 1, 11), ("<- was", 2, 21), ("<- now", 2, 22), ("+", 3, 30)],
    ]
    assert table(engine, "quotes") == [(1, 11), (2, 22), (3, 30)]


def test_legacy_applications_drop_replacements_and_deletions(engine: ab.Engine, ticker: ab.Stream) -> None:
    engine.sql("CREATE STREAM quotes AS SELECT id, price FROM ticker")
    ticker.append([quote(1, "a", 10, 1), quote(2, "a", 20, 2)])
    engine.advance()
    ticker.replace([quote(1, "a", 11, 1)])
    ticker.delete([2])
    ticker.append([quote(3, "a", 30, 3)])
    engine.advance()
    seen = engine.changes("quotes").where("_change_type = 'insert'").orderBy("_bucket", "_ordinal").collect()
    assert [(row.id, row.price) for row in seen] == [(1, 10), (2, 20), (3, 30)]


# 3.2: boxes without state.


def test_the_four_cases_of_a_revised_filter(engine: ab.Engine, ticker: ab.Stream) -> None:
    engine.sql("CREATE STREAM dear AS SELECT id, price FROM ticker WHERE price > 10")
    ticker.append([quote(1, "a", 20, 1), quote(2, "a", 20, 2), quote(3, "a", 5, 3), quote(4, "a", 5, 4)])
    engine.advance()
    ticker.replace([quote(1, "a", 30, 1), quote(2, "a", 4, 2), quote(3, "a", 50, 3), quote(4, "a", 6, 4)])
    engine.advance()
    ticker.delete([1, 2])
    engine.advance()
    assert buckets(engine, "dear") == [
        [("+", 1, 20), ("+", 2, 20)],
        [
            ("<- was", 1, 20),  # p is true of t and of t': the replacement is propagated
            ("<- now", 1, 30),
            ("-", 2, 20),  # true of t only: a deletion
            ("+", 3, 50),  # true of t' only: an insertion; true of neither: nothing
        ],
        [("-", 1, 30)],  # what had not passed is not there to be deleted
    ]


def test_a_map_passes_revisions_on_where_they_show(engine: ab.Engine, ticker: ab.Stream) -> None:
    engine.sql("CREATE STREAM dollars AS SELECT id, price div 100 AS dollars FROM ticker")
    ticker.append([quote(1, "a", 150, 1), quote(2, "a", 250, 2), quote(3, "a", 350, 3)])
    engine.advance()
    ticker.replace([quote(1, "a", 160, 1), quote(2, "a", 360, 2)])  # 1 is a dollar before and after
    ticker.delete([3])
    engine.advance()
    assert buckets(engine, "dollars")[1] == [("<- was", 2, 2), ("<- now", 2, 3), ("-", 3, 3)]


def test_a_union_passes_the_revisions_of_both_inputs_on(engine: ab.Engine, ticker: ab.Stream) -> None:
    engine.sql("CREATE STREAM other (id INT, price INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    engine.sql("CREATE STREAM every AS SELECT id, price FROM ticker UNION ALL SELECT id, price FROM other")
    other = engine.stream("other")
    ticker.append([quote(1, "a", 10, 1), quote(2, "a", 20, 2)])
    other.append([{"id": 1, "price": 30, "ts": ZERO}])  # the same key in another stream: another message
    engine.advance()
    ticker.delete([1])
    other.replace([{"id": 1, "price": 31, "ts": ZERO}])
    engine.advance()
    assert buckets(engine, "every")[1] == [("<- was", 1, 30), ("<- now", 1, 31), ("-", 1, 10)]
    assert table(engine, "every") == [(1, 31), (2, 20)]


def test_a_union_of_a_stream_with_itself_revises_each_part_by_itself(engine: ab.Engine, ticker: ab.Stream) -> None:
    engine.sql("""CREATE STREAM sides AS
        SELECT 'bid' AS side, price FROM ticker UNION ALL SELECT 'ask' AS side, price + 1 AS price FROM ticker""")
    ticker.append([quote(1, "a", 10, 1)])
    engine.advance()
    ticker.replace([quote(1, "a", 20, 1)])
    engine.advance()
    said = buckets(engine, "sides")[1]
    assert sorted((said[:2], said[2:])) == [
        [("<- was", "ask", 11), ("<- now", "ask", 21)],
        [("<- was", "bid", 10), ("<- now", "bid", 20)],
    ]


# 3.2: boxes with state.


def test_a_join_revises_every_pair_that_a_message_is_in(engine: ab.Engine, ticker: ab.Stream) -> None:
    engine.sql("CREATE STREAM trades (no INT, symbol STRING, n INT, ts TIMESTAMP) EVENT TIME ts KEY (no)")
    engine.sql("""CREATE STREAM values AS SELECT no, id, n * price AS value
        FROM ticker JOIN trades ON ticker.symbol = trades.symbol WITHIN '10 minutes'""")
    trades = engine.stream("trades")
    trades.append([{"no": n, "symbol": "a", "n": n, "ts": ZERO + timedelta(minutes=5)} for n in (1, 2)])
    ticker.append([quote(1, "a", 10, 1), quote(2, "a", 20, 2), quote(3, "b", 30, 3)])
    engine.advance()
    ticker.replace([quote(1, "a", 11, 1)])
    engine.advance()
    ticker.replace([quote(1, "b", 11, 1), quote(3, "a", 30, 3)])  # one leaves its partners, one finds some
    engine.advance()
    ticker.replace([quote(3, "a", 30, 60)])  # out of the band
    trades.delete([2])
    engine.advance()
    said = [sorted(bucket) for bucket in buckets(engine, "values")]
    assert said == [
        [("+", 1, 1, 10), ("+", 1, 2, 20), ("+", 2, 1, 20), ("+", 2, 2, 40)],
        [("<- now", 1, 1, 11), ("<- now", 2, 1, 22), ("<- was", 1, 1, 10), ("<- was", 2, 1, 20)],
        [("+", 1, 3, 30), ("+", 2, 3, 60), ("-", 1, 1, 11), ("-", 2, 1, 22)],
        [("-", 1, 3, 30), ("-", 2, 2, 40), ("-", 2, 3, 60)],
    ]
    assert table(engine, "values") == [(1, 2, 20)]


def test_a_replacement_under_15_minutes_advancing_by_5_gives_up_to_3_revisions(
    engine: ab.Engine, ticker: ab.Stream
) -> None:
    window = "FROM ticker <VISIBLE '15 minutes' ADVANCE '5 minutes'>"
    engine.sql(f"CREATE STREAM sums AS SELECT sum(price) AS s, cq_close(*) AS t {window}")
    engine.sql(f"CREATE STREAM tops AS SELECT max(price) AS m, cq_close(*) AS t {window}")
    ticker.append([quote(1, "a", 1, 12), quote(2, "a", 5, 3), quote(9, "a", 100, 60)])
    engine.advance()
    ticker.replace([quote(1, "a", 3, 12)])
    engine.advance()
    said = [(kind, value, minute_of(t)) for kind, value, t in buckets(engine, "sums")[1]]
    assert said == [
        ("<- was", 6, 15),  # windows of 0 to 15, 5 to 20 and 10 to 25; the first one holds the quote of minute 3 too
        ("<- now", 8, 15),
        ("<- was", 1, 20),
        ("<- now", 3, 20),
        ("<- was", 1, 25),
        ("<- now", 3, 25),
    ]
    tops = [(kind, value, minute_of(t)) for kind, value, t in buckets(engine, "tops")[1]]
    assert tops == [("<- was", 1, 20), ("<- now", 3, 20), ("<- was", 1, 25), ("<- now", 3, 25)], (
        "up to 3: the maximum of the first window is 5, before and after"
    )


def test_insertions_and_deletions_revise_the_windows_that_they_are_in(engine: ab.Engine, ticker: ab.Stream) -> None:
    engine.sql("""CREATE STREAM sums AS SELECT symbol, sum(price) AS s, cq_close(*) AS t
        FROM ticker <SLICES '10 minutes'> GROUP BY symbol""")
    ticker.append([quote(1, "a", 1, 1), quote(2, "a", 2, 2), quote(3, "b", 4, 3), quote(9, "z", 0, 60)])
    engine.advance()
    ticker.append([quote(4, "a", 8, 4)])  # late
    ticker.delete([3])  # the last one in its window: a window in which no message is left yields none
    engine.advance()
    ticker.replace([quote(2, "a", 2, 22)])  # from one window into another
    engine.advance()
    said = [[(*message[:3], minute_of(message[3])) for message in bucket] for bucket in buckets(engine, "sums")[1:]]
    assert said == [
        [("<- was", "a", 3, 10), ("<- now", "a", 11, 10), ("-", "b", 4, 10)],
        [("<- was", "a", 11, 10), ("<- now", "a", 9, 10), ("+", "a", 2, 30)],
    ]


# 3.1 and 3.2: diagrams.


def test_each_box_takes_the_revisions_of_the_one_before(engine: ab.Engine, ticker: ab.Stream) -> None:
    engine.sql("""
        CREATE STREAM dear AS SELECT symbol, price, ts FROM ticker WHERE price > 0;
        CREATE STREAM five AS SELECT symbol, max(price) AS m, cq_close(*) AS t
        FROM dear <SLICES '5 minutes'> GROUP BY symbol;
        CREATE STREAM many AS SELECT m, count(*) AS c FROM five GROUP BY m;
    """)
    ticker.append([quote(1, "a", 1, 1), quote(2, "b", 2, 2), quote(3, "b", 2, 7), quote(9, "z", 0, 60)])
    ticker.punctuate(ZERO + timedelta(minutes=60))
    engine.advance()
    ticker.replace([quote(1, "a", 2, 1)])
    engine.advance()
    ticker.replace([quote(1, "a", -1, 1)])
    engine.advance()
    assert [row[1:3] for row in buckets(engine, "dear")[1]] == [("a", 1), ("a", 2)]
    assert [row[:3] for row in buckets(engine, "five")[1]] == [("<- was", "a", 1), ("<- now", "a", 2)]
    assert buckets(engine, "many") == [
        [("+", 1, 1), ("+", 2, 2)],
        [("-", 1, 1), ("<- was", 2, 2), ("<- now", 2, 3)],
        [("<- was", 2, 3), ("<- now", 2, 2)],
    ]


def test_only_effects_of_revisions_are_said(engine: ab.Engine, ticker: ab.Stream) -> None:
    """The closed model: of a hundred groups only those are said whose answer a revision has changed."""
    engine.sql("CREATE STREAM totals AS SELECT symbol, sum(price) AS s FROM ticker GROUP BY symbol")
    ticker.append([quote(n, f"s{n % 100}", 1, n) for n in range(300)])
    engine.advance()
    ticker.replace([quote(7, "s7", 5, 7)])
    engine.advance()
    ticker.replace([quote(8, "s8", 1, 9), quote(9, "s9", 2, 9), quote(109, "s9", 0, 109)])  # 2 + 0 is 1 + 1
    ticker.replace([quote(10, "s10", 2, 10)])
    engine.advance()
    assert buckets(engine, "totals")[1:] == [
        [("<- was", "s7", 3), ("<- now", "s7", 7)],
        [("<- was", "s10", 3), ("<- now", "s10", 4)],
    ]
