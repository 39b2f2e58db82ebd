"""How things look in the terminal: tables, errors, and the words for numbers."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import click
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from anabranch.model.errors import AnabranchError
from anabranch.model.time import instant_text

Command = Callable[..., Any]


_PIPE_WIDTH = 400
_LEAST_WIDTH = 10


def console() -> Console:
    """The terminal as it is; a fixed width where there is none, so that pipes get whole tables."""
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str | Text]], right: Sequence[str] = ()) -> Group:
    """A plain table under its title; the columns named in `right` hold numbers."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        # Where the terminal is narrow, names and times take several lines; numbers never do.
        width = max([len(column), *(len(row[index]) for row in rows)])
        made.add_column(
            column,
            justify="right" if column in right else "left",
            header_style="dim",
            overflow="fold",
            min_width=width if column in right else min(width, _LEAST_WIDTH),
        )
    for row in rows:
        made.add_row(*row)
    return Group(Text(title, style="bold"), made)


def print_error(error: AnabranchError) -> None:
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    out.print(Text.assemble(("error ", "bold red"), (error.id, "bold")))
    parts = (("where", error.place), ("need", error.need), ("got", error.got), ("next", error.next_step))
    for label, text in parts:
        out.print(Text.assemble((f"  {label:<6}", "dim"), text))


def warn(word: str, text: str) -> None:
    """Something that went wrong while the rest went on: on standard error, where scripts look for it."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text.assemble((word, "bold red"), f" {text}"))


def warn_of_halted(halted: Mapping[str, Mapping[str, str]], names: Container[str]) -> None:
    """Answers of a query that has halted are old: say so wherever they are shown."""
    for name, error in halted.items():
        if name.lower() in names:
            warn("halted", f"{name}: {error['got'].rstrip('.')}. {error['next_step']}")


class Times:
    """Points in time for people: to the second, and without the date where all share one."""

    def __init__(self, moments: Sequence[int | None]) -> None:
        days = {self._text(moment)[:10] for moment in moments if moment is not None}
        self.day = days.pop() if len(days) == 1 else None

    @property
    def heading(self) -> str:
        return f", {self.day}" if self.day else ""

    def text(self, moment: int | None) -> str:
        if moment is None:
            return ""
        whole = self._text(moment)
        return whole[11:] if self.day else whole

    def range(self, first: int | None, last: int | None) -> str:
        if first is None or last is None:
            return ""
        start, end = self._text(first), self._text(last)
        same_day = start[:10] == end[:10]
        return f"{self.text(first)} .. {end[11:] if same_day else end}"

    @staticmethod
    def _text(moment: int) -> str:
        return instant_text(moment - moment % 1_000_000).removesuffix("Z")


def count(number: int) -> str:
    return f"{number:,}"


def size(number: int) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number = number / 1000  # type: ignore[assignment]
    raise AssertionError("the last unit always returns")


def warehouse_options(command: Command) -> Command:
    """Where the warehouse is; the same two options on every command that opens one."""
    command = click.option(
        "--catalog",
        envvar="ANABRANCH_CATALOG",
        help="URL of a PostgreSQL catalog; SQLite in the warehouse if not given.",
    )(command)
    return click.option(
        "-w",
        "--warehouse",
        envvar="ANABRANCH_WAREHOUSE",
        default="warehouse",
        show_default=True,
        help="The warehouse's directory.",
    )(command)


def branch_option(command: Command) -> Command:
    """On which branch; on every command that reads or advances."""
    return click.option("--branch", metavar="NAME", help="Look at, or work on, this branch instead of main.")(command)


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")(command)
