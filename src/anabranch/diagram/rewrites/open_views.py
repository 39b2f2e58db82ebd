"""A derived stream is a view: where a query reads one, the diagram behind it takes its place (TRUVISO 4.3).

Before: Source(impsn_count).  After: View("impsn_count", the diagram of impsn_count).
So diagrams of aggregates end at base streams, and share partial results. What took a Join or another box
that looks at earlier rows is not computed again: its answers are in a log, which is read.
"""

from __future__ import annotations

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.diagram.rewrites.known import Known, Note, bottom_up

_OPENED = (Source, View, Filter, Split, Map, Union, Aggregate)


def open_views(box: Box, known: Known) -> tuple[Box, list[Note]]:
    notes: list[Note] = []

    def change(box: Box) -> Box:
        if not isinstance(box, Source) or box.stream not in known.derived:
            return box
        if not all(isinstance(b, _OPENED) for b in known.derived[box.stream].walk()):
            notes.append(Note("open views", f"{box.stream} stays", "its answers are in a log, and are read from there"))
            return box
        notes.append(Note("open views", f"{box.stream} -> its diagram", "a derived stream is a consolidating view"))
        inner, said = open_views(known.derived[box.stream], known)
        notes.extend(said)
        return View(inner, box.stream)

    return bottom_up(box, change), notes
