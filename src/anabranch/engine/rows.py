"""Rows on their way through linear boxes: View, Filter, Map and Union as SQL.

Beside the user's columns a row carries some of ours, whose names begin with an underscore, which no column
of a user's does: its event time, its weight, and whatever else the scan put there. Boxes pass them on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.explode import EXPLODED, Explode
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.diagram.expression import Expression, Named
from anabranch.engine.guard import NO_GUARD, Guard
from anabranch.engine.relation import Relation, listed, quoted

Lower = Callable[[Box], Relation]

# What a row carries beside its columns, wherever it goes. The columns of an aggregate's own end with it.
_ENDS = ("_open", "_close", "_k", "_a")


def lower_linear(box: Box, lower: Lower, guard: Guard = NO_GUARD) -> Relation:
    """One linear box over its lowered inputs."""
    match box:
        case View():
            below = lower(box.input)
            return Relation(below.sql, below.carried, below.columns, box.name)
        case Filter() | Split():
            text = box.predicate.text
            below = guard.note(lower(box.input), [text])
            sql = f"SELECT {listed(below.names)} FROM {below.source} WHERE {guard.keeps(text)}"
            return Relation(sql, below.carried, below.columns, below.alias)
        case Map():
            return mapped(lower(box.input), box.outputs, guard, time=box.time)
        case Explode():
            below = lower(box.input)
            carried = [name for name in below.carried if not name.startswith(_ENDS)]
            sql = f"SELECT {listed(carried)}, POSEXPLODE({box.array}) AS (_at, _item) FROM {below.source}"
            placed = f"SELECT {listed(carried)}, _item, _at + 1 AS _place FROM ({sql})"
            return Relation(placed, tuple(carried), EXPLODED, below.alias)
        case Union():
            return _united([lower(part) for part in box.parts])
    raise AssertionError(f"{type(box).__name__} is not linear")


def mapped(
    below: Relation,
    outputs: Sequence[Named],
    guard: Guard = NO_GUARD,
    also: Sequence[str] = (),
    time: Expression | None = None,
) -> Relation:
    """Project; what a row carries stays, except an aggregate's own columns."""
    below = guard.note(below, [output.expression.text for output in outputs])
    kept = [name for name in below.carried if not name.startswith(_ENDS) or name in also]
    made = [f"{guard.column(o.expression.text)} AS {quoted(o.name)}" for o in outputs]
    instead = {} if time is None else {"_event_time": f"{time} AS _event_time"}
    carried = [instead.get(name, quoted(name)) for name in kept]
    sql = f"SELECT {', '.join([*carried, *made])} FROM {below.source}"
    return Relation(sql, tuple(kept), tuple(o.name for o in outputs))


def _united(parts: Sequence[Relation]) -> Relation:
    """Columns are matched by place, what rows carry by name; rows of different parts are about different things."""
    first = parts[0]
    selects = []
    for number, part in enumerate(parts):
        about = {"_of": f"IF(_of IS NULL, NULL, XXHASH64(_of, {number})) AS _of"}
        carried = [about.get(name, quoted(name)) for name in first.carried]
        selects.append(f"SELECT {', '.join([*carried, *map(quoted, part.columns)])} FROM {part.source}")
    return Relation(" UNION ALL ".join(selects), first.carried, first.columns)
