"""Source: the rows of a stream, base or derived, as its log has them."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box


@dataclass(frozen=True)
class Source(Box):
    stream: str
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names
