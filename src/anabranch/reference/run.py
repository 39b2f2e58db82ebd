"""The whole: what a diagram has said, given all rows of its streams and how far they have come.

Nothing is incremental. Every box is computed from scratch, inputs first, from all that its inputs have said, so
what comes out cannot depend on the order in which rows came or on how they were cut into runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.apply import Apply
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Consolidate
from anabranch.diagram.boxes.sort import Sort
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.boxes.topn import TopN
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.model.errors import AnabranchError
from anabranch.reference import applying, counting, grouping, joining, linear, ranking
from anabranch.reference.linear import Tables
from anabranch.reference.rows import Identity, WeightedRow, identity_of, place

ProgressOf = Mapping[str, int | None]


class Said(NamedTuple):
    """The rows that a box has said, as a multiset, each of weight +1; and its progress."""

    rows: list[WeightedRow]
    progress: int | None


def answer(box: Box, tables: Tables, progress: ProgressOf, include_open: bool = False) -> Said:
    """What a diagram has said, by event time and then its columns; with `include_open`, open windows too."""
    said = _run(box, tables, progress, include_open)
    return Said(sorted(said.rows, key=lambda row: row.order), said.progress)


def identified(
    box: Box, tables: Tables, progress: ProgressOf, include_open: bool = False
) -> list[tuple[Identity, WeightedRow]]:
    """The rows of the answer, each with what it is about, by event time and then that.

    It is the window and keys of the outermost aggregate, also where a Map above has renamed or dropped them,
    with the number of the part in front where a Union is above; the whole row where there is no aggregate.
    """
    said = _run(box, tables, progress, include_open)
    pairs = [(identity_of(row), row) for row in said.rows]
    return sorted(pairs, key=lambda pair: place(*pair))


def _run(box: Box, tables: Tables, progress: ProgressOf, include_open: bool) -> Said:
    def run(upstream: Box) -> Said:
        return _run(upstream, tables, progress, include_open)

    match box:
        case Source():
            return Said(linear.source(box, tables), progress.get(box.stream))
        case View() | Keep():
            return run(box.input)
        case Filter():
            rows, reached = run(box.input)
            return Said(linear.filter_rows(box, rows), reached)
        case Split():
            rows, reached = run(box.input)
            return Said(linear.split_rows(box, rows), reached)
        case Sort():
            rows, reached = run(box.input)
            return Said(linear.passed(rows, reached, include_open), reached)
        case Counts():
            rows, reached = run(box.input)
            return Said(counting.windows(box, rows, reached, include_open), reached)
        case Map():
            rows, reached = run(box.input)
            return Said(linear.map_rows(box, rows), reached)
        case Union():
            parts = [run(part) for part in box.parts]
            return Said(linear.union(box, [part.rows for part in parts]), _least([part.progress for part in parts]))
        case Join():
            left, right = (run(part) for part in box.parts)
            reached = _least([left.progress, right.progress])
            said = joining.join(box, left.rows, right.rows, reached, include_open)
            return Said(said, joining.progress_of(box, reached))
        case Apply():
            rows, reached = run(applying.as_aggregate(box))
            return Said(applying.rows(box, rows), reached)
        case TopN():
            rows, reached = run(box.input)
            return Said(ranking.top(box, rows), reached)
        case Aggregate():
            rows, reached = run(box.input)
            said = grouping.aggregate(box, rows, reached, include_open)
            return Said(said, grouping.progress_of(box.window, reached))
        case Consolidate():
            rows, reached = run(box.input.input)
            said = grouping.consolidate(box, grouping.partials(box.input, rows), reached, include_open)
            return Said(said, grouping.progress_of(box.window, reached))
    raise AnabranchError(
        "NOT_SUPPORTED",
        place="reference executor",
        need="rows that come out of it",
        got=type(box).__name__,
        next_step="Partial results are no rows: ask for the Consolidate box above them.",
    )


def _least(reached: Sequence[int | None]) -> int | None:
    """The minimum; unknown if any is."""
    known = [progress for progress in reached if progress is not None]
    return min(known) if len(known) == len(reached) else None
