"""What the set-up does on machines that lack something."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("sh", "sed", "head", "id", "env", "dirname", "ln")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A PATH with next to nothing on it."""
    place = tmp_path / "bin"
    place.mkdir()
    for tool in TOOLS:
        (place / tool).symlink_to(str(shutil.which(tool)))
    return place


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def run(name: str, bare: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(shutil.which("sh")), str(ROOT / "scripts" / name)],
        env={"PATH": str(bare), **environment}, cwd=bare.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip


JAVA = "echo 'openjdk version \"17.0.1\" 2026' >&2"
SENTENCE = "Anabranch needs a Java runtime of version 17 or later"


def test_java_that_is_there_is_found(bare: Path) -> None:
    script(bare / "java", JAVA)
    assert run("java.sh", bare).returncode == 0


def test_no_java_and_no_way_to_install_it(bare: Path) -> None:
    done = run("java.sh", bare)
    assert done.returncode == 1
    assert done.stderr.startswith(SENTENCE)
    assert done.stderr.count("\n") == 1


def test_java_that_is_too_old(bare: Path) -> None:
    script(bare / "java", JAVA.replace("17.0.1", "11.0.2"))
    assert SENTENCE in run("java.sh", bare).stderr
    assert SENTENCE in run("java.sh", bare, JAVA_HOME="/nonexistent").stderr


def test_java_is_installed_where_that_is_allowed(bare: Path) -> None:
    """Debian's older package is not to be had, the newer one is; `id` says that we are root."""
    (bare / "id").unlink()
    script(bare / "id", "echo 0")
    script(bare / "new-java", JAVA)
    script(
        bare / "apt-get", f'case "$*" in *default-jre*) ln -s {bare}/new-java {bare}/java;; *17-jre*) exit 100;; esac'
    )
    done = run("java.sh", bare)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Installing a Java runtime" in done.stdout


def test_a_failing_installer_ends_in_the_sentence(bare: Path) -> None:
    script(bare / "apt-get", "exit 100")
    done = run("java.sh", bare)
    assert done.returncode == 1
    assert SENTENCE in done.stderr


def test_an_old_python_is_refused(bare: Path) -> None:
    script(bare / "old", "exit 1")
    done = run("setup.sh", bare, PYTHON="old")
    assert done.returncode == 1
    assert "needs Python 3.11 or later" in done.stderr
