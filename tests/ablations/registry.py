"""What an ablation is: one part switched off, and the checks that must fail then, by name, and no others.

A *setting* runs something with a part switched off, or with none, and names the checks that failed. With everything
on none may. A check that no ablation makes fail shows nothing, and a part that can be switched off unnoticed
is tested by nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Broken = Callable[[Path, pytest.MonkeyPatch, Any], set[str]]


@dataclass(frozen=True)
class Setting:
    """What is run: given a place and what is switched off, the names of the checks that failed."""

    name: str
    broken: Broken
    spark: bool = False  # whether it needs a session, and time
    proof: bool = False


@dataclass(frozen=True)
class Ablation:
    """A part that is switched off, as its setting does that, and the checks that fail then."""

    off: Any
    setting: Setting
    fails: frozenset[str]

    @property
    def name(self) -> str:
        return f"{self.setting.name}: {self.off if isinstance(self.off, str) else self.off.__name__}"


def without(off: Any, setting: Setting, *fails: str) -> Ablation:
    return Ablation(off, setting, frozenset(fails))
