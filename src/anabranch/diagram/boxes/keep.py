"""Keep: what comes out of a box goes into a log of its own, so that boxes above can read it again.

It changes nothing. A box that must look at earlier rows when a new one comes (a Join, a top-n, an Aggregate
over a Join) reads streams; where its input is the answer of another such box, that answer becomes a
stream too, which has no name that people could use.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box


@dataclass(frozen=True)
class Keep(Box):
    input: Box
