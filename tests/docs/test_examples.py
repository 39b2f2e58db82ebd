"""Every example runs, and prints what it says that it prints."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

import anabranch as ab
from examples.boxes import BOXES
from examples.flights import live as flights
from examples.flights.feed import read
from examples.losses import live as losses

ROOT = Path(__file__).parents[2]


def test_every_box_has_its_example() -> None:
    there = {path.stem for path in (ROOT / "examples" / "boxes").glob("*.py")}
    assert there == {*BOXES, "__init__", "__main__", "play"}


@pytest.mark.proof
@pytest.mark.parametrize("box", BOXES)
def test_a_box_prints_what_its_text_says(box: str, engine: ab.Engine, capsys: pytest.CaptureFixture[str]) -> None:
    module = import_module(f"examples.boxes.{box}")
    said, _, shown = inspect.cleandoc(module.__doc__ or "").partition(f"    $ python -m examples.boxes.{box}\n")
    assert said
    module.main(engine)
    assert capsys.readouterr().out.splitlines() == inspect.cleandoc(shown).splitlines()


def told() -> Console:
    return Console(file=StringIO(), width=120)


def text(out: Console) -> str:
    assert isinstance(out.file, StringIO)
    return out.file.getvalue()


@pytest.mark.proof
def test_ten_years_of_losses_end_with_the_batch_answer(engine: ab.Engine) -> None:
    out = told()
    losses.main(engine, out)
    assert "The live tables are what one batch over the reports of 1997 says." in text(out)
    # Medical malpractice: what was believed of 1988 went from 94.0 to 58.4 in ten years.
    assert "│ 1988 │ 94.0 │ 85.3 │ 79.9  │ 76.3  │ 73.5  │ 67.5  │ 64.4  │ 59.5  │ 59.6  │ 58.4  │" in text(out)


@pytest.mark.proof
def test_a_day_of_flights_ends_with_the_batch_answer(engine: ab.Engine) -> None:
    out = told()
    flights.main(engine, out, read("2013-02-08", 1), pd.Timedelta(hours=6))
    assert "The live tables are what one batch over the final rows says." in text(out)
    counted = [int(line.split()[3].replace(",", "")) for line in text(out).splitlines() if "flights are known" in line]
    assert max(counted) > counted[-1], "some were cancelled"


def test_which_flights_can_be_said() -> None:
    asked = [sys.executable, "-m", "examples.flights", "--help"]
    done = subprocess.run(asked, cwd=ROOT, text=True, capture_output=True, timeout=120, check=True)
    assert "--days" in done.stdout
