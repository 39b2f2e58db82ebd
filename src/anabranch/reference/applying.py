"""Apply: the function is called with the rows of each window, and each row that it gives is one of the answer."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.apply import Apply
from anabranch.diagram.boxes.counts import Counts, RowWindow
from anabranch.diagram.expression import Expression, Named
from anabranch.reference.rows import WeightedRow


def as_aggregate(box: Apply) -> Aggregate | Counts:
    """The aggregate whose result is the list of rows that the function gives."""
    keys = tuple(Named(f"_k{n}", key) for n, key in enumerate(box.keys))
    names = Expression(f"'{','.join(named.name for named in box.given)}'")
    given = tuple(named.expression for named in box.given)
    calls = (Call("_a0", "apply", (*given, names, box.function, Expression("''"))),)
    if isinstance(box.window, RowWindow):
        return Counts(box.input, box.window, keys, calls)
    return Aggregate(box.input, box.window, keys, calls)


def rows(box: Apply, groups: Iterable[WeightedRow]) -> list[WeightedRow]:
    return [
        WeightedRow({name: item.get(name) for name in box.columns}, group.event_time, group=group.group)
        for group in groups
        for item in group.values["_a0"] or ()
    ]
