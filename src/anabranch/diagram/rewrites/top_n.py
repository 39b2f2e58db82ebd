"""The first rows of a group are an aggregate of it: of two lists of firsts, the first are among both.

Before: TopN(keys, order, 3) over rows.
After:  Map(the columns) over Explode over Aggregate(keys, top(row, 3)) over the same rows.

So what is kept of a group is a few rows, however many it has had, and a deletion makes it again from
what is left, as it does with a maximum.
"""

from __future__ import annotations

from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.explode import Explode
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.topn import Order, TopN
from anabranch.diagram.expression import Expression, Named
from anabranch.diagram.rewrites.known import Known, Note, bottom_up


def top_n(box: Box, known: Known) -> tuple[Box, list[Note]]:
    notes: list[Note] = []

    def change(box: Box) -> Box:
        if not isinstance(box, TopN):
            return box
        notes.append(Note("top n", f"the first {box.most} in order of {', '.join(map(str, box.order))} -> an aggregate",
                          "the first of two parts are among the first of each"))  # fmt: skip
        return _as_aggregate(box)

    return bottom_up(box, change), notes


def _as_aggregate(box: TopN) -> Box:
    names = box.input.columns
    # Places, not names: a column may be called anything.
    row = ", ".join(f"'c{n}', `{name}`" for n, name in enumerate(names))
    order = "".join(f"'o{n}', ({part.expression}), " for n, part in enumerate(box.order))
    item = Expression(f"NAMED_STRUCT({order}'t', _event_time, 'row', NAMED_STRUCT({row}))", box.order[0].expression.at)
    words = Expression(f"'{' '.join(map(_word, box.order))}'")
    keys = tuple(Named(f"_k{n}", key) for n, key in enumerate(box.keys))
    call = Call("_a0", "top", (item, Expression(str(box.most)), words))
    outputs = [Named(name, Expression(f"_item.row.c{n}")) for n, name in enumerate(names)]
    outputs += [Named(box.rank, Expression("_place"))] if box.rank else []
    first = Explode(Aggregate(box.input, None, keys, (call,)), "_a0")
    return Map(first, tuple(outputs), Expression("_item.t"))


def _word(order: Order) -> str:
    return ("D" if order.descending else "A") + ("L" if order.nulls_last else "F")
