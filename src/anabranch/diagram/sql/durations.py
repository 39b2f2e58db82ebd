"""Durations and windows in a statement: `'1 minute'`, `INTERVAL '10' SECONDS`, `<VISIBLE '15 min' ADVANCE '5 min'>`."""

from __future__ import annotations

import re

from anabranch.diagram.boxes.counts import RowWindow
from anabranch.diagram.sql.cursor import Cursor
from anabranch.diagram.sql.fragment import Fragment
from anabranch.diagram.sql.tokens import Kind
from anabranch.diagram.sql.tree import WindowClause
from anabranch.model.errors import AnabranchError
from anabranch.model.time import Duration, duration_text, duration_us
from anabranch.model.window import Window

_NEED = "a duration such as '10 seconds'"
_FORMS = "Write '10 seconds', or INTERVAL '10' SECONDS."
_WINDOWS = (
    "Write <SLICES '1 minute'>, <VISIBLE '15 minutes' ADVANCE '5 minutes'>, <VISIBLE 100 ROWS ADVANCE 10 ROWS>, "
    "or <RESAMPLE '1 minute' HOLD '5 minutes'>."
)
_MOST_ROWS = 1_000_000
# More than this is a slip; and it keeps every sum of times within what 64 bits hold.
_LONGEST_US = 36_525 * 86_400_000_000


def duration(cursor: Cursor) -> tuple[str, Fragment]:
    """A duration in words, checked, and where it stands."""
    start = cursor.at
    cursor.accept("INTERVAL")
    said = []
    if cursor.peek().kind is Kind.STRING:
        said.append(cursor.take().value)
        if re.fullmatch(r"\s*[\d.]+\s*", said[0]) and cursor.peek().kind is Kind.WORD:
            said.append(cursor.take().value)
    else:
        while cursor.peek().kind is Kind.NUMBER and cursor.peek(1).kind is Kind.WORD:
            said += [cursor.take().value, cursor.take().value]
    if not said:
        raise cursor.unexpected(_NEED, _FORMS)
    text = " ".join(said)
    micros(text, cursor.since(start))
    return text, cursor.since(start)


def micros(value: Duration, said: Fragment) -> int:
    """A duration in microseconds; an error points at what was said."""
    try:
        found = duration_us(value, "")
    except AnabranchError as error:
        raise said.moved(error) from None
    except (OverflowError, ValueError):
        found = _LONGEST_US + 1
    if found > _LONGEST_US:
        raise said.error(
            error_id="BAD_DURATION",
            need="a duration of at most 100 years",
            got=str(value),
            next_step="Say a shorter one.",
        )
    return found


def make_window(size: tuple[Duration, Fragment], advance: tuple[Duration, Fragment] | None) -> Window:
    """A window of a size that advances by its size or by less."""
    of_size = _positive(*size)
    of_advance = _positive(*advance) if advance else of_size
    if advance and of_advance > of_size:
        raise advance[1].error(
            error_id="BAD_DURATION",
            need=f"an advance of at most the window's size, {duration_text(of_size)}",
            got=duration_text(of_advance),
            next_step="Advance by the size or by less: rows would fall between the windows.",
        )
    return Window(of_size, of_advance)


def _positive(value: Duration, said: Fragment) -> int:
    found = micros(value, said)
    if found == 0:
        raise said.error(
            error_id="BAD_DURATION",
            need="a duration longer than nothing",
            got=str(value),
            next_step="Say a longer one.",
        )
    return found


def window_clause(cursor: Cursor) -> WindowClause | None:
    """`<SLICES 'd'>`, `<VISIBLE 'd' ADVANCE 'e'>`, the same with rows, or `<RESAMPLE 'd' HOLD 'e'>`, if one is next."""
    start = cursor.at
    if not cursor.accept("<"):
        return None
    made: Window | RowWindow
    if cursor.accept("SLICES"):
        rows = _rows(cursor)
        made = make_row_window(rows, None) if rows else make_window(duration(cursor), None)
    elif cursor.accept("VISIBLE"):
        made = _visible(cursor)
    elif cursor.accept("RESAMPLE"):
        grid = duration(cursor)
        made = make_resampling(grid, duration(cursor) if cursor.accept("HOLD") else grid)
    else:
        raise cursor.unexpected("SLICES, VISIBLE or RESAMPLE", _WINDOWS, ("SLICES", "VISIBLE", "RESAMPLE"))
    cursor.expect(">", next_step=_WINDOWS)
    return WindowClause(made, cursor.since(start))


def _visible(cursor: Cursor) -> Window | RowWindow:
    rows = _rows(cursor)
    size = None if rows else duration(cursor)
    cursor.expect("ADVANCE", next_step=_WINDOWS)
    if rows is None:
        assert size is not None
        return make_window(size, duration(cursor))
    by = _rows(cursor)
    if by is None:
        raise cursor.unexpected("a number of rows, as the window's size is", _WINDOWS)
    return make_row_window(rows, by)


def _rows(cursor: Cursor) -> tuple[int, Fragment] | None:
    """A number of rows, if one is next."""
    start = cursor.at
    if cursor.peek().kind is not Kind.NUMBER or cursor.peek(1).word not in ("ROW", "ROWS"):
        return None
    number = cursor.take().raw
    cursor.take()
    return (int(number) if number.isdigit() else 0), cursor.since(start)


def make_row_window(size: tuple[int, Fragment], advance: tuple[int, Fragment] | None) -> RowWindow:
    """A window of so many rows."""
    for number, said in (size, advance or size):
        if not 1 <= number <= _MOST_ROWS:
            raise said.error(
                error_id="BAD_DURATION",
                need=f"a number of rows from 1 to {_MOST_ROWS:,}",
                got=said.squeezed,
                next_step="Say how many rows a window holds, as a whole number.",
            )
    return RowWindow(size[0], (advance or size)[0])


def make_resampling(grid: tuple[Duration, Fragment], hold: tuple[Duration, Fragment]) -> Window:
    """Windows that look back from each instant of a grid."""
    of_grid, of_hold = _positive(*grid), _positive(*hold)
    if of_hold < of_grid:
        raise hold[1].error(
            error_id="BAD_DURATION",
            need=f"a hold of at least the grid's step, {duration_text(of_grid)}",
            got=duration_text(of_hold),
            next_step="Hold values as long as the step, or longer: rows would fall between the instants.",
        )
    return Window.resampling(of_grid, of_hold)
