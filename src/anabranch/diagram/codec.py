"""Diagrams as plain values, for the catalog, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from anabranch.diagram.boxes.aggregate import Aggregate, Call
from anabranch.diagram.boxes.apply import Apply
from anabranch.diagram.boxes.counts import Counts, RowWindow
from anabranch.diagram.boxes.explode import Explode
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.join import Band, Join, Side
from anabranch.diagram.boxes.keep import Keep
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.partials import Consolidate, Partials
from anabranch.diagram.boxes.sort import Sort
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.boxes.topn import Order, TopN
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.diagram.expression import Expression, Named
from anabranch.model.window import Window

_KINDS = {
    kind.__name__: kind
    for kind in (
        Source, View, Keep, Filter, Split, Map, Union, Join, Lookup, Sort, TopN, Explode, Apply, Counts, Aggregate,
        Partials, Consolidate, Side, Band, Order, Call, Expression, Named, RowWindow, Window,
    )
}  # fmt: skip


def to_json(value: Any) -> Any:
    """A box, or a part of one, as lists, dicts and plain values."""
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    kind = type(value).__name__
    if kind not in _KINDS:
        return value
    return {"is": kind, **{f.name: to_json(getattr(value, f.name)) for f in fields(value)}}


def from_json(stored: Any) -> Any:
    if isinstance(stored, list):
        return tuple(from_json(item) for item in stored)
    if not isinstance(stored, dict):
        return stored
    values = {name: from_json(value) for name, value in stored.items() if name != "is"}
    return _KINDS[stored["is"]](**values)
