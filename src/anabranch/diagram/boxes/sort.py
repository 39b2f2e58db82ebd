"""Sort: rows in the order of their event times, each said once progress has passed it.

For clients that care for order. What comes after progress has passed its event time is late, and said at
once, as is every revision. Rows of one instant are in an order that does not depend on when they came.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box


@dataclass(frozen=True)
class Sort(Box):
    input: Box
