"""The table of states in the documents is the one in the code, and every checker is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.lab.checkers import CHECKERS
from anabranch.protocol.dpc.states import TRANSITIONS

DOCUMENT = (Path(__file__).parents[3] / "docs" / "replicas.md").read_text()


def test_states() -> None:
    names = "STABLE|UP_FAILURE|STABILIZATION|FAILURE"
    written = set(re.findall(rf"^\| ({names}) \| ([a-z ]+) \| ({names}) \|$", DOCUMENT, flags=re.MULTILINE))
    there = {
        (str(state), str(event), str(after)) for state, events in TRANSITIONS.items() for event, after in events.items()
    }
    assert written == there


def test_checkers() -> None:
    for name in CHECKERS:
        assert f"`{name}`" in DOCUMENT


def test_the_world_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = [b for b in re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL) if "WorldSpec" in b]
    exec(compile(block, "docs/replicas.md", "exec"), {})
    assert "tentative tuples" in capsys.readouterr().out
