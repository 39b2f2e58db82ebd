"""Durations and windows in a statement: `'1 minute'`, `INTERVAL '10' SECONDS`, `<VISIBLE '15 min' ADVANCE '5 min'>`."""

from __future__ import annotations

import re

from anabranch.diagram.sql.cursor import Cursor
from anabranch.diagram.sql.fragment import Fragment
from anabranch.diagram.sql.tokens import Kind
from anabranch.diagram.sql.tree import WindowClause
from anabranch.model.errors import AnabranchError
from anabranch.model.time import Duration, duration_text, duration_us
from anabranch.model.window import Window

_NEED = "a duration such as '10 seconds'"
_FORMS = "Write '10 seconds', or INTERVAL '10' SECONDS."
_WINDOWS = "Write <SLICES '1 minute'>, or <VISIBLE '15 minutes' ADVANCE '5 minutes'>."
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
    """`<SLICES 'd'>` or `<VISIBLE 'd' ADVANCE 'e'>`, if one is next."""
    start = cursor.at
    if not cursor.accept("<"):
        return None
    if cursor.accept("SLICES"):
        size, advance = _span(cursor), None
    elif cursor.accept("VISIBLE"):
        size = _span(cursor)
        cursor.expect("ADVANCE", next_step=_WINDOWS)
        advance = _span(cursor)
    else:
        raise cursor.unexpected("SLICES or VISIBLE", _WINDOWS, ("SLICES", "VISIBLE"))
    cursor.expect(">", next_step=_WINDOWS)
    return WindowClause(make_window(size, advance), cursor.since(start))


def _span(cursor: Cursor) -> tuple[str, Fragment]:
    rows = cursor.peek(1)
    if cursor.peek().kind is Kind.NUMBER and rows.word in ("ROW", "ROWS"):
        raise cursor.source.error(
            rows.start,
            rows.end,
            need="a window over time",
            got="a window over a number of rows, which is not there yet",
            next_step=_WINDOWS,
        )
    return duration(cursor)
