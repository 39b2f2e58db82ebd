"""What all boxes have in common: inputs, and the columns that come out.

A diagram is a tree of frozen boxes, so rewriting one makes a new tree and two ways of writing the same
query give equal trees. Beside its columns every row carries its event time and its weight, which no
box needs to name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Self


@dataclass(frozen=True)
class Box:
    """A node of a diagram."""

    @property
    def inputs(self) -> tuple[Box, ...]:
        found = [getattr(self, f.name) for f in fields(self) if f.name in ("input", "parts")]
        return tuple(box for value in found for box in (value if isinstance(value, tuple) else (value,)))

    def with_inputs(self, *inputs: Box) -> Self:
        """The same box on other inputs."""
        for f in fields(self):
            if f.name == "input":
                return replace(self, input=inputs[0])  # type: ignore[call-arg]
            if f.name == "parts":
                return replace(self, parts=inputs)  # type: ignore[call-arg]
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that come out."""
        return self.inputs[0].columns

    def walk(self) -> Iterator[Box]:
        """This box, then everything upstream of it."""
        yield self
        for box in self.inputs:
            yield from box.walk()
