"""Explode: each row becomes as many rows as an array of it has elements; `_item` is the element, `_place` its place."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box

EXPLODED = ("_item", "_place")


@dataclass(frozen=True)
class Explode(Box):
    input: Box
    array: str

    @property
    def columns(self) -> tuple[str, ...]:
        return EXPLODED
