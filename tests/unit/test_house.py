"""House rules, each with what to do instead."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from anabranch.model.errors import MEANINGS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "anabranch"
MODULES = sorted(SOURCE.rglob("*.py"))
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_in_the_contracts() -> None:
    layers = " ".join(CONFIG["tool"]["importlinter"]["contracts"][0]["layers"])
    packages = {p.name for p in SOURCE.iterdir() if (p / "__init__.py").exists()}
    named = set(re.findall(r"[a-z]+", layers))
    assert packages <= named, f"name {packages - named} in pyproject.toml, in the layers contract"
    no_spark = set(CONFIG["tool"]["importlinter"]["contracts"][1]["source_modules"])
    may_use_spark = {"engine", "connectors", "api", "bench"}
    missing = {f"anabranch.{p}" for p in packages - may_use_spark} - no_spark
    assert not missing, f"name {missing} in pyproject.toml, in the contract that keeps Spark out"


@pytest.mark.parametrize("module", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_modules_are_small_and_explain_themselves(module: Path) -> None:
    text = module.read_text()
    assert text.lstrip().startswith('"""'), "begin the module with what it is for"
    assert text.count("\n") <= 400, "one idea a module: split it"


@pytest.mark.parametrize("module", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_spark_is_used_through_dataframes(module: Path) -> None:
    text = module.read_text()
    assert ".rdd" not in text, "use DataFrames: RDDs do not work over Spark Connect"
    if module.name != "driver.py":
        assert "_jvm" not in text, "use public PySpark: private Java calls do not work over Spark Connect"


def test_error_ids_are_used_and_documented() -> None:
    source = "\n".join(m.read_text() for m in MODULES if m.name != "errors.py")
    docs = (ROOT / "docs" / "errors.md").read_text()
    for error, meaning in MEANINGS.items():
        assert f'"{error}"' in source, f"{error} is raised nowhere: remove it from MEANINGS"
        assert f"`{error}`" in docs, f"explain {error} in docs/errors.md"
        assert meaning in docs, f"docs/errors.md says something else about {error} than MEANINGS"


def test_every_dependency_has_its_reason() -> None:
    docs = (ROOT / "docs" / "dependencies.md").read_text()
    project = CONFIG["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values(), CONFIG["build-system"]["requires"]]
    names = {re.split(r"[\[<>=! ]", line)[0] for group in groups for line in group}
    names |= set(re.findall(r"^([\w-]+)==", (ROOT / "requirements-data.lock").read_text(), flags=re.MULTILINE))
    missing = sorted(name for name in names if f"`{name}`" not in docs)
    assert not missing, f"say in docs/dependencies.md why {missing} are there"


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-data.lock"])
def test_the_lock_names_no_host(name: str) -> None:
    lock = (ROOT / name).read_text()
    assert "://" not in lock
    assert "--index" not in lock
    assert "--hash=sha256:" in lock
