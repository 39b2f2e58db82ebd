"""A derived stream is a view: where a query reads one, the diagram behind it takes its place (TRUVISO 4.3).

Before: Source(impsn_count).  After: View("impsn_count", the diagram of impsn_count).
So every diagram ends at base streams, and what is stored below a view is never seen under its name.
"""

from __future__ import annotations

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.view import View
from anabranch.diagram.rewrites.known import Known, Note, bottom_up


def open_views(box: Box, known: Known) -> tuple[Box, list[Note]]:
    notes: list[Note] = []

    def change(box: Box) -> Box:
        if not isinstance(box, Source) or box.stream not in known.derived:
            return box
        notes.append(Note("open views", f"{box.stream} -> its diagram", "a derived stream is a consolidating view"))
        inner, said = open_views(known.derived[box.stream], known)
        notes.extend(said)
        return View(inner, box.stream)

    return bottom_up(box, change), notes
