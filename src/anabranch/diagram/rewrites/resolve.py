"""A stream with a key is the rows that are alive: of each key the latest version, unless that one deletes.

Before: Source(orders), whose log holds insertions, replacements and deletions by key.
After:  View("orders", Keep(the latest message of each key, without those that delete)).

The latest message is an aggregate as others are: its partial results are the index of live rows by key. A
deletion that comes before its row stays there as the latest message, so an older version that comes
later stays deleted, and a newer one lives.
"""

from __future__ import annotations

from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.view import View
from anabranch.diagram.expression import Expression, Named
from anabranch.diagram.rewrites.known import Known, Note, bottom_up


def resolve(box: Box, known: Known) -> tuple[Box, list[Note]]:
    notes: list[Note] = []

    def change(box: Box) -> Box:
        if not isinstance(box, Source) or box.messages or box.stream not in known.keyed:
            return box
        key = known.keyed[box.stream]
        notes.append(Note("resolve", f"{box.stream} -> its live rows by {', '.join(key.columns)}",
                          "of each key the latest version counts, whenever it came"))  # fmt: skip
        return View(Keep(_live(box, key.columns, key.event_time)), box.stream)

    return bottom_up(box, change), notes


def _live(source: Source, key: tuple[str, ...], event_time: str) -> Box:
    # Places, not names: a column may be called anything.
    row = ", ".join(f"'c{n}', `{name}`" for n, name in enumerate(source.names))
    message = Expression(f"NAMED_STRUCT('gone', _gone, 'row', NAMED_STRUCT({row}))")
    keys = tuple(Named(f"_k{n}", Expression(f"`{name}`")) for n, name in enumerate(key))
    messages = Source(source.stream, source.names, messages=True)
    latest = Aggregate(messages, None, keys, (Call("_a0", "latest", (message,)),))
    outputs = tuple(Named(name, Expression(f"_a0.row.c{n}")) for n, name in enumerate(source.names))
    time = outputs[source.names.index(event_time)].expression
    return Map(Filter(latest, Expression("NOT _a0.gone")), outputs, time)
