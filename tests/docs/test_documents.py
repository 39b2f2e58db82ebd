"""Whatever the documents show happens: commands print what they say, Python blocks run."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import anabranch

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
PYTHON = [
    ROOT / "README.md",
    *(ROOT / "docs" / name for name in ("start.md", "queries.md", "connect.md", "branches.md")),
]


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def sessions() -> list[tuple[str, str]]:
    """Commands with the output that the README shows; bare ones, like `make demo`, are only named."""
    shown = []
    for block in blocks(ROOT / "README.md", "console"):
        command, _, output = block.partition("\n")
        if output:
            shown.append((command.removeprefix("$ "), output))
    return shown


@pytest.mark.proof
@pytest.mark.parametrize(("command", "output"), sessions(), ids=[c for c, _ in sessions()])
def test_the_readme_shows_what_happens(command: str, output: str, tmp_path: Path) -> None:
    program, *words = command.split()
    done = subprocess.run(
        [Path(sys.executable).with_name(program), *words],
        cwd=tmp_path, text=True, capture_output=True, timeout=120, check=False, env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip
    said = (done.stdout + done.stderr).replace(f"{tmp_path}/", "")
    assert [line.rstrip() for line in said.splitlines()] == [line.rstrip() for line in output.splitlines()]
    assert done.returncode == (2 if output.startswith("error") else 0)


@pytest.mark.parametrize("document", PYTHON, ids=lambda p: p.name)
def test_python_blocks_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_spark: Any) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(document, "python")
    assert found
    for block in found:
        exec(compile(block, str(document), "exec"), {})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_make_lists_every_target() -> None:
    listed = subprocess.run(["make"], cwd=ROOT, text=True, capture_output=True, check=True).stdout
    named = set(re.findall(r"`make ([a-z]+)`", "".join(d.read_text() for d in DOCUMENTS)))
    for target in named | {"setup", "demo", "test", "proof", "soak", "ci"}:
        assert f"make {target} " in listed


MODULES = [m.name for m in pkgutil.walk_packages(anabranch.__path__, "anabranch.") if ".migrations" not in m.name]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0
