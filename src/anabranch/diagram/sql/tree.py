"""The tree of a query as it was written: clauses, and between them fragments that nobody has looked into yet."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.counts import RowWindow
from anabranch.diagram.sql.fragment import Fragment
from anabranch.model.window import Window


@dataclass(frozen=True)
class Item:
    """One entry of a select list."""

    expression: Fragment
    alias: str | None
    whole: Fragment


@dataclass(frozen=True)
class WindowClause:
    window: Window | RowWindow
    said: Fragment


@dataclass(frozen=True)
class ApplyClause:
    """A function of the user's own, quoted, and the columns of the rows that it gives."""

    function: Fragment
    returns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Shape:
    """What a select makes of the rows that it reads."""

    items: tuple[Item, ...]
    window: WindowClause | None = None
    group: tuple[Fragment, ...] | None = None  # None: no GROUP BY
    having: tuple[Fragment, ...] = ()  # all of them must hold
    qualify: Fragment | None = None
    apply: ApplyClause | None = None


@dataclass(frozen=True)
class Within:
    """How far apart in event time: a duration, or the bounds of the other side's event time."""

    said: Fragment
    duration: int | None = None
    bounds: tuple[Fragment, Fragment] | None = None


@dataclass(frozen=True)
class Joined:
    """One more stream that is joined to those before it."""

    word: Fragment
    source: Fragment | Tree
    alias: str | None
    outer: bool
    on: Fragment | None
    within: Within | None
    fixed: bool = False  # whether changes of the table do not revise what was said


@dataclass(frozen=True)
class Select:
    word: Fragment  # SELECT itself, to point at
    source: Fragment | Tree  # a stream's name, or a sub-query
    alias: str | None
    joins: tuple[Joined, ...]
    where: Fragment | None
    shape: Shape


@dataclass(frozen=True)
class UnionAll:
    parts: tuple[Tree, ...]

    @property
    def word(self) -> Fragment:
        return self.parts[0].word


Tree = Select | UnionAll
