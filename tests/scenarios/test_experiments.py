"""The paper's experiments: their claims hold, and what they draw is a picture."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from anabranch.cli.main import anabranch
from anabranch.lab.experiments import EXPERIMENTS, scale
from anabranch.lab.plots import PLOTS, timeline
from anabranch.lab.swarm import run

QUICK = ("fig-7", "fig-8", "fig-11a", "fig-11b")
SLOW = tuple(name for name in EXPERIMENTS if name not in QUICK)


def lab(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(anabranch, ["lab", *words])
    return done.exit_code, done.output


@pytest.mark.parametrize("name", QUICK)
def test_quick_experiments(name: str) -> None:
    code, said = lab("run", name, "--json")
    report = json.loads(said)
    assert [claim for claim in report["claims"] if not claim["holds"]] == []
    assert code == 0
    assert set(report) >= {"name", "parameters", "rows", "claims"}


@pytest.mark.proof
@pytest.mark.parametrize("name", SLOW)
def test_all_experiments(name: str) -> None:
    report = EXPERIMENTS[name]()
    assert [claim for claim in report.claims if not claim.holds] == []
    if name in PLOTS:
        ElementTree.fromstring(PLOTS[name](report))


def test_all_that_was_asked_for_is_there() -> None:
    asked = "fig-7 fig-8 fig-11a fig-11b table-3 fig-13 fig-15 fig-16 fig-18 fig-19 fig-20 table-4 table-5 switch-time"
    assert set(asked.split()) <= set(EXPERIMENTS)
    assert {"fig-11a", "fig-11b", "fig-13", "fig-15", "fig-16", "fig-18", "fig-19", "fig-20"} <= set(PLOTS)
    code, said = lab("list", "--json")
    assert code == 0
    assert set(json.loads(said)["experiments"]) == set(EXPERIMENTS)


def test_a_picture_tells_stable_tentative_and_corrected_apart(tmp_path: Path) -> None:
    target = tmp_path / "fig.svg"
    code, said = lab("run", "fig-11a", "--plot", str(target))
    assert code == 0, said
    drawn = target.read_text()
    ElementTree.fromstring(drawn)
    for kind in ("stable", "tentative", "corrected", "rec-done"):
        assert f">{kind}<" in drawn


def test_a_small_world_of_many_nodes() -> None:
    report = scale.scale((10, 50))
    assert report.holds, report.claims


def test_a_run_is_drawn_as_a_time_line() -> None:
    ElementTree.fromstring(timeline(run(2), "world 2"))


def test_replay_and_swarm_on_the_command_line(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    code, said = lab("replay", "4", "--faults", "2", "--trace", str(trace), "--plot", str(tmp_path / "line.svg"))
    assert code == 0, said
    assert "every promise is kept" in said
    assert len(trace.read_text().splitlines()) > 1000
    code, said = lab("swarm", "--runs", "1", "--seed", "7", "--json")
    report = json.loads(said)
    assert code == 0
    assert report["parameters"]["simulated hours"] > 0
    assert {row["what"] for row in report["rows"]} >= {"STABLE -> UP_FAILURE", "Table II, row 5"}


@pytest.mark.parametrize("words", [("run", "fig-99"), ("run", "table-3", "--plot", "x.svg")])
def test_mistakes_are_told(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(anabranch, ["lab", *words])
    assert done.exception is not None
    assert getattr(done.exception, "id", None) == "BAD_ARGUMENT"
