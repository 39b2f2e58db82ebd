"""What happened, one line for each event, and how often what matters happened."""

from __future__ import annotations

import hashlib
from collections import Counter

from anabranch.lab.simulation import SECOND


class Trace:
    """Lines are kept only if asked for; counts always are."""

    def __init__(self, keep: bool) -> None:
        self.keep = keep
        self.lines: list[str] = []
        self.transitions: Counter[str] = Counter()
        self.rules: Counter[int] = Counter()

    def note(self, now: int, who: str, what: str, about: str, detail: str) -> None:
        if what == "state":
            self.transitions[detail.replace(" ", " -> ")] += 1
        elif what == "rule":
            self.rules[int(detail)] += 1
        if self.keep:
            self.line(now, who, f"{what} {about} {detail}".rstrip())

    def line(self, now: int, who: str, text: str) -> None:
        if self.keep:
            self.lines.append(f"{now / SECOND:11.6f} {who:<8} {text}")

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()
