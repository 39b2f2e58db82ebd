"""The benchmarks in small: every answer of ours is right, what a rival drops is seen, and reports have their shape."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from anabranch.bench.contest import run_apart
from anabranch.bench.crowd import STEP_US, Compared, compare, rows_of
from anabranch.bench.differing import differing
from anabranch.bench.impressions import HOUR_US, KEPT, LENGTH_US, START_US, Impressions, arrivals, made
from anabranch.bench.judge import Verdict, judged, write_truth
from anabranch.bench.questions import MOST, over_streams, question
from anabranch.cli import main as cli

pytest.importorskip("duckdb", reason="the benchmarks need it")


def report_of(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli.anabranch, ["bench", *words, "--small", "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.mark.proof
def test_late(warm_spark: Any) -> None:
    report = report_of("late")
    assert report["name"] == "late"
    assert len(report["claims"]) == 4
    assert all(claim["holds"] for claim in report["claims"])
    by_title = {row["contestant"]: row for row in report["rows"]}
    assert len(by_title) == 8
    for title, row in by_title.items():
        faults = row["rows dropped"] + row["windows wrong"] + row["windows missing"]
        assert (faults > 0) == ("10 min watermark" in title), row


@pytest.mark.proof
def test_step(warm_spark: Any) -> None:
    report = report_of("step")
    assert report["name"] == "step"
    assert [claim["ours"] for claim in report["claims"]] == [0, 0, 0]
    assert all(claim["holds"] for claim in report["claims"])
    assert len(report["rows"]) == 7


@pytest.mark.proof
def test_revise(warm_spark: Any) -> None:
    report = report_of("revise")
    assert report["name"] == "revise"
    assert [row["what"].split(",")[0] for row in report["rows"][3::2]] == [
        "banded join", "windows of rows", "replacements by key",
    ]  # fmt: skip
    assert [claim["ours"] for claim in report["claims"]] == [0, 0, 0, 0]


@pytest.mark.proof
def test_nexmark(warm_spark: Any) -> None:
    report = report_of("nexmark")
    assert report["name"] == "nexmark"
    names = ["q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q9", "q17", "q18"]
    assert [row["query"].split(",")[0] for row in report["rows"]] == names
    assert [claim["claim"] for claim in report["claims"]] == [f"{n}: rows that differ from a batch" for n in names]
    assert [claim["ours"] for claim in report["claims"]] == [0] * len(names)
    for row in report["rows"]:
        assert row["answers"] > 0, "a query that says nothing shows nothing"
        none = row["Structured Streaming"].startswith("n/a")
        assert row["its rows that differ"] == ("n/a" if none else 0), row


@pytest.mark.proof
def test_wide(warm_spark: Any) -> None:
    report = report_of("wide")
    assert report["name"] == "wide"
    assert [claim["ours"] for claim in report["claims"]] == [0, 0]
    assert [row["what"] for row in report["rows"]] == [
        "1 query over one stream", "3 queries over one stream", "6 queries over one stream", "6 queries over 4 streams",
    ]  # fmt: skip
    assert all(row["Spark jobs"] > 0 for row in report["rows"])
    assert min(report["parameters"][f"results of {where}"] for where in ("one stream", "4 streams")) > 100


@pytest.mark.proof
def test_branch(warm_spark: Any) -> None:
    report = report_of("branch")
    assert report["name"] == "branch"
    assert [claim["ours"] for claim in report["claims"]] == [0, 0, 0, 0]
    assert len(report["rows"]) == 7
    assert all(row["fork and open, ms"] > 0 and row["drop, ms"] > 0 for row in report["rows"])


@pytest.mark.proof
def test_scale(warm_spark: Any) -> None:
    report = report_of("scale")
    assert report["name"] == "scale"
    assert [row["what"] for row in report["rows"]] == ["x 1", "x 2", "x 3", "x 1, cluster of 2 workers"]
    assert [claim["ours"] for claim in report["claims"]] == [0, 0, 0, 0]
    windows = [row["windows"] for row in report["rows"]]
    assert windows[0] == windows[3]
    assert windows[2] > 2.5 * windows[0]  # as many rows in a window, however many rows


def test_no_two_questions_are_alike() -> None:
    asked = [question(number) for number in range(MOST)]
    for part in (lambda q: q.where, lambda q: q.by, lambda q: (q.size, q.advance)):
        assert len({part(one) for one in asked}) == MOST
    assert asked == [question(number) for number in range(MOST)]


def test_every_stream_is_read_by_several_queries() -> None:
    streams = [f"s{number}" for number in range(50)]
    asked = over_streams(100, streams)
    read = Counter(stream for _, rows in asked for stream in set(rows.streams))
    assert set(read) == set(streams)
    assert min(read.values()) >= 3
    assert Counter(len(rows.streams) for _, rows in asked) == {1: 60, 2: 20, 3: 20}


def test_rows_of_many_streams_meet() -> None:
    left, right = (rows_of(stream, 3, 10_000) for stream in (0, 1))
    assert left["id"] == right["id"]
    apart = np.abs(pc.subtract(*(pc.cast(t["ts"], pa.int64()) for t in (left, right))).to_numpy())
    assert 0.96 < (apart < 30_000_000).mean() < 0.995
    start = START_US + 3 * STEP_US
    late = pc.cast(left["ts"], pa.int64()).to_numpy() < start + np.arange(10_000) * (STEP_US // 10_000)
    assert 0.005 < late.mean() < 0.015


def test_the_comparison_sees_every_fault(warm_spark: Any) -> None:
    right = warm_spark.createDataFrame([(1, "a"), (1, "a"), (None, "b")], "k INT, v STRING")
    assert compare(right, right) == Compared(3, 0)
    assert compare(right.where("k = 1"), right) == Compared(3, 1)
    assert compare(right.union(right.where("k = 1")), right) == Compared(3, 2)
    assert compare(right.selectExpr("k", "upper(v) AS v"), right) == Compared(3, 6)
    assert compare(right.limit(0), right.limit(0)).faults == 1


@pytest.fixture
def impressions(tmp_path: Path) -> Impressions:
    return made(tmp_path, 6_000, 4, lambda done, of: None)


def test_impressions_are_late_as_said(impressions: Impressions, tmp_path: Path) -> None:
    table = arrivals(0, 200_000, 200_000)
    due = pa.array(START_US + LENGTH_US * i // 200_000 for i in range(200_000))
    late = pc.subtract(due, pc.cast(table["ts"], pa.int64())).to_numpy()
    assert 0 <= late.min() <= late.max() <= 24 * HOUR_US
    assert abs((late > 0).mean() - 0.055) < 0.005
    assert 0.002 < (late > HOUR_US).mean() < 0.005
    assert abs(pc.mean(pc.equal(table["kind"], KEPT)).as_py() - 1 / 3) < 0.01
    before = [Path(path).stat() for path in impressions.paths]
    assert [s.st_mtime for s in before] == sorted({s.st_mtime for s in before})
    assert made(tmp_path, 6_000, 4, lambda done, of: None) == impressions
    assert [Path(path).stat().st_ino for path in impressions.paths] == [s.st_ino for s in before]
    assert sum(pq.read_metadata(path).num_rows for path in impressions.paths) == 6_000
    assert impressions.first(3).rows == 4_500


def test_the_judge_sees_every_fault(impressions: Impressions, tmp_path: Path) -> None:
    truth = str(tmp_path / "truth.parquet")
    write_truth(impressions.paths, truth)
    right = pq.read_table(truth)
    windows = right.num_rows
    assert judged(truth, right) == Verdict(windows, 0, 0, 0)
    first = right["c"][0].as_py()
    assert judged(truth, right.slice(1)) == Verdict(windows, first, 0, 1)
    assert judged(truth, pa.concat_tables([right, right.slice(0, 1)])) == Verdict(windows, 0, 1, 0)
    other = right.slice(0, 1).set_column(3, "s", pa.array([-1], pa.int64()))
    assert judged(truth, pa.concat_tables([other, right.slice(1)])) == Verdict(windows, 0, 1, 0)
    stranger = right.slice(0, 1).set_column(1, "w", pa.array([7], pa.int64()))
    assert judged(truth, pa.concat_tables([right, stranger])) == Verdict(windows, 0, 1, 0)


def test_rows_too_few_and_too_many_are_counted(warm_spark: Any) -> None:
    def frame(*rows: tuple[int, str | None]) -> Any:
        return warm_spark.createDataFrame(list(rows), "a INT, b STRING")

    truth, none = frame((1, "x"), (1, "x"), (2, None)), frame()
    once, more = frame((1, "x"), (2, None)), frame((2, None), (1, "x"), (1, "x"), (2, None), (3, "z"))
    assert differing(truth, [truth, once, more, none]) == (3, [0, 1, 2, 3])
    assert differing(none, [none, once]) == (0, [0, 2])


def test_a_contestant_in_a_process_of_its_own(impressions: Impressions, tmp_path: Path) -> None:
    truth = str(tmp_path / "truth.parquet")
    write_truth(impressions.paths, truth)
    place = tmp_path / "place"
    place.mkdir()
    outcome = run_apart("duckdb", impressions, truth, place, lambda done, of: None)
    assert outcome.seconds > 0
    assert (outcome.verdict.dropped, outcome.verdict.wrong, outcome.verdict.missing) == (0, 0, 0)
    with pytest.raises(RuntimeError, match="duckdb ended with 1"):
        run_apart("duckdb", impressions, truth, place, lambda done, of: None)  # its place is taken
