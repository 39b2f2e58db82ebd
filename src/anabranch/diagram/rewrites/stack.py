"""An aggregate over an aggregate is one aggregate, where that is legal (TRUVISO 4.4, Figs 8 and 9).

Before: Aggregate(sum(c)) over Map(c = count) over Aggregate(count(*)) over rows.
After:  Aggregate(count(*)) over rows, on the outer window and keys.

Legal are the compositions in which the outer function merges the inner one's results: a sum of counts or
sums, a minimum of minima, a maximum of maxima. The outer windows must be made of whole inner ones, the
outer keys must be inner keys, and nothing may stand between that needs finished results: no HAVING, no
filter, no expression over a result. Otherwise the outer aggregate gathers: it waits for the inner
answers (max over count).
"""

from __future__ import annotations

import re

from anabranch.diagram.aggregates import LAWS
from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.view import View
from anabranch.diagram.expression import Named
from anabranch.diagram.rewrites.known import Known, Note, bottom_up
from anabranch.diagram.stages import boxes_of


class _Illegal(Exception):
    """Why a composition needs finished results."""


def stack(box: Box, known: Known) -> tuple[Box, list[Note]]:
    notes: list[Note] = []

    def change(box: Box) -> Box:
        if not isinstance(box, Aggregate) or not any(isinstance(b, Aggregate) for b in boxes_of(box.input)):
            return box
        said = f"{', '.join(map(str, box.calls)) or 'groups'} over an aggregate"
        try:
            merged = _merged(box)
        except _Illegal as why:
            notes.append(Note("stack", f"{said}: gathers", str(why)))
            return box
        notes.append(Note("stack", f"{said} -> {', '.join(map(str, merged.calls))}", "its partials are the inner ones"))
        return merged

    return bottom_up(box, change), notes


def _merged(outer: Aggregate) -> Aggregate:
    columns, inner = _through(outer.input)
    qualifiers = _qualifiers(outer.input)
    if outer.window is None or inner.window is None:
        if outer.window is not inner.window:
            raise _Illegal("a running aggregate and a window do not share panes")
        if not outer.keys:
            raise _Illegal("of nothing, the outer aggregate is null and the inner one may be zero")
    elif not outer.window.holds(inner.window):
        raise _Illegal(f"{outer.window} is not made of whole {inner.window}")
    return Aggregate(
        inner.input,
        outer.window,
        tuple(_key(key, columns, qualifiers, inner) for key in outer.keys),
        tuple(_call(call, columns, qualifiers, inner) for call in outer.calls),
    )


def _through(box: Box) -> tuple[dict[str, str], Aggregate]:
    """What each column of an outer aggregate's input is in terms of the inner aggregate's columns."""
    while isinstance(box, View):
        box = box.input
    if isinstance(box, Aggregate):
        return {name: name for name in box.columns}, box
    if isinstance(box, Filter):
        raise _Illegal(f"the condition {box.predicate} needs finished results")
    if not isinstance(box, Map):
        raise _Illegal("a union of results needs finished results")
    below, inner = _through(box.input)
    known = {output.name.lower(): below.get(output.expression.text.lower()) for output in box.outputs}
    return {name: below_name for name, below_name in known.items() if below_name is not None}, inner


def _qualifiers(box: Box) -> set[str]:
    """The name that may stand before a column: the view's, unless a column with fields has the same."""
    if not isinstance(box, View):
        return set()
    return {box.name.lower()} - {name.lower() for name in box.columns}


_PLAIN = re.compile(r"(?:(?P<of>`[^`]+`|\w+)\s*\.\s*)?(?P<name>`[^`]+`|\w+)")


def _column(text: str, columns: dict[str, str], qualifiers: set[str]) -> str | None:
    """The inner column that a text names; None if it is anything but a plain column."""
    found = _PLAIN.fullmatch(text.strip())
    if found is None or (found["of"] and found["of"].strip("`").lower() not in qualifiers):
        return None
    return columns.get(found["name"].strip("`").lower())


def _key(key: Named, columns: dict[str, str], qualifiers: set[str], inner: Aggregate) -> Named:
    name = _column(key.expression.text, columns, qualifiers)
    found = next((k for k in inner.keys if k.name == name), None)
    if found is None:
        raise _Illegal(f"{key.expression} is not one of the inner keys")
    return Named(key.name, found.expression)


def _call(call: Call, columns: dict[str, str], qualifiers: set[str], inner: Aggregate) -> Call:
    if call.where is not None:
        raise _Illegal(f"{call} chooses among finished results")
    name = _column(call.arguments[0].text, columns, qualifiers) if len(call.arguments) == 1 else None
    found = next((c for c in inner.calls if c.name == name), None)
    if found is None:
        raise _Illegal(f"{call} is not over a plain result of the inner aggregate")
    if LAWS[found.function].over != call.function:
        raise _Illegal(f"{call.function} over {found.function} needs finished results")
    return Call(call.name, found.function, found.arguments, found.where, call.at)
