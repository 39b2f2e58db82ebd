"""Every example runs, and prints what it says that it prints."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import pytest

import anabranch as ab
from examples.boxes import BOXES

ROOT = Path(__file__).parents[2]


def test_every_box_has_its_example() -> None:
    there = {path.stem for path in (ROOT / "examples" / "boxes").glob("*.py")}
    assert there == {*BOXES, "__init__", "__main__", "play"}


@pytest.mark.parametrize("box", BOXES)
def test_a_box_prints_what_its_text_says(box: str, engine: ab.Engine, capsys: pytest.CaptureFixture[str]) -> None:
    module = import_module(f"examples.boxes.{box}")
    said, _, shown = inspect.cleandoc(module.__doc__ or "").partition(f"    $ python -m examples.boxes.{box}\n")
    assert said
    module.main(engine)
    assert capsys.readouterr().out.splitlines() == inspect.cleandoc(shown).splitlines()
