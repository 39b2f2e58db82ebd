"""What every target of a sink has in common: the goods that go there, and how they are handed over.

Call order, for each engine that feeds: `begin(epoch, position)` says how far the target has come; then
`take(changes, came, upto)` for one range of positions after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

from pyspark.sql import DataFrame

from anabranch.engine.session import Session
from anabranch.engine.tables import changes_of
from anabranch.log.log import Log, StreamState
from anabranch.model.run import ChangeType
from anabranch.model.schema import Field

# Whoever looks at what was written must find the same text, whatever people set in their session.
_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}


@dataclass(frozen=True)
class Goods:
    """The changes of a stream, as one sink takes them."""

    sink_id: str
    sink: str
    stream: StreamState
    key: tuple[str, ...] = ()
    insert_only: bool = False

    @property
    def place(self) -> str:
        return f"sink {self.sink!r} of stream {self.stream.name!r}"

    @property
    def fields(self) -> tuple[Field, ...]:
        """The user's columns."""
        return tuple(field for field in self.stream.spec.schema if not field.name.startswith("_"))

    @property
    def unit(self) -> str:
        """What is taken whole: a bucket, or a run of a base stream, which is in no bucket."""
        return "_position" if self.stream.role == "base" else "_bucket"

    def read(self, log: Log, session: Session, first: int, upto: int) -> DataFrame:
        """The stable changes of a range of positions, both inclusive."""
        versions = bool(self.stream.spec.key)
        changes = changes_of(log, session.apart(_SETTINGS), self.stream, first, upto, versions=versions)
        return changes.where(f"_change_type = '{ChangeType.INSERT}'") if self.insert_only else changes


class Target(Protocol):
    """Where a sink writes."""

    goods: Goods

    def prepare(self) -> None:
        """Check the place and make what must be there, when the sink is created."""

    def forget(self) -> None:
        """Remove our own notes there, when the sink is dropped; what was written stays."""

    def begin(self, epoch: int, position: int) -> int:
        """Fence off older writers, clear away what they left, and say the last position that has arrived."""

    def take(self, changes: DataFrame, came: int, upto: int) -> None:
        """Write the changes after one position up to another, all of them or none."""


def is_postgres(to: str) -> bool:
    return isinstance(to, str) and to.startswith(("postgresql://", "postgres://"))


def shown(to: str) -> str:
    """A place without its password.

    >>> shown("postgresql://ann:secret@db/ads")
    'postgresql://ann:***@db/ads'
    """
    parts = urlsplit(to)
    if parts.password is None:
        return to
    before, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{before.partition(':')[0]}:***@{host}"))
