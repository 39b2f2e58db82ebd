"""Rows on their way through linear boxes, in DuckDB's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.diagram.boxes.box import Box
from anabranch.diagram.boxes.filter import Filter
from anabranch.diagram.boxes.map import Map
from anabranch.diagram.boxes.split import Split
from anabranch.diagram.boxes.union import Union
from anabranch.diagram.boxes.view import View
from anabranch.diagram.columnar import over_rows
from anabranch.diagram.columnar.expressions import Translator
from anabranch.diagram.columnar.kinds import TIMESTAMP, Kind, NotProven, quoted
from anabranch.diagram.expression import Expression

INSTANT = "_instant"  # the event time of a row, in microseconds
_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")


def times_of_utc(settings: Mapping[str, str]) -> bool:
    """Whether a query's times of day are those of UTC; NotProven where its settings change what expressions mean."""
    if settings.get("spark.sql.ansi.enabled", "true") != "true":
        raise NotProven("arithmetic without ANSI's errors")
    if settings.get("spark.sql.caseSensitive", "false") == "true":
        raise NotProven("names that differ by case")
    return settings.get("spark.sql.session.timeZone", "UTC") in _UTC


@dataclass(frozen=True)
class Rows:
    """A SELECT, the user's columns that it gives, what each row carries beside them, and the name that qualifies."""

    sql: str
    kinds: Mapping[str, Kind]
    names: tuple[str, ...]  # all columns in order, also those of which the type is not known here
    alias: str
    carried: tuple[str, ...]
    fails: bool = False
    filters: int = 0
    failing_filter: bool = False

    @property
    def source(self) -> str:
        return f"({self.sql}) AS {quoted(self.alias)}"

    def translator(self, utc: bool) -> Translator:
        return over_rows(self.kinds, self.alias, utc=utc)


def through(box: Box, rows: Rows, utc: bool) -> Rows:
    """Rows of one of a box's inputs after the box."""
    match box:
        case View():
            return replace(rows, alias=box.name)
        case Filter() | Split():
            return _filtered(rows, box.predicate, utc)
        case Map():
            return _mapped(rows, box, utc)
        case Union():
            return _renamed(rows, box.columns)
    raise NotProven(f"the box {type(box).__name__}")


def _filtered(rows: Rows, predicate: Expression, utc: bool) -> Rows:
    found = rows.translator(utc).translate(predicate.text)
    if found.kind is not None and found.kind.name != "boolean":
        raise NotProven(f"{predicate}, which is no condition")
    # The order in which DuckDB looks at several filters is its own: none of them may fail.
    if rows.filters and (found.fails or rows.failing_filter):
        raise NotProven(f"{predicate}, which can fail, beside another filter")
    return replace(
        rows,
        sql=f"SELECT * FROM {rows.source} WHERE {found.sql}",
        fails=rows.fails or found.fails,
        filters=rows.filters + 1,
        failing_filter=rows.failing_filter or found.fails,
    )


def _mapped(rows: Rows, box: Map, utc: bool) -> Rows:
    over = rows.translator(utc)
    chosen, kinds, fails = [], {}, rows.fails
    for output in box.outputs:
        try:
            found = over.translate(output.expression.text)
        except NotProven:
            continue  # it does no harm unless somebody uses it
        if found.kind is not None:
            chosen.append(f"{found.sql} AS {quoted(output.name)}")
            kinds[output.name] = found.kind
            fails = fails or found.fails
    carried = {name: quoted(name) for name in rows.carried}
    if box.time is not None:
        time = over.translate(box.time.text)
        if time.kind != TIMESTAMP:
            raise NotProven(f"{box.time}, which is no instant")
        carried[INSTANT], fails = f"EPOCH_US({time.sql}) AS {INSTANT}", fails or time.fails
    sql = f"SELECT {', '.join([*chosen, *carried.values()])} FROM {rows.source}"
    return replace(rows, sql=sql, kinds=kinds, names=box.columns, alias="_q", fails=fails)


def _renamed(rows: Rows, names: Sequence[str]) -> Rows:
    """The columns of a part of a union, matched by place."""
    pairs = [(old, new) for old, new in zip(rows.names, names, strict=True) if old in rows.kinds]
    chosen = [f"{quoted(old)} AS {quoted(new)}" for old, new in pairs]
    sql = f"SELECT {', '.join([*chosen, *map(quoted, rows.carried)])} FROM {rows.source}"
    kinds = {new: rows.kinds[old] for old, new in pairs}
    return replace(rows, sql=sql, kinds=kinds, names=tuple(names), alias="_q")
