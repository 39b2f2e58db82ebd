"""Read: tables that Spark can read, in joins and lookups, and read again when they have changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame

import anabranch as ab
from anabranch.model.errors import AnabranchError

AT = "2026-01-01T12:00:00Z"


def test_a_table_is_read_and_read_again(engine: ab.Engine, tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("item,price\na,10\nb,20\nc,30\n")
    read = f"SELECT _c0 AS item, CAST(_c1 AS INT) AS price FROM csv.`{prices}` WHERE _c0 <> 'item'"
    engine.sql("CREATE STREAM sales (item STRING, n INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql(f"CREATE TABLE prices KEY (item) AS {read}")
    engine.sql(
        "CREATE STREAM turnover AS SELECT s.item, n * price AS t FROM sales AS s LOOKUP prices AS p ON s.item = p.item"
    )
    engine.sql("""CREATE STREAM billed AS SELECT s.item, n * price AS t
        FROM sales AS s LOOKUP prices AS p ON s.item = p.item WITHOUT REVISION""")
    engine.stream("sales").append([("a", 1, AT), ("b", 1, AT), ("z", 1, AT)])
    engine.advance()

    def table(name: str) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in engine.table(name).collect())

    assert table("turnover") == table("billed") == [("a", 10), ("b", 20)]
    position = engine.stream("prices").state().last_position
    prices.write_text("item,price\na,11\nc,30\nz,5\n")
    engine.sql(f"REPLACE TABLE prices AS {read}")
    (run,) = [r for r in engine.stream("prices").runs() if r.position > position and r.rows]
    assert run.rows == 3, "one replaced, one new, one gone; the one that stayed is not written again"
    engine.advance()
    assert table("turnover") == [("a", 11), ("z", 5)]
    assert table("billed") == [("a", 10), ("b", 20)], "what was billed was billed"
    engine.sql("""CREATE STREAM hourly AS SELECT count(*) AS c FROM
        (SELECT n FROM sales AS s JOIN prices AS p ON s.item = p.item) <SLICES '1 hour'>""")
    engine.stream("sales").append([("a", 1, "2026-01-01T13:30:00Z")])
    engine.advance()
    assert table("hourly") == [(2,)], "nobody waits for a table"


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t AS SELECT 1 AS a", "CREATE TABLE t KEY (a) SELECT 1 AS a",
        "CREATE TABLE t KEY (a) AS DROP STREAM s",
        "CREATE TABLE t KEY (b) AS SELECT 1 AS a", "CREATE TABLE t KEY (since) AS SELECT 1 AS since",
        "CREATE TABLE t KEY (a) AS SELECT 1 AS a UNION ALL SELECT 1", "REPLACE TABLE s AS SELECT 1 AS a",
    ],
)  # fmt: skip
def test_tables_that_are_refused(engine: ab.Engine, text: str) -> None:
    engine.sql("CREATE STREAM s (a INT, ts TIMESTAMP) EVENT TIME ts")
    with pytest.raises(AnabranchError) as caught:
        engine.sql(text)
    assert caught.value.id in ("SYNTAX", "UNKNOWN_COLUMN", "BAD_SCHEMA", "BAD_ARGUMENT")


def test_a_table_is_compared_to_the_microsecond_and_keeps_its_columns(engine: ab.Engine) -> None:
    def read(text: str) -> DataFrame:
        found = engine.sql(f"SELECT {text}")
        assert found is not None
        return found

    engine.create_table("p", read("1 AS k, TIMESTAMP'2026-01-01 00:00:00.000001Z' AS at"), key="k")
    engine.replace_table("p", read("1 AS k, TIMESTAMP'2026-01-01 00:00:00.000999Z' AS at"))
    (row,) = engine.table("p").selectExpr("EXTRACT(SECOND FROM at) * 1000000 AS micros").collect()
    assert row.micros == 999
    for columns in ("1 AS k", "1 AS k, current_timestamp() AS at, 2 AS more"):
        with pytest.raises(AnabranchError, match="the columns that it has: k, at"):
            engine.replace_table("p", read(columns))
