"""What people type, and what they see when they mistype."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from anabranch.cli import main as cli
from anabranch.log.log import Log
from tests.conftest import make_spec, rows_at


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.anabranch, words)


@pytest.fixture
def place(tmp_path: Path) -> str:
    with Log(tmp_path / "w") as log:
        stream = log.create_stream(make_spec(slack="2 seconds", history="1 day"))
        for number in range(25):
            with log.unit_of_work(stream, single=True, source=f"s{number % 2}") as work:
                work.append(rows_at(number))
        log.create_stream(make_spec("empty"))
    return str(tmp_path / "w")


def test_help_everywhere() -> None:
    for words in ([], ["demo"], ["streams"], ["log"], ["bench"]):
        result = run(*words, "--help")
        assert result.exit_code == 0
        assert "Usage: " in result.output


def test_streams(place: str) -> None:
    result = run("streams", "-w", place)
    assert result.exit_code == 0
    line = next(line for line in result.output.splitlines() if line.startswith("impsns"))
    assert line.split()[:4] == ["impsns", "25", "25", "2"]
    (empty, full) = json.loads(run("streams", "-w", place, "--json").output)
    assert (empty["name"], empty["rows"], empty["progress"]) == ("empty", 0, None)
    assert (full["slack"], full["history"], full["position"]) == ("2 seconds", "1 day", 25)
    assert full["progress"] == "2026-01-01 00:00:21Z"


def test_log(place: str) -> None:
    result = run("log", "impsns", "-w", place)
    assert result.exit_code == 0
    assert "5 older not shown" in result.output
    assert len([line for line in result.output.splitlines() if " rows " in f"{line} " and "s0" in line]) == 10
    found = json.loads(run("log", "impsns", "-w", place, "-n", "2", "--json").output)
    assert [run["position"] for run in found] == [24, 25]
    assert found[1]["event_max"] == "2026-01-01 00:00:24Z"
    assert run("log", "empty", "-w", place).output == "No runs in empty.\n"


def test_mistakes_end_with_2(place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["anabranch", "log", "impsn", "-w", place])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "error UNKNOWN_STREAM"
    assert said[2] == "  need  one of empty, impsns"
    assert run("strems").exit_code == 2
    assert run("log", "impsns", "-w", place, "-n", "0").exit_code == 2
    assert run("bench", "nothing").exit_code == 2


@pytest.mark.proof
def test_the_demo_does_not_run_twice_in_one_place(place: str, warm_spark: Any, tmp_path: Path) -> None:
    result = run("demo", "-w", str(tmp_path / "demo"))
    assert result.exit_code == 0, result.output
    assert "All 24 answers of Anabranch are exact." in result.output
    dropped = next(line for line in result.output.splitlines() if line.startswith("impressions dropped"))
    assert dropped.split() == ["impressions", "dropped", "0", "1,822"]
    again = run("demo", "-w", str(tmp_path / "demo"))
    assert again.exception is not None
    assert getattr(again.exception, "id", None) == "BAD_ARGUMENT"


@pytest.mark.proof
def test_bench_log_small(warm_spark: Any) -> None:
    result = run("bench", "log", "--small", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["name"] == "log"
    assert [row["what"] for row in report["rows"]] == [
        "small durable commits",
        "append from Arrow",
        "append from a DataFrame",
        "read back",
    ]
    assert len(report["claims"]) == 4
    assert all(claim["holds"] for claim in report["claims"])
    shown = run("bench", "log", "--small")
    assert "claim holds  read back: every row is held once" in shown.output
