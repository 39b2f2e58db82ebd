"""Expressions in DuckDB's words: what is translated, what is not, and how work is shared out among tasks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.diagram.columnar import over_groups, over_rows
from anabranch.diagram.columnar.kinds import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, Kind, NotProven
from anabranch.engine.columnar.portions import Portion, shared_out
from anabranch.engine.columnar.task import Scans, connection

duckdb = pytest.importorskip("duckdb")
COLUMNS = {
    "i": INT, "b": BIGINT, "d": DOUBLE, "s": STRING, "m": Kind("decimal", 10, 2), "day": DATE, "ts": TIMESTAMP,
    "yes": BOOLEAN,
}  # fmt: skip


def kind_of(text: str) -> str:
    return str(over_rows(COLUMNS, "t").translate(text).kind)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("i + b", "BIGINT"),
        ("t.i * 2", "INTEGER"),
        ("I / 2", "DOUBLE"),
        ("i DIV 2", "BIGINT"),
        ("m + 1", "DECIMAL(11, 2)"),
        ("m * m", "DECIMAL(21, 4)"),
        ("m * 2", "DECIMAL(12, 2)"),
        ("coalesce(m, i)", "DECIMAL(12, 2)"),
        ("CASE WHEN yes THEN i ELSE b END", "BIGINT"),
        ("year(ts)", "INTEGER"),
        ("ts + INTERVAL 5 MINUTES", "TIMESTAMP"),
        ("s || 'x'", "VARCHAR"),
        ("1.50", "DECIMAL(3, 2)"),
        ("5000000000", "BIGINT"),
    ],
)
def test_types_are_found_as_spark_finds_them(text: str, kind: str) -> None:
    assert kind_of(text) == kind


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("other.i", "other.i, which is no plain column"),
        ("missing", "missing, which is no plain column"),
        ("s + 1", "VARCHAR together with INTEGER"),
        ("m / 2", "m / 2"),
        ("rand()", "RAND()"),
        ("TRY_CAST(s AS INT)", "TRY_CAST(s AS INT)"),
        ("'a' 'b'", "CONCAT('a', 'b')"),
        ("CAST(d AS STRING)", "CAST(d AS STRING), a cast from DOUBLE"),
        ("greatest(d, 0)", "GREATEST(d, 0)"),
        ("m * CAST(1 AS DECIMAL(38, 0))", "decimals of 40 digits"),
        ("s LIKE 'a\\\\_'", "s LIKE 'a\\\\_'"),
        ("i IN (1, 2 / i)", "i IN (1, 2 / i)"),
        ("soundex(s)", "SOUNDEX(s)"),
        ("sum(i)", "SUM(i)"),
    ],
)
def test_what_is_not_proven_says_because_of_what(text: str, because: str) -> None:
    with pytest.raises(NotProven) as caught:
        over_rows(COLUMNS, "t").translate(text)
    assert str(caught.value) == because


def test_times_of_day_need_a_zone_that_both_know() -> None:
    elsewhere = over_rows(COLUMNS, "t", utc=False)
    assert elsewhere.translate("unix_micros(ts)").kind == BIGINT
    for text in ("hour(ts)", "CAST(ts AS DATE)", "CAST(ts AS STRING)", "ts + INTERVAL 1 DAY", "date_trunc('DAY', ts)"):
        with pytest.raises(NotProven):
            elsewhere.translate(text)


def test_what_can_fail_is_looked_at_in_order() -> None:
    """DuckDB would look at the cheaper condition first, and so pass over an error."""
    found = over_rows(COLUMNS, "t").translate("10 / i > 2 AND b > 5")
    assert found.fails
    assert found.sql.startswith("(CASE ")
    with duckdb.connect() as database:
        values = "(VALUES (CAST(0 AS INTEGER), CAST(0 AS BIGINT))) AS t(i, b)"
        with pytest.raises(duckdb.Error, match="zero"):
            database.execute(f"SELECT * FROM {values} WHERE {found.sql}")
        calm = over_rows(COLUMNS, "t").translate("b > 5 AND 10 / i > 2")
        assert database.execute(f"SELECT * FROM {values} WHERE {calm.sql}").fetchall() == []


def test_sums_stay_within_their_digits() -> None:
    total = over_groups({"x": Kind("decimal", 38, 0)}).translate("SUM(x)")
    most = "CAST('" + "9" * 38 + "' AS DECIMAL(38, 0))"
    with duckdb.connect() as database:
        assert database.execute(f"SELECT {total.sql} FROM (SELECT {most} AS x)").fetchall()
        with pytest.raises(duckdb.Error):
            database.execute(f"SELECT {total.sql} FROM (SELECT {most} AS x UNION ALL SELECT {most})").fetchall()


def portion(name: str, files: int, rows: int) -> Portion:
    return Portion(0, name, "TRUE", tuple(f"{name}{n}" for n in range(files)), rows)


def test_work_is_shared_out_evenly() -> None:
    work = [portion("a", 4, 400), portion("b", 1, 100), portion("c", 3, 300)]
    shared = shared_out(work, 2, 1_000)
    assert [sum(p.rows for p in some) for some in shared] == [400, 400]
    assert [p.files for some in shared for p in some] == [("a0", "a1", "a2", "a3"), ("b0",), ("c0", "c1", "c2")]
    assert [p.files for some in shared_out(work, 1, 200) for p in some][:3] == [("a0", "a1"), ("a2", "a3"), ("b0",)]
    assert len(shared_out([portion("a", 1, 5)], 4, 100)) == 1


def test_what_several_need_is_read_once(tmp_path: Path) -> None:
    portions = {}
    for name, values in {"a": [1, 2], "b": [10, 20], "alone": [100]}.items():
        pq.write_table(pa.table({"x": values}), tmp_path / name)
        portions[name] = Portion(0, "x", "TRUE", (str(tmp_path / name),), len(values))
    wanted = ["a", "a", "b", "b", "alone", "a"]
    scans = Scans(Counter(portions[name].rows_read for name in wanted))
    found, shared = [], []
    for at, name in enumerate(wanted):
        database = connection(at % 2 == 0)
        sql = scans.sql(portions[name], database)
        shared.append("_shared" in sql)
        found.append(database.sql(f"SELECT SUM(x) FROM ({sql})").fetchall()[0][0])
    assert found == [3, 3, 30, 30, 100, 3]
    assert shared == [True, True, True, True, False, True]
    scans.close()
    for fails in (False, True):
        with pytest.raises(duckdb.CatalogException):
            connection(fails).sql("FROM _shared")
