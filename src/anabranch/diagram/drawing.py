"""A diagram drawn as text: boxes, the phase in which each works, gather points, and why it is so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.diagram.boxes.aggregate import Aggregate
from anabranch.diagram.boxes.apply import Apply
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.counts import Counts
from anabranch.diagram.boxes.explode import Explode
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.boxes.sort import Sort
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.boxes.topn import TopN
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.diagram.rewrites.known import Note, is_linear
from anabranch.model.time import duration_text
from anabranch.model.window import Window

_WIDTH = 78


def draw(box: Box, notes: Sequence[Note] = ()) -> list[str]:
    """The lines of a drawing: the boxes from the answer down to its sources, then what was rewritten."""
    lines = [f"{text:<{_WIDTH}}  {phase}".rstrip() for text, phase in _boxes(box, "", "")]
    if notes:
        lines += ["", "Rewrites:"]
        lines += [f"  {note.rewrite}: {note.what}; {note.why}" for note in notes]
    return lines


def headline(box: Box) -> str:
    """A box in one line."""
    return _words(box)[0]


def _boxes(box: Box, first: str, rest: str) -> Iterator[tuple[str, str]]:
    for at, line in enumerate(_words(box)):
        yield (first if at == 0 else rest) + line, _phase(box) if at == 0 else ""
    for at, part in enumerate(box.inputs):
        last = at == len(box.inputs) - 1
        yield from _boxes(part, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def _phase(box: Box) -> str:
    if isinstance(box, Partials):
        return "parallel: keeps partial results"
    if isinstance(box, Join):
        return "serial: compares new rows with those of the other side"
    if isinstance(box, Lookup):
        return "serial: finds what the table holds for new rows"
    if isinstance(box, Sort):
        return "serial: waits for progress"
    if isinstance(box, Counts):
        return "serial: numbers rows from the first that changed"
    if isinstance(box, Aggregate):
        return "serial: gathers finished results"
    if isinstance(box, Consolidate):
        return "serial: consolidates"
    if isinstance(box, Source):
        return "log"
    if isinstance(box, Keep):
        return "log: rows are computed again" if box.upstream else "log: keeps rows to be read again"
    return "parallel" if is_linear(box) else "serial"


def _words(box: Box) -> list[str]:
    match box:
        case Source():
            return [f"Source {box.stream}{', every version' if box.messages else ''}"]
        case View():
            return [f"View {box.name}"]
        case Keep():
            return ["Keep"]
        case Filter():
            return [f"Filter {box.predicate}"]
        case Lookup():
            said = f" on {box.on}" if box.on else ""
            return [f"Lookup of {box.sides[0].name} in {box.sides[1].name}{said}, without revision"]
        case Split():
            return [f"Split {', '.join(map(str, box.conditions))}: way {box.way + 1} of {len(box.conditions) + 1}"]
        case Sort():
            return ["Sort by event time"]
        case Apply():
            given = ", ".join(map(str, box.given))
            return [f"Apply {box.function} to {given}{_by([str(key) for key in box.keys])} {box.window or ', running'}"]
        case Counts():
            calls = ", ".join(f"{call.name} = {call}" for call in box.calls)
            return [f"Aggregate {calls}{_by([str(key) for key in box.keys])} {box.window}"]
        case Map():
            return [f"Map {', '.join(map(str, box.outputs))}"]
        case Union():
            return ["Union"]
        case Join():
            return [_join(box)]
        case Explode():
            return [f"Explode {box.array}"]
        case TopN():
            keys = [str(key) for key in box.keys]
            return [f"First {box.most} in order of {', '.join(map(str, box.order))}{_by(keys)}"]
        case Partials():
            pane = "all of time" if box.pane is None else f"panes of {duration_text(box.pane)}"
            keys = [str(key.expression) for key in box.keys]
            return [f"Partials in {pane}{_by(keys)}", *(f"   {call.name} = {call}" for call in box.calls)]
        case Consolidate():
            keys = [f"{name} = {inner}" for name, inner in box.keys]
            calls = ", ".join(f"{name} = final({inner})" for name, inner in box.calls)
            return [f"Consolidate {calls}{_by(keys)}{_over(box.window)}"]
        case Aggregate():
            calls = ", ".join(f"{call.name} = {call}" for call in box.calls)
            return [f"Aggregate {calls}{_by([str(key) for key in box.keys])}{_over(box.window)}"]
    raise AssertionError(f"no drawing for {type(box).__name__}")


def _join(box: Join) -> str:
    said = ("Left outer join of " if box.outer else "Join of ") + ", ".join(side.name for side in box.sides)
    said += f" on {box.on}" if box.on else ""
    if box.within is not None:
        said += f" within {duration_text(box.within)}"
    return said + (f" within {box.between.low} and {box.between.high}" if box.between else "")


def _by(keys: Sequence[str]) -> str:
    return f" by {', '.join(keys)}" if keys else ""


def _over(window: Window | None) -> str:
    return f" {window}" if window else ", running"
