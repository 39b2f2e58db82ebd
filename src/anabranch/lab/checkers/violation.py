"""A broken promise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    checker: str
    detail: str

    def __str__(self) -> str:
        return f"{self.checker}: {self.detail}"
