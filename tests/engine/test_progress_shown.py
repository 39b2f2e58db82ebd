"""What streams, queries and tables show of their progress; the rules, value by value, are in golden."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from click.testing import CliRunner

import anabranch as ab
from anabranch.cli.main import anabranch


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 1, 1, hour, minute, tzinfo=UTC)


def test_a_union_knows_no_progress_until_both_sides_do(engine: ab.Engine) -> None:
    engine.sql(
        "CREATE STREAM a (n INT, ts TIMESTAMP) EVENT TIME ts; CREATE STREAM b (n INT, ts TIMESTAMP) EVENT TIME ts"
    )
    engine.sql("CREATE STREAM u AS SELECT n, ts FROM a UNION ALL SELECT n, ts FROM b")
    engine.sql("CREATE STREAM hourly AS SELECT count(*) AS c FROM u <SLICES '1 hour'>")
    engine.stream("a").append([(1, at(14))])
    engine.advance()
    assert engine.table("u").count() == 1
    assert (engine.stream("u").progress, engine.stream("hourly").progress) == (None, None)
    engine.stream("b").append([(2, at(12, 30))])
    engine.advance()
    assert engine.stream("u").progress == at(12, 30)
    assert engine.stream("hourly").progress == at(13).replace(hour=12, minute=59, second=59, microsecond=999_999)
    engine.stream("b").append([(3, at(15, 10))])
    engine.advance()
    assert engine.stream("u").progress == at(14)
    assert [h.progress for h in engine.stream("u").runs()][:2] == [None, int(at(12, 30).timestamp() * 1e6)]
    assert [row.c for row in engine.table("hourly").collect()] == [1]


def test_a_table_shows_none(engine: ab.Engine) -> None:
    engine.sql("CREATE STREAM sales (item STRING, n INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("CREATE TABLE prices KEY (item) AS SELECT 'a' AS item, 5 AS price")
    engine.sql("CREATE STREAM dear AS SELECT item, price FROM prices WHERE price > 3")
    engine.sql("CREATE STREAM turnover AS SELECT n * price AS t FROM sales AS s JOIN prices AS p ON s.item = p.item")
    engine.stream("sales").append([("a", 2, at(13))])
    engine.advance()
    shown = {name: engine.stream(name).progress for name in ("sales", "prices", "dear", "turnover")}
    assert shown == {"sales": at(13), "prices": None, "dear": None, "turnover": at(13)}
    answer = CliRunner().invoke(anabranch, ["streams", "--warehouse", str(engine.warehouse), "--json"])
    told = {stream["name"]: stream["progress"] for stream in json.loads(answer.output)}
    assert told == {"sales": "2026-01-01 13:00:00Z", "turnover": "2026-01-01 13:00:00Z", "prices": None, "dear": None}
    position = engine.stream("prices").state().last_position
    engine.sql("REPLACE TABLE prices AS SELECT 'a' AS item, 6 AS price")
    assert engine.stream("prices").state().last_position == position + 1, "the change, and no second promise"
