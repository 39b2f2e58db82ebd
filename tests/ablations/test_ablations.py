"""Every ablation, run: exactly the checks that it names fail, and with everything on none does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ablations import engine, protocol, revisions
from tests.ablations.registry import Ablation, Setting

REGISTRY: tuple[Ablation, ...] = (*engine.ABLATIONS, *revisions.ABLATIONS, *protocol.ABLATIONS)
SETTINGS = tuple({ablation.setting.name: ablation.setting for ablation in REGISTRY}.values())


def marked(what: Any, setting: Setting) -> Any:
    return pytest.param(what, id=what.name, marks=[pytest.mark.proof] if setting.proof else [])


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    setting = request.getfixturevalue("setting") if "setting" in request.fixturenames else None
    found = setting or request.getfixturevalue("ablation").setting
    if found.spark:
        request.getfixturevalue("warm_spark")
    return tmp_path


@pytest.mark.parametrize("ablation", [marked(ablation, ablation.setting) for ablation in REGISTRY])
def test_without_it_exactly_the_named_checks_fail(
    place: Path, monkeypatch: pytest.MonkeyPatch, ablation: Ablation
) -> None:
    assert ablation.setting.broken(place, monkeypatch, ablation.off) == ablation.fails


@pytest.mark.parametrize("setting", [marked(setting, setting) for setting in SETTINGS])
def test_with_everything_on_no_check_fails(place: Path, monkeypatch: pytest.MonkeyPatch, setting: Setting) -> None:
    assert setting.broken(place, monkeypatch, None) == set()


def test_every_ablation_names_what_fails_and_is_there_once() -> None:
    names = [ablation.name for ablation in REGISTRY]
    assert len(set(names)) == len(names)
    assert all(ablation.fails for ablation in REGISTRY)
