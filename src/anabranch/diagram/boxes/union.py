"""Union: the rows of several inputs together, duplicates and all. Columns are matched by place."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box


@dataclass(frozen=True)
class Union(Box):
    parts: tuple[Box, ...]
