"""Join: every pair of rows is looked at.

A row of a Join has the columns of both sides under their sides' names, `l.a`, and those that only one side has
also under their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.view import View
from anabranch.reference.closures import Evaluate
from anabranch.reference.expressions import compile_expression
from anabranch.reference.rows import WeightedRow
from anabranch.reference.values import Value


def columns_seen(box: Box) -> tuple[str, ...]:
    """What an expression over a box can name."""
    below = box
    while isinstance(below, Filter | View):
        below = below.input
    if not isinstance(below, Join):
        return box.columns
    qualified = [f"{side.name}.{column}" for side in below.sides for column in side.columns]
    return (*qualified, *(column for _, column in below.alone))


def join(
    box: Join, left: Sequence[WeightedRow], right: Sequence[WeightedRow], progress: int | None, include_open: bool
) -> list[WeightedRow]:
    """The pairs that match, and the left rows without a partner whose band has passed, if those are wanted."""
    on = None if box.on is None else compile_expression(box.on, columns_seen(box))
    bounds = _bounds(box)
    said: list[WeightedRow] = []
    for mine in left:
        partners = [pair(box, mine, other) for other in right]
        found = [
            both
            for both, other in zip(partners, right, strict=True)
            if _in_band(box, bounds, mine, other, both) and (on is None or on(both.values) is True)
        ]
        said += found
        if box.outer and not found and (include_open or _passed(box, bounds, mine, progress)):
            said.append(pair(box, mine, None))
    return said


def progress_of(box: Join, reached: int | None) -> int | None:
    """A left row may still be said without a partner until its band has passed."""
    late = box.within if box.outer and box.within is not None else 0
    return None if reached is None else reached - late


def pair(box: Join, left: WeightedRow, right: WeightedRow | None) -> WeightedRow:
    """A left row and a right one, or nothing beside it, as a row of the Join."""
    values: dict[str, Value] = {}
    if len(box.sides) == 2:
        values |= {f"{box.sides[0].name}.{name}": value for name, value in left.values.items()}
    else:
        values |= {name: value for name, value in left.values.items() if "." in name}
    side = box.sides[-1]
    values |= {f"{side.name}.{name}": None if right is None else right.values[name] for name in side.columns}
    values |= {column: values[f"{name}.{column}"] for name, column in box.alone}
    times = [row.event_time for row in (left, right) if row is not None and row.event_time is not None]
    return WeightedRow(values, max(times, default=None))


def _bounds(box: Join) -> tuple[Evaluate, Evaluate] | None:
    if box.between is None:
        return None
    seen = columns_seen(box)
    return compile_expression(box.between.low, seen), compile_expression(box.between.high, seen)


def _in_band(
    box: Join, bounds: tuple[Evaluate, Evaluate] | None, left: WeightedRow, right: WeightedRow, pair: WeightedRow
) -> bool:
    if box.within is not None:
        if left.event_time is None or right.event_time is None:
            return False
        return abs(left.event_time - right.event_time) <= box.within
    if bounds is None or box.between is None:
        return True
    low, high = (bound(pair.values) for bound in bounds)
    bounded = right.event_time if box.between.of_left else left.event_time
    return None not in (low, high, bounded) and low <= bounded <= high


def _passed(box: Join, bounds: tuple[Evaluate, Evaluate] | None, left: WeightedRow, progress: int | None) -> bool:
    if not box.banded:
        return True
    end = left.event_time
    if bounds is not None and box.between is not None and box.between.of_left:
        end = bounds[1](pair(box, left, None).values)
        if end is None:
            return True
    if progress is None or end is None:
        return False
    return int(end) + (box.within or 0) < progress
