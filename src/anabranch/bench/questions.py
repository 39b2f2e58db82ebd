"""Questions of which no two have a filter, a grouping or a window in common.

Each is written twice: as a continuous query, and as one batch of Spark's over all rows, with Spark's own windows,
to be compared with. What a question is asked of is written twice as well: one stream, several streams
united, or two of them joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

COLUMNS = "id BIGINT, person INT, kind STRING, region INT, device INT, price INT, ts TIMESTAMP"
KINDS = ("click", "purchase", "view")
REGIONS, DEVICES = 4, 3
MOST = 104  # groupings: so many questions can be asked

_GROUPED = ("kind", "region", "device")
_BAND_S = 30
_VALUES = ("sum(price)", "max(price)", "avg(price)", "min(price)")


@dataclass(frozen=True)
class Question:
    """Totals of the rows that pass a filter, for each group and window."""

    where: str
    by: tuple[str, ...]
    size: int  # of the window, in seconds
    advance: int
    value: str

    @property
    def window(self) -> str:
        if self.size == self.advance:
            return f"<SLICES '{self.size} seconds'>"
        return f"<VISIBLE '{self.size} seconds' ADVANCE '{self.advance} seconds'>"

    @property
    def _given(self) -> str:
        keys = [f"{key} AS k{number}" for number, key in enumerate(self.by)]
        return ", ".join([*keys, "count(*) AS c", f"{self.value} AS v"])

    def live(self, rows: Rows) -> str:
        """As a continuous query."""
        by = ", ".join(self.by)
        given = f"{self._given}, cq_close(*) AS t"
        return f"SELECT {given} FROM {rows.live} {self.window} WHERE {self.where} GROUP BY {by}"

    def at_once(self, rows: Rows) -> str:
        """As one batch over all rows."""
        window = f"window(ts, '{self.size} seconds', '{self.advance} seconds')"
        by = ", ".join([*self.by, window])
        given = f"{self._given}, window.end AS t"
        return f"SELECT {given} FROM {rows.at_once} WHERE {self.where} GROUP BY {by}"


@dataclass(frozen=True)
class Rows:
    """What stands after FROM: in a continuous query, and in a batch."""

    streams: tuple[str, ...]
    live: str
    at_once: str


def one(stream: str) -> Rows:
    return Rows((stream,), stream, stream)


def united(streams: Sequence[str]) -> Rows:
    every = " UNION ALL ".join(f"SELECT person, kind, region, device, price, ts FROM {stream}" for stream in streams)
    return Rows(tuple(streams), f"({every})", f"({every})")


def joined(left: str, right: str) -> Rows:
    """Rows of the same number and about the same time; a pair has the later of the two times."""
    given = "a.person, a.kind, a.region, a.device, b.price"
    pairs = f"FROM {left} AS a JOIN {right} AS b ON a.id = b.id"
    live = f"(SELECT {given} {pairs} WITHIN '{_BAND_S} seconds')"
    near = f"abs(unix_micros(a.ts) - unix_micros(b.ts)) <= {_BAND_S}000000"
    return Rows((left, right), live, f"(SELECT {given}, greatest(a.ts, b.ts) AS ts {pairs} AND {near})")


def question(number: int) -> Question:
    """The question with this number, the same one each time."""
    assert 0 <= number < MOST
    # Neighbours differ in all: 37 and 29 have no divisor in common with 104, so each number comes once.
    which, length = number * 37 % MOST, number * 29 % MOST
    some = [column for place, column in enumerate(_GROUPED) if which >> place & 1]
    advance = 10 + 3 * length
    size = advance * 3 if number % 3 == 2 else advance
    return Question(_filter(number), (*some, f"person % {2 + which // 8}"), size, advance, _VALUES[number % 4])


def _filter(number: int) -> str:
    """About half of all rows, or more."""
    filters = (
        f"price > {100 + 4 * number}",
        f"kind <> 'view' AND price < {990 - 4 * number}",
        f"person % {5 + number} <> 0",
        f"region < 3 AND (price + person) % {3 + number} > 1",
    )
    return filters[number // 2 % len(filters)]


def mixed(number: int, streams: Sequence[str], already: int) -> Rows:
    """What the question with this number is asked of, if `already` streams have been read before, in turn."""
    many = (1, 1, 1, 3, 2)[number % 5]
    chosen = [streams[(already + place) % len(streams)] for place in range(many)]
    if many == 2:
        return joined(*chosen)
    return united(chosen) if many == 3 else one(chosen[0])


def over_streams(queries: int, streams: Sequence[str]) -> list[tuple[Question, Rows]]:
    """So many questions over some streams: three of five over one, one over three united, one over two joined."""
    found: list[tuple[Question, Rows]] = []
    already = 0
    for number in range(queries):
        rows = mixed(number, streams, already)
        already += len(rows.streams)
        found.append((question(number), rows))
    return found
