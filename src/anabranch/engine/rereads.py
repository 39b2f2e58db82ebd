"""Which of the boxes that read rows again is computed by what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.sort import Sort
from anabranch.diagram.stages import Leaf, core
from anabranch.engine.counting import Counting
from anabranch.engine.kernel import Feed
from anabranch.engine.live import LiveQuery
from anabranch.engine.lookup import LookingUp
from anabranch.engine.pairs import Pairing
from anabranch.engine.reread import Rereading
from anabranch.engine.sorting import Sorting

if TYPE_CHECKING:
    from anabranch.engine.step import Step

_KINDS: dict[type[Box], type[Rereading]] = {Join: Pairing, Sort: Sorting, Counts: Counting, Lookup: LookingUp}


def rereading(step: Step, query: LiveQuery, feeds: Mapping[Leaf, Feed]) -> Rereading:
    """What computes a stage that reads rows again."""
    return _KINDS[type(core(query.plan))](step, query, feeds)
