"""The law of zeros: no stream, table or change has -0.0, on whatever path a value came, in both kernels.

Rows come by every door: appended, as a DataFrame, by reference; with deletions, of which one takes the other zero
away; and expressions make zeros with a sign of their own. Every answer is that of one Spark batch over
the rows whose zeros have none.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from tests.engine.test_reach_of_steps import ZERO
from tests.unit.test_zeros import signed

WINDOWED = "window(ts, '10 minutes')"
QUERIES = {
    "plain": ("SELECT k, d, -d AS e, f, xs, CAST(d AS STRING) AS t FROM z", None),
    "few": ("SELECT k, -abs(d) AS e FROM z WHERE d = 0", None),
    "by_zero": ("SELECT d, -d AS e, count(*) AS c FROM z <SLICES '10 minutes'> GROUP BY d",
                f"SELECT d, -d AS e, count(*) AS c FROM z GROUP BY d, {WINDOWED}"),
    "measures": ("SELECT k, min(d) AS a, max(-d) AS b, sum(d) AS s, -sum(d) AS n, avg(-d) AS m, count(DISTINCT d) AS c"
                 " FROM z <SLICES '10 minutes'> GROUP BY k",
                 "SELECT k, min(d) AS a, max(-d) AS b, sum(d) AS s, -sum(d) AS n, avg(-d) AS m, count(DISTINCT d) AS c"
                 f" FROM z GROUP BY k, {WINDOWED}"),
    "ends": ("SELECT k, first(-d) AS a, last(-f) AS b FROM z <SLICES '10 minutes'> GROUP BY k",
             f"SELECT k, min_by(-d, ts) AS a, max_by(-f, ts) AS b FROM z GROUP BY k, {WINDOWED}"),
    "running": ("SELECT k, -max(abs(d)) AS a FROM z GROUP BY k", None),
    "joined": ("SELECT z.k, -o.v AS v, z.d FROM z JOIN o ON z.d = o.v", None),
    "best": ("SELECT k, -d AS e FROM z QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts) <= 1", None),
}  # fmt: skip


def row(k: str, d: float | None, second: float) -> dict[str, Any]:
    return {"k": k, "d": d, "f": d, "xs": [d], "ts": ZERO + timedelta(seconds=second)}


@pytest.mark.parametrize("kernel", ["spark", "auto"])
def test_no_zero_has_a_sign(warm_spark: Any, tmp_path: Path, kernel: str) -> None:
    with ab.connect(tmp_path / "w", kernel=kernel) as engine:
        engine.sql("CREATE STREAM z (k STRING, d DOUBLE, f FLOAT, xs ARRAY<DOUBLE>, ts TIMESTAMP) EVENT TIME ts")
        engine.sql("CREATE STREAM o (id INT, v DOUBLE, ts TIMESTAMP) EVENT TIME ts KEY (id)")
        for name, (ours, _) in QUERIES.items():
            engine.sql(f"CREATE STREAM {name} AS {ours}")
        z, o = engine.stream("z"), engine.stream("o")
        first = [row("a", -0.0, 1), row("a", 0.0, 2), row("b", -0.0, 3), row("c", 1.5, 4), row("c", None, 5)]
        z.append(first)
        o.append([{"id": 1, "v": -0.0, "ts": ZERO}, {"id": 2, "v": 1.5, "ts": ZERO}])
        engine.advance()
        second = [row("a", -0.0, 6), row("d", -0.0, 7)]
        schema = z.state().spec.schema.arrow
        z.append(engine.spark.createDataFrame(pa.Table.from_pylist(second, schema)))
        third = [row("b", 0.0, 8), row("e", -0.0, 9)]
        pq.write_table(pa.Table.from_pylist(third, schema), tmp_path / "more.parquet")
        z.load(tmp_path / "more.parquet")
        engine.advance()
        check(engine, [*first, *second, *third])
        gone = [row("a", 0.0, 1), row("b", -0.0, 8)]  # each was told with the other sign
        z.append([{**r, "_change_type": "delete"} for r in gone])
        z.punctuate(ZERO + timedelta(hours=1))
        engine.advance()
        left = [r for r in [*first, *second, *third] if r not in gone]
        check(engine, left, closed=True)
        assert not signed([tuple(r) for r in z.read().collect()])
        source = engine.spark.read.format("anabranch").option("warehouse", str(engine.warehouse))
        assert not signed([tuple(r) for r in source.load("z").select("k", "d", "f", "xs").collect()])
        for text in ("SELECT d, f, xs FROM z", "SELECT * FROM measures"):
            found = engine.sql(text)
            assert found is not None
            assert not signed([tuple(r) for r in found.collect()])


def check(engine: ab.Engine, rows: list[dict[str, Any]], *, closed: bool = False) -> None:
    unsigned = [{**r, "d": none_or(r["d"]), "f": none_or(r["f"]), "xs": [none_or(r["d"])]} for r in rows]
    spark = engine.spark
    schema = engine.stream("z").state().spec.schema.arrow
    spark.createDataFrame(pa.Table.from_pylist(unsigned, schema)).createOrReplaceTempView("z")
    spark.createDataFrame([(1, 0.0), (2, 1.5)], "id INT, v DOUBLE").createOrReplaceTempView("o")
    for name, (ours, batch) in QUERIES.items():
        for include_open in (False, True):
            table = [tuple(r) for r in engine.table(name, include_open=include_open).drop("_open").collect()]
            assert not signed(table), f"the table of {name}"
            if closed or include_open or "SLICES" not in ours:
                expected = [tuple(r) for r in spark.sql(batch or ours).collect()]
                assert Counter(map(repr_unsigned, table)) == Counter(map(repr_unsigned, expected)), name
        changes = [tuple(r) for r in engine.changes(name).collect()]
        assert not signed(changes), f"the changes of {name}"


def none_or(value: float | None) -> float | None:
    return None if value is None else value + 0.0


def repr_unsigned(row: tuple[Any, ...]) -> str:
    """A row as text; what an expression of the batch makes of a zero may have a sign, which equality does not see."""
    return repr(tuple(v + 0.0 if isinstance(v, float) else v for v in row))
