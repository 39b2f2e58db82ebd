"""View: another diagram under a name, as a sub-query is, or a derived stream where a query reads it.

It changes nothing; its name is what columns may be qualified with, and what people see in a drawing.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box


@dataclass(frozen=True)
class View(Box):
    input: Box
    name: str
