"""What a sink remembers beside its table, so that the table depends on changes and not on their arrival.

A table of the rows that are there now does not tell all that later changes need. Of a stream with a key it lacks the
*version* of each row, and those of deletions: a message that comes later with a lower version changes nothing. Of a
base stream without a key it lacks the rows that are *held*, deleted before they came: one that comes later cancels.
Each sink has a table of its own for that, written in the transaction of the rows. Results of queries need neither: a
query takes away only what it gave.

What is waiting to be written is in a staging table (s): for a key its latest message of the range, or for a row
its net weight. `settle` leaves there what changes the sink's table (t), as `netting` has it for the range and all
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from anabranch.engine.netting import VERSION
from anabranch.log.buckets import BASE

Column = tuple[str, str]
# Entry points are compared by their bytes.
_VERSION = tuple(zip(VERSION, ("bigint", 'text COLLATE "C"', "bigint", "bigint"), strict=True))


class Memory(Protocol):
    """What is remembered; `staged` are columns of the staging table beside those of the rows."""

    @property
    def staged(self) -> tuple[Column, ...]: ...

    def make(self, connection: Any) -> None:
        """Make the table if it is not there: sinks of earlier versions have none, and begin to remember now."""

    def settle(self, connection: Any, staging: str, matched: Callable[[], Any]) -> None:
        """Leave in the staging table what changes the sink's table, and remember the rest.

        `matched` says where the keys of s and t are equal.
        """

    def forget(self, connection: Any) -> None: ...


class Nothing:
    """Of queries, and of insertions alone."""

    staged: tuple[Column, ...] = ()

    def make(self, connection: Any) -> None: ...

    def settle(self, connection: Any, staging: str, matched: Callable[[], Any]) -> None: ...

    def forget(self, connection: Any) -> None: ...


@dataclass(frozen=True)
class Versions:
    """The version of each key's latest message, also of those that are gone."""

    table: str
    key: Sequence[Column]
    staged: tuple[Column, ...] = _VERSION

    def make(self, connection: Any) -> None:
        _make(connection, self.table, [*self.key, *self.staged], [name for name, _ in self.key])

    def settle(self, connection: Any, staging: str, matched: Callable[[], Any]) -> None:
        known, new = (", ".join(f"{of}.{name}" for name in VERSION) for of in "vs")
        same = " AND ".join(f"v.{_quoted(name)} = s.{_quoted(name)}" for name, _ in self.key)
        connection.execute(f'DELETE FROM "{staging}" s USING "{self.table}" v WHERE {same} AND ({known}) >= ({new})')
        key = ", ".join(_quoted(name) for name, _ in self.key)
        columns = ", ".join([key, *VERSION])
        moved = ", ".join(f"{name} = EXCLUDED.{name}" for name in VERSION)
        connection.execute(
            f'INSERT INTO "{self.table}" ({columns}) SELECT {columns} FROM "{staging}" '
            f"ON CONFLICT ({key}) DO UPDATE SET {moved}"
        )

    def forget(self, connection: Any) -> None:
        connection.execute(f'DROP TABLE IF EXISTS "{self.table}"')


@dataclass(frozen=True)
class Held:
    """Rows that were deleted more often than they came, with how many lack."""

    table: str
    target: str  # quoted
    columns: Sequence[Column]
    staged: tuple[Column, ...] = ()

    def make(self, connection: Any) -> None:
        _make(connection, self.table, [*self.columns, ("_weight", "bigint")], ())

    def settle(self, connection: Any, staging: str, matched: Callable[[], Any]) -> None:
        s, h, names = f'"{staging}" s', f'"{self.table}" h', ", ".join(_quoted(name) for name, _ in self.columns)
        keys = matched().as_string(connection)  # by index
        there = f"EXISTS (SELECT FROM {self.target} t WHERE {keys} AND {self._same('t', 's')})"
        lacks = f"_weight + CASE WHEN {there} THEN 1 ELSE 0 END"
        for statement in (
            f"UPDATE {s} SET _weight = s._weight + h._weight FROM {h} WHERE {self._same('h', 's')}",
            f"DELETE FROM {h} USING {s} WHERE {self._same('h', 's')}",
            f'INSERT INTO "{self.table}" ({names}, _weight) SELECT {names}, {lacks} FROM {s} WHERE {lacks} < 0',
            f"DELETE FROM {s} WHERE _weight = 0 OR _weight < 0 AND NOT {there}",
            f"UPDATE {s} SET _weight = GREATEST(_weight, -1), _op = SIGN(_weight)",
        ):
            connection.execute(statement)

    def _same(self, one: str, other: str) -> str:
        """Rows that are equal in all columns."""
        pairs = [(f"{one}.{_quoted(name)}", f"{other}.{_quoted(name)}") for name, _ in self.columns]
        return " AND ".join(f"{a} IS NOT DISTINCT FROM {b}" for a, b in pairs)

    def forget(self, connection: Any) -> None:
        connection.execute(f'DROP TABLE IF EXISTS "{self.table}"')


def memory_of(
    sink_id: str, role: str, keyed: bool, key: Sequence[str], columns: Sequence[Column], target: str
) -> Memory:
    """What a sink of rows of a base stream must remember, or of a query."""
    if role != BASE:
        return Nothing()
    if keyed:
        kinds = dict(columns)
        return Versions(f"anabranch_versions_{sink_id[:16]}", [(name, kinds[name]) for name in key])
    return Held(f"anabranch_held_{sink_id[:16]}", target, columns)


def _make(connection: Any, table: str, columns: Sequence[Column], key: Sequence[str]) -> None:
    listed = ", ".join(f"{_quoted(name)} {kind}" for name, kind in columns)
    unique = f", UNIQUE NULLS NOT DISTINCT ({', '.join(map(_quoted, key))})" if key else ""
    connection.execute(f'CREATE TABLE IF NOT EXISTS "{table}" ({listed}{unique})')


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
