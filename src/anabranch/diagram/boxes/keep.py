"""Keep: what comes out of a box goes into a log of its own, so that boxes above can read it again.

It changes nothing. A box that must look at earlier rows when a new one comes (a Join, a top-n, an Aggregate
over a Join) reads streams; where its input is the answer of another such box, that answer becomes a
stream too, which has no name that people could use.

Where the answer comes from partial results, its history can be left *upstream*: then the log holds only what readers
have not taken yet, and what must be read again is computed again from the partial results (BOREALIS 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box


@dataclass(frozen=True)
class Keep(Box):
    input: Box
    upstream: bool = False
