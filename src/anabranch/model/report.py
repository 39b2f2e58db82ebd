"""What a benchmark or an experiment says: rows of figures, claims that must hold, aims that should."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Claim:
    """A sentence with a figure that was asked for and the one that was measured."""

    claim: str
    expected: Any
    ours: Any
    holds: bool


@dataclass
class Report:
    name: str
    parameters: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    aims: list[Claim] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Without a claim nothing has been shown."""
        return bool(self.claims) and all(claim.holds for claim in self.claims)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
