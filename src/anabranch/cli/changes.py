"""How changes look: what is new, what was revised and what was taken back, told apart at a glance.

An insertion is `+` and green, a revision is `~` and yellow and says what was and what is now, a deletion is `-`
and red. What is only tentative has a `?` and is dim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from anabranch.cli.values import Row, value_text
from anabranch.model.run import ChangeType, Stability

_LOOKS = {"insert": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}
Cell = tuple[str, str]  # a text and its style


@dataclass(frozen=True)
class Change:
    """One change: a row, or the two images of one."""

    before: Row | None
    after: Row | None
    word: str

    @property
    def said(self) -> Row:
        row = self.before if self.after is None else self.after
        assert row is not None
        return row

    @property
    def tentative(self) -> bool:
        return bool(self.said["_stability"] == Stability.TENTATIVE)


def paired(rows: Sequence[Row]) -> Iterator[Change]:
    """Changes from the rows of a feed: the two images of a revision follow each other there."""
    before = None
    for row in rows:
        kind = row["_change_type"]
        if before is not None and kind != ChangeType.UPDATE_POSTIMAGE:
            yield Change(before, None, "delete")
            before = None
        if kind == ChangeType.UPDATE_PREIMAGE:
            before = row
        elif kind == ChangeType.UPDATE_POSTIMAGE:
            # A row that replaces another by its key comes alone: the feed does not say what was.
            yield Change(before, row, "update")
            before = None
        elif kind == ChangeType.DELETE:
            yield Change(row, None, "delete")
        else:
            yield Change(None, row, "insert")
    if before is not None:
        yield Change(before, None, "delete")


def lines(changes: Sequence[Change], columns: Sequence[str]) -> list[Text]:
    """A line for each change, with their columns under each other where they are of one kind."""
    cells = [[_cell(change, column) for column in columns] for change in changes]
    widths: dict[tuple[str, int], int] = {}
    for change, row in zip(changes, cells, strict=True):
        for at, (text, _) in enumerate(row):
            widths[change.word, at] = max(widths.get((change.word, at), 0), len(text))
    return [
        _line(change, row, [widths[change.word, at] for at in range(len(row))])
        for change, row in zip(changes, cells, strict=True)
    ]


def _line(change: Change, cells: Sequence[Cell], widths: Sequence[int]) -> Text:
    sign, colour = _LOOKS[change.word]
    mark = "?" if change.tentative else " "
    made = Text.assemble((f"{sign}{mark} {change.word}", colour))
    for (text, style), width in zip(cells, widths, strict=True):
        made.append("  ")
        made.append(text, style)
        made.append(" " * (width - len(text)))
    made.rstrip()
    if change.tentative:
        made.stylize("dim")
    return made


def _cell(change: Change, column: str) -> Cell:
    now = value_text(change.said[column])
    if change.before is None or change.after is None or change.before[column] == change.after[column]:
        return f"{column}={now}", "red" if change.word == "delete" else ""
    return f"{column} was {value_text(change.before[column])} -> now {now}", "bold yellow"
