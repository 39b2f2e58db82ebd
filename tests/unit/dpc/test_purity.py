"""Protocols reach no clock, no source of chance, no socket, no thread and no Spark; and the bans are in force."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROTOCOL = ROOT / "src" / "anabranch" / "protocol"
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACT = next(c for c in CONFIG["tool"]["importlinter"]["contracts"] if c["name"].startswith("Protocols reach"))
BANNED = set(tomllib.loads((PROTOCOL / "ruff.toml").read_text())["lint"]["flake8-tidy-imports"]["banned-api"])
MUST_NOT = {"time", "random", "secrets", "numpy", "socket", "select", "asyncio", "threading", "concurrent", "pyspark"}


def imported(module: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("module", sorted(PROTOCOL.rglob("*.py")), ids=lambda p: str(p.relative_to(PROTOCOL)))
def test_no_module_imports_what_it_must_not(module: Path) -> None:
    assert not imported(module) & (MUST_NOT | set(CONTRACT["forbidden_modules"]))


def test_the_contract_and_the_bans_name_them() -> None:
    assert set(CONTRACT["forbidden_modules"]) >= MUST_NOT
    assert BANNED >= MUST_NOT


@pytest.mark.parametrize("name", sorted(MUST_NOT))
def test_lint_refuses_them(name: str) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--stdin-filename"]
    done = subprocess.run(
        [*command, str(PROTOCOL / "dpc" / "new.py"), "-"],
        input=f"import {name}\n", text=True, capture_output=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "TID251" in done.stdout
