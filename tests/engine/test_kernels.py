"""Two kernels, one meaning: which of them computes what, and what happens where one cannot."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import anabranch as ab
from anabranch.engine import kernels
from anabranch.engine.columnar.hashes import hashed
from anabranch.engine.columnar.kernel import ColumnarKernel, Declined, Planned
from anabranch.engine.columnar.reducing import MergePartials
from anabranch.engine.columnar.saying import SayingTask
from anabranch.engine.columnar.task import MakePartials
from anabranch.engine.emit import Written
from anabranch.engine.kernel import PartialJob, PartialsWritten, SparkKernel
from anabranch.model.errors import AnabranchError
from tests.engine.test_queries import at, rows

pytest.importorskip("duckdb")
Open = Callable[[str], ab.Engine]
SUMS = """CREATE STREAM sums AS SELECT k, count(*) AS c, sum(CAST(v AS INT)) AS s, cq_close(*) AS t
    FROM s <SLICES '1 minute'> WHERE v IS NOT NULL GROUP BY k"""


@pytest.fixture
def open_with(tmp_path: Path) -> Iterator[Open]:
    """An engine with a kernel, over a warehouse of its own, with a stream in it."""
    with ExitStack() as opened:

        def open_one(kernel: str) -> ab.Engine:
            engine = opened.enter_context(ab.connect(tmp_path / kernel, kernel=kernel))
            engine.sql("CREATE STREAM s (k STRING, v STRING, ts TIMESTAMP) EVENT TIME ts")
            return engine

        yield open_one


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that have made partial results, in order; those that declined, with the reason."""
    found: list[str] = []
    _watch(ColumnarKernel.partials, MakePartials, found, monkeypatch)
    real = SparkKernel.partials

    def partials(self: SparkKernel, job: PartialJob) -> PartialsWritten:
        made = real(self, job)
        found.append("spark")
        return made

    monkeypatch.setattr(SparkKernel, "partials", partials)
    return found


@pytest.fixture
def sayings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the columnar kernel was asked to say: done, or declined and why."""
    found: list[str] = []
    _watch(ColumnarKernel.say, SayingTask, found, monkeypatch)
    return found


def _watch(plan: Callable[..., Planned], work: type, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Note what becomes of one kind of work."""
    run = ColumnarKernel.run

    def planning(self: ColumnarKernel, *args: Any) -> Planned:
        try:
            return plan(self, *args)
        except Declined as reason:
            found.append(f"declined: {reason}")
            raise

    def running(self: ColumnarKernel, planned: Sequence[Planned]) -> list[list[Written] | Declined]:
        outcomes = run(self, planned)
        for one, outcome in zip(planned, outcomes, strict=True):
            if isinstance(one.work, work):
                found.append(f"declined: {outcome}" if isinstance(outcome, Declined) else "columnar")
        return outcomes

    monkeypatch.setattr(ColumnarKernel, plan.__name__, planning)
    monkeypatch.setattr(ColumnarKernel, "run", running)


def kernels_said(engine: ab.Engine, statement: str) -> list[str]:
    drawn = engine.sql(f"EXPLAIN {statement}")
    assert drawn is not None
    lines = [row.plan for row in drawn.collect()]
    begin = lines.index("Kernels:") + 1
    return [line.strip() for line in lines[begin : lines.index("", begin)]]


def table(engine: ab.Engine, name: str) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in engine.table(name).collect()), key=repr)


def test_both_say_the_same(open_with: Open, done: list[str], sayings: list[str]) -> None:
    answers = []
    for kernel in ("spark", "columnar"):
        engine = open_with(kernel)
        engine.sql(SUMS)
        stream = engine.stream("s")
        stream.append(rows(0.5, 1.5) + rows(0.6, k=None) + rows(0.7, v="-3", k=""))
        engine.advance()
        stream.append(rows(0.1, 2.5, 0.2, v="5"))
        engine.advance()
        answers.append((table(engine, "sums"), [tuple(r)[:5] for r in engine.changes("sums").collect()]))
    assert answers[0] == answers[1]
    assert done == ["spark", "spark", "columnar", "columnar"]
    assert sayings == ["columnar", "columnar"]


def test_hashes_are_sparks(engine: ab.Engine) -> None:
    """What a result is about is one number, whichever kernel says it."""
    chance = np.random.default_rng(5)
    texts = ["", "a", "é", "x" * 31, "y" * 32, "z" * 33, "0123456789" * 11, *(chr(97 + n) * n for n in range(30))]
    whole = [0, 1, -1, 2**63 - 1, -(2**63), *chance.integers(-(2**62), 2**62, 32).tolist()]
    cells = {
        "s": pa.array([*texts, None]),
        "b": pa.array([*whole, None]),
        "i": pa.array([*(int(n) >> 33 for n in whole), None], pa.int32()),
        "t": pa.array([*(n % 2 == 0 for n in whole), None]),
        "d": pa.array([0.0, -0.0, float("nan"), float("inf"), *chance.normal(size=33).tolist(), None]),
        "f": pa.array([0.0, -0.0, float("nan"), float("inf"), *chance.normal(size=33).tolist(), None], pa.float32()),
        "y": pa.array([*(n >> 50 for n in whole), None], pa.date32()),
        "m": pa.array([*(n >> 12 for n in whole), None], pa.timestamp("us", "UTC")),
        "n": pa.array([*(Decimal(n >> 20).scaleb(-3) for n in whole), None], pa.decimal128(18, 3)),
    }
    rows = pa.table(cells)
    named = ", ".join(f"'{name}', {name}" for name in cells)
    frame = engine.spark.createDataFrame(rows)
    theirs = frame.selectExpr(f"XXHASH64(NAMED_STRUCT({named})) AS h").toArrow()["h"].to_pylist()
    assert hashed([column.combine_chunks() for column in rows.columns], rows.num_rows).to_pylist() == theirs


def test_derived_streams_and_unions(open_with: Open, done: list[str]) -> None:
    """What a query says, deletions and all, goes through the same kernel."""
    answers = []
    for kernel in ("spark", "auto"):
        engine = open_with(kernel)
        engine.sql("CREATE STREAM s2 (v STRING, k STRING, ts TIMESTAMP) EVENT TIME ts")
        engine.sql("""CREATE STREAM counts AS SELECT k, count(*) AS c, cq_close(*) AS t
            FROM s <SLICES '1 minute'> GROUP BY k REVISE WHEN old.c <> new.c""")
        engine.sql(
            "CREATE STREAM of_counts AS SELECT c % 2 AS odd, sum(c) AS s, count(*) AS n FROM counts GROUP BY odd"
        )
        engine.sql("""CREATE STREAM both AS SELECT k, count(*) AS n, max(v) AS most FROM (
            SELECT k, v FROM s WHERE k <> 'z' UNION ALL SELECT k, v FROM s2) AS u GROUP BY k""")
        for step in ([0.5, 1.5, 1.6], [0.1, 2.5], [0.2, 3.5]):
            engine.stream("s").append(rows(*step))
            engine.stream("s2").append([("9", "b", at(minute)) for minute in step])
            engine.advance()
        answers.append([table(engine, name) for name in ("counts", "of_counts", "both")])
    assert answers[0] == answers[1]
    assert "columnar" in done


def test_explain_says_which_and_why(open_with: Open) -> None:
    engine = open_with("auto")
    both = "CREATE STREAM q AS SELECT k, sum(v) AS s FROM (SELECT k, length(v) AS v FROM s) AS l GROUP BY k"
    assert kernels_said(engine, both) == [
        "Partials in all of time by k: columnar, with the boxes below it",
        "Consolidate _a0 = final(_a0) by _k0 = _k0, running: columnar, with the boxes above it",
        "all other boxes: spark",
    ]
    odd = "CREATE STREAM q AS SELECT soundex(k) AS x, count(*) AS c FROM s GROUP BY soundex(k)"
    assert kernels_said(engine, odd)[0] == "Partials in all of time by soundex(k): spark, because of SOUNDEX(k)"
    assert kernels_said(engine, "CREATE STREAM q AS SELECT k FROM s") == ["all boxes: spark"]
    engine.sql(SUMS)
    assert kernels_said(engine, "sums")[0].endswith("columnar, with the boxes below it")


def test_a_row_that_fails_is_told_by_spark(open_with: Open, done: list[str]) -> None:
    halts = []
    for kernel in ("spark", "auto"):
        engine = open_with(kernel)
        engine.sql(SUMS)
        engine.stream("s").append(rows(0.5, v="1") + rows(0.6, v="many"))
        assert engine.advance().halted == ("sums",)
        halts.append(engine.halted()["sums"])
    assert halts[0] == halts[1]
    assert '"v":"many"' in str(halts[0])
    assert done[-1].startswith("declined: ")


def test_what_spark_alone_reads(open_with: Open, done: list[str], tmp_path: Path) -> None:
    """Files of text, deletions, and rows in compacted segments."""
    engine = open_with("auto")
    engine.sql(SUMS)
    stream = engine.stream("s")
    (tmp_path / "rows.jsonl").write_text('{"k": "a", "v": "4", "ts": "2026-01-01T00:00:30Z"}\n')
    stream.load(tmp_path / "rows.jsonl")
    engine.advance()
    assert done == ["declined: files of json, or in local times", "spark"]
    stream.append([{**rows(0.5, v="4")[0], "_change_type": "delete"}])
    engine.advance()
    assert done[2:] == ["declined: deletions from a stream without a key", "spark"]


def test_compacted_segments(open_with: Open, done: list[str]) -> None:
    engine = open_with("auto")
    stream = engine.stream("s")
    for minute in range(6):
        stream.append(rows(minute, v=str(minute)))
    stream.compact()
    engine.sql(SUMS)
    engine.advance()
    assert done == ["columnar"]
    assert [row[2] for row in table(engine, "sums")] == [0, 1, 2, 3, 4]


def test_the_columnar_kernel_alone(open_with: Open) -> None:
    engine = open_with("columnar")
    with pytest.raises(AnabranchError) as caught:
        engine.sql("CREATE STREAM q AS SELECT soundex(k) AS x, count(*) AS c FROM s GROUP BY soundex(k)")
    assert caught.value.id == "NOT_SUPPORTED"
    assert caught.value.got == "SOUNDEX(k)"
    assert [state.name for state in engine._log.streams()] == ["s"]
    with pytest.raises(AnabranchError) as caught:
        open_with("fast")
    assert (caught.value.id, caught.value.got) == ("BAD_ARGUMENT", "'fast'")


def test_without_duckdb(open_with: Open, done: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "installed", lambda: False)
    engine = open_with("auto")
    engine.sql(SUMS)
    assert "not installed" in kernels_said(engine, "sums")[0]
    engine.stream("s").append(rows(0.5, 1.5))
    engine.advance()
    assert done == ["spark"]
    assert len(table(engine, "sums")) == 1


def test_a_step_has_few_jobs(open_with: Open) -> None:
    """One where nothing closes and nothing is revised, two where something is, however many queries there are."""
    engine = open_with("auto")
    for minutes in (1, 2, 3):
        engine.sql(f"""CREATE STREAM q{minutes} AS SELECT k, count(*) AS c, cq_close(*) AS t
            FROM s <SLICES '{minutes} minutes'> GROUP BY k""")
    context, stream = engine.spark.sparkContext, engine.stream("s")

    def jobs(*minutes: float) -> int:
        stream.append(rows(*minutes))
        context.setJobGroup(str(minutes), "a step")
        engine.advance()
        return len(context.statusTracker().getJobIdsForGroup(str(minutes)))

    jobs(0.1, 6.1)
    assert jobs(6.2) == 1
    assert jobs(6.3, 7.1) == 2  # one of the windows closes
    assert jobs(0.2) == 2  # those of the beginning are revised
    assert [len(table(engine, f"q{minutes}")) for minutes in (1, 2, 3)] == [2, 1, 1]


def test_many_partial_results_are_merged_where_they_are_read(open_with: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[str] = []
    _watch(ColumnarKernel.reduce, MergePartials, merged, monkeypatch)
    engine = open_with("columnar")
    engine.sql("""CREATE STREAM q AS SELECT k, count(*) AS c, sum(CAST(v AS DOUBLE)) AS s, max(v) AS m, cq_close(*) AS t
        FROM s <SLICES '1 minute'> GROUP BY k""")
    for step in range(20):
        engine.stream("s").append(rows(0.5, 1.5, v=f"0.{step}") + rows(0.1, k=None, v="2.5"))
        engine.advance()
    engine.stream("s").append(rows(9))
    engine.advance()
    assert merged == ["columnar", "columnar"]
    total = math.fsum(float(f"0.{step}") for step in range(20))
    found = [tuple(row)[:4] for row in engine.table("q").collect()]
    assert sorted(found, key=repr) == [("a", 20, total, "0.9"), ("a", 20, total, "0.9"), (None, 20, 50.0, "2.5")]


def test_a_table_is_read_by_columns(open_with: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows as Spark's, open windows told apart; a large one, of which people read a part, is Spark's."""
    asked: list[str] = []
    real = ColumnarKernel.table

    def watched(self: ColumnarKernel, *args: Any, **how: Any) -> DataFrame:
        try:
            made = real(self, *args, **how)
        except Declined as reason:
            asked.append(str(reason))
            raise
        asked.append("columnar")
        return made

    monkeypatch.setattr(ColumnarKernel, "table", watched)
    found = []
    for kernel in ("spark", "columnar"):
        engine = open_with(kernel)
        engine.sql("""CREATE STREAM q AS SELECT k, count(*) AS c, sum(CAST(v AS DOUBLE)) AS s,
            max(CAST(LENGTH(v) AS DECIMAL(9, 2))) AS d, cq_close(*) AS t
            FROM s <VISIBLE '2 minutes' ADVANCE '1 minute'> GROUP BY k HAVING count(*) < 9""")
        engine.sql("CREATE STREAM running AS SELECT count(*) AS c, max(k) AS k FROM s")
        assert engine.table("running").collect() == []  # nothing was said yet
        engine.stream("s").append(rows(0.5, 1.5, 5.5, v="0.1") + rows(0.7, k=None, v="0.2"))
        engine.advance()
        engine.sql("CREATE STREAM failing AS SELECT 6 DIV count(*) AS d, cq_close(*) AS t FROM s <SLICES '1 minute'>")
        engine.advance()
        tables = [engine.table("q"), engine.table("q", include_open=True), engine.table("running")]
        tables += [engine.table("running", include_open=True), engine.table("failing")]
        found.append([(made.schema.simpleString(), sorted(map(tuple, made.collect()), key=repr)) for made in tables])
    assert found[0] == found[1]
    assert [len(read) for _, read in found[0]] == [5, 7, 1, 1, 2]
    assert asked == [*["columnar"] * 5, "expressions that can fail"]
    monkeypatch.setattr("anabranch.engine.columnar.kernel._ROWS_AT_ONCE", 1)
    asked.clear()
    assert len(engine.table("q").collect()) == 5
    assert asked == ["a table of which people rather read a part"]


def test_what_was_never_revised_needs_no_rows_again(open_with: Open, done: list[str], sayings: list[str]) -> None:
    """The greatest of pairs is made again from what is left where one goes; until then nothing has to be."""
    engine = open_with("auto")
    engine.sql("CREATE STREAM r (k STRING, w INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql("""CREATE STREAM most AS SELECT k, max(w) AS m, cq_close(*) AS t FROM (
        SELECT a.k, b.w FROM s AS a JOIN r AS b ON a.k = b.k WITHIN '1 minute') <SLICES '1 minute'> GROUP BY k""")
    left, right = engine.stream("s"), engine.stream("r")

    def come(minute: float, w: int, **more: str) -> None:
        right.append([{"k": "a", "w": w, "ts": at(minute), **more}])
        engine.advance()

    left.append(rows(0.1, 0.2, 5))
    come(0.3, 9)
    come(5, 1)
    come(0.4, 7)
    assert (done, sayings) == (["columnar"] * 3, ["columnar"] * 3)
    assert [row.m for row in engine.table("most").collect()] == [9]
    come(0.3, 9, _change_type="delete")
    assert done[3:] == ["declined: rows that fail, or deletions that do not subtract", "spark"]
    assert [row.m for row in engine.table("most").collect()] == [7]
    come(0.4, 8)
    assert [row.m for row in engine.table("most").collect()] == [8]
    come(0.4, 8, _change_type="delete")
    come(0.4, 7, _change_type="delete")
    assert engine.table("most").collect() == []
