"""Law: where the columnar kernel gives a value, it is Spark's, and where Spark raises an error, it gives none."""

from __future__ import annotations

import math
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.diagram.columnar import over_rows
from anabranch.diagram.columnar.kinds import Kind, NotProven, Typed
from anabranch.engine.columnar.portions import read_as
from anabranch.engine.columnar.task import connection
from anabranch.engine.guard import SETTINGS, fails
from anabranch.log.zeros import unsigned
from anabranch.model.schema import Schema
from tests.engine.test_kernels import done, sayings
from tests.laws.expressions import DDL, Expressions, admissible_rows, rows

__all__ = ["done", "sayings"]  # fixtures
duckdb = pytest.importorskip("duckdb")
_KINDS = {field.name: Kind.of(field.type) for field in Schema.parse(DDL, "law")}
_BATCH = 20
FAILED = "fails"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or struct.pack("d", one) == struct.pack("d", other)
    return type(one) is type(other) and one == other


class Contest:
    """Both engines over the same rows, one file of them."""

    def __init__(self, spark: SparkSession, path: Path, table: pa.Table) -> None:
        pq.write_table(unsigned(table).append_column("row", pa.array(range(table.num_rows))), path)  # as a log has it
        self.spark, self.path, self.count = spark, path, table.num_rows
        self.seen = {"expressions": 0, "not proven": 0, "values": 0, "errors in both": 0, "left to Spark": 0}

    def compare(self, texts: list[str]) -> list[str]:
        """What differs."""
        found: list[tuple[str, Typed]] = []
        for text in texts:
            try:
                found.append((text, over_rows(_KINDS, "t").translate(text)))
            except NotProven:
                self.seen["not proven"] += 1
        theirs = self._spark([text for text, _ in found])
        faults = []
        for (text, typed), (kind, values) in zip(found, theirs, strict=True):
            self.seen["expressions"] += 1
            if typed.kind != Kind.of(kind):
                faults.append(f"{text}: {typed.kind} for {kind}")
            mine = self._columnar(typed)
            faults += [f"{text}, row {at}: {a!r} for {b!r}" for at, (a, b) in enumerate(zip(mine, values, strict=True))
                       if not self._agree(a, b)]  # fmt: skip
        return faults

    def _agree(self, mine: Any, theirs: Any) -> bool:
        if mine is FAILED:
            self.seen["errors in both" if theirs is FAILED else "left to Spark"] += 1
            return True
        self.seen["values"] += 1
        return theirs is not FAILED and _same(mine, theirs)

    def _spark(self, texts: list[str]) -> list[tuple[str, list[Any]]]:
        """Types, and values or failures by row."""
        frame = self.spark.read.parquet(str(self.path)).select(*_KINDS, "row")
        frame.createOrReplaceTempView("law_of_kernels")
        chosen = [f"{fails(text)} AS f{n}, CASE WHEN {fails(text)} THEN NULL ELSE ({text}) END AS v{n}"
                  for n, text in enumerate(texts)]  # fmt: skip
        table = self.spark.sql(f"SELECT row, {', '.join(chosen)} FROM law_of_kernels AS t")
        kinds = {f.name: f.dataType.simpleString().upper() for f in table.schema}
        made = table.toArrow().sort_by("row")
        found = []
        for n in range(len(texts)):
            pairs = zip(made[f"f{n}"].to_pylist(), _plain(made[f"v{n}"]), strict=True)
            found.append((kinds[f"v{n}"], [FAILED if failed else value for failed, value in pairs]))
        return found

    def _columnar(self, typed: Typed) -> list[Any]:
        columns = ", ".join(read_as(name, kind) for name, kind in _KINDS.items())
        source = f"(SELECT {columns}, row FROM read_parquet('{self.path}')) AS t"
        value = f"SELECT {typed.sql} AS v FROM {source}"
        database = connection(typed.fails)
        try:
            return _plain(database.sql(f"{value} ORDER BY row").to_arrow_table()["v"])
        except duckdb.Error:
            assert typed.fails, f"{typed.sql} fails, and was said not to"
        found: list[Any] = []
        for row in range(self.count):
            try:
                found += _plain(database.sql(f"{value} WHERE row = {row}").to_arrow_table()["v"])
            except duckdb.Error:
                found.append(FAILED)
        return found


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Values of Python's; times as numbers, since Python has no year 10000."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    return list(column.to_pylist())


def _contest(spark: SparkSession, path: Path, seed: int, batches: int) -> dict[str, int]:
    chance = np.random.default_rng(seed)
    contest = Contest(spark, path / "rows.parquet", rows(chance, 60))
    expressions = Expressions(chance)
    for _ in range(batches):
        faults = contest.compare([expressions.any() for _ in range(_BATCH)])
        assert not faults, "\n".join(faults[:20])
    return contest.seen


def test_expressions(engine: ab.Engine, tmp_path: Path, said_at_the_end: list[str]) -> None:
    seen = _contest(engine._session.apart(SETTINGS), tmp_path, 1, 3)
    said_at_the_end.append(f"kernels, expressions: {seen}")
    assert seen["values"] > 1000
    assert seen["errors in both"] > 10


@pytest.mark.proof
def test_many_expressions(engine: ab.Engine, tmp_path: Path, said_at_the_end: list[str]) -> None:
    seen = _contest(engine._session.apart(SETTINGS), tmp_path, 2, 25)
    said_at_the_end.append(f"kernels, expressions: {seen}")
    assert seen["expressions"] > 400


def _answers(place: Path, kernel: str, queries: list[str], tables: list[pa.Table]) -> dict[str, tuple[Any, Any, Any]]:
    """What has become of each query: why it halted, its table, and what it said, in order."""
    with ab.connect(place, kernel=kernel) as engine:
        stream = engine.create_stream("t", DDL, event_time="ts")
        engine.sql(";".join(queries))
        for table in tables:
            stream.append(table)
            engine.advance()
        stream.punctuate("2026-01-02T00:00:00Z")
        engine.advance()
        names = [f"q{n}" for n in range(len(queries))]
        tables_of = {name: sorted(map(repr, engine.table(name).toArrow().to_pylist())) for name in names}
        said = {name: list(map(repr, engine.changes(name).drop("_stime").toArrow().to_pylist())) for name in names}
        return {name: (engine.halted().get(name), tables_of[name], said[name]) for name in names}


def _queries(place: Path, seed: int, many: int, done: list[str], sayings: list[str]) -> dict[str, int]:
    chance = np.random.default_rng(seed)
    mild = bool(seed % 2)
    queries = [Expressions(chance).query(f"q{n}") for n in range(many)]
    tables = [admissible_rows(chance, 40, mild=mild) for _ in range(2)]
    theirs = _answers(place / f"spark-{seed}", "spark", queries, tables)
    done.clear()
    mine = _answers(place / f"columnar-{seed}", "auto", queries, tables)
    for name, text in zip(theirs, queries, strict=True):
        assert mine[name] == theirs[name], f"seed {seed}: {text}"
    said = {f"said {kernel}": times for kernel, times in Counter(sayings).items()}
    return {"queries": many, "halted": sum(1 for halt, _, _ in mine.values() if halt), **Counter(done), **said}


def test_queries(
    engine: ab.Engine, tmp_path: Path, done: list[str], sayings: list[str], said_at_the_end: list[str]
) -> None:
    seen = _queries(tmp_path, 1, 8, done, sayings)
    said_at_the_end.append(f"kernels, queries: {seen}")
    assert seen["columnar"] >= 8
    assert seen["said columnar"] >= 8


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(2, 4))
def test_many_queries(
    engine: ab.Engine, tmp_path: Path, done: list[str], sayings: list[str], said_at_the_end: list[str], seed: int
) -> None:
    said_at_the_end.append(f"kernels, queries: {_queries(tmp_path, seed, 10, done, sayings)}")
