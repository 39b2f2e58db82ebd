"""A stream's changes in pieces of a bounded size, in their order: what subscriptions read.

The order of a log is that of (position, ordinal); positions rise with buckets, so it is that of (bucket,
ordinal) too. Headers say how many rows each run has: a piece covers as many runs as it has room for, or a
part of one that is larger. Spark reads and orders it; this process holds one piece at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.engine.session import Session
from anabranch.engine.tables import changes_of
from anabranch.log.log import Log, StreamState
from anabranch.model.run import ChangeType

MOST_ROWS = 20_000
_MOST_HEADERS = 1_000
# An ordinal that no row has: the run is done with.
WHOLE = 1 << 62

Row = dict[str, Any]


@dataclass(frozen=True)
class Cursor:
    """How far a reader has come: all before a position, and of it the items up to an ordinal."""

    position: int
    ordinal: int = WHOLE

    @property
    def next_position(self) -> int:
        """The first position of which anything is left."""
        return self.position + 1 if self.ordinal == WHOLE else self.position


class Pieces:
    """Reads one stream, from a cursor on."""

    def __init__(
        self,
        log: Log,
        session: Session,
        stream: StreamState,
        cursor: Cursor,
        *,
        after: tuple[int, int] | None = None,
        insert_only: bool = False,
        most_rows: int = MOST_ROWS,
    ) -> None:
        self.log = log
        self.session = session
        self.stream = stream
        self.cursor = cursor
        self._after = after  # of derived streams: a bucket and an ordinal
        self._insert_only = insert_only
        self._most_rows = most_rows

    def read(self, upto: int) -> list[Row]:
        """The next piece of what lies at or before a position; nothing once the cursor has come there."""
        while self.cursor.next_position <= upto:
            last = reach(self.log, self.stream, self.cursor.next_position, upto, self._most_rows)
            rows = [] if last is None else self._rows(last)
            if len(rows) == self._most_rows:
                self.cursor = Cursor(rows[-1]["_position"], rows[-1]["_ordinal"])
            else:
                self.cursor = Cursor(upto if last is None else last)
            if rows:
                return rows
        return []

    def _rows(self, last: int) -> list[Row]:
        frame = changes_of(self.log, self.session.spark, self.stream, self.cursor.next_position, last)
        for condition in self._conditions():
            frame = frame.where(condition)
        return fetch(frame.orderBy("_position", "_ordinal").limit(self._most_rows))

    def _conditions(self) -> Sequence[Any]:
        found = []
        place = F.struct("_position", "_ordinal")
        if self.cursor.ordinal != WHOLE:
            found.append(place > _pair("_position", "_ordinal", (self.cursor.position, self.cursor.ordinal)))
        if self._after is not None:
            found.append(F.struct("_bucket", "_ordinal") > _pair("_bucket", "_ordinal", self._after))
        if self._insert_only:
            found.append(F.col("_change_type") == ChangeType.INSERT.value)
        return found


def reach(log: Log, stream: StreamState, first: int, upto: int, most_rows: int) -> int | None:
    """The last position of as many runs as have so many rows, or of one; None if up to the end there is no row."""
    headers = log.headers(stream, first=first, last=upto, most=_MOST_HEADERS)
    rows, last = 0, None
    for header in headers:
        rows += header.rows
        if last is not None and rows > most_rows:
            break
        last = min(header.position, upto)
    return last if rows or len(headers) == _MOST_HEADERS else None


def _pair(first: str, second: str, values: tuple[int, int]) -> Any:
    return F.struct(*(F.lit(v).cast("bigint").alias(n) for n, v in zip((first, second), values, strict=True)))


def fetch(frame: DataFrame) -> list[Row]:
    """Rows over Arrow, so that instants are instants, whatever the time zone of this machine."""
    found = frame.toArrow()
    columns = [column.to_pylist(maps_as_pydicts="strict") for column in found.columns]
    return [dict(zip(found.column_names, values, strict=True)) for values in zip(*columns, strict=True)]
