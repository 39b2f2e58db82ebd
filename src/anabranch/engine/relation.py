"""Plans as SQL text: a relation is a SELECT and what it gives, and Spark parses the whole of it once.

Building a plan call by call costs a round trip to the JVM for every column; one text costs one. The
user's expressions go into it as they were written. Leaves of the text are frames, known to the session
under names of ours while the text is analysed and no longer.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from anabranch.diagram.expression import literal

_numbers = itertools.count()
# By session, and not holding it: a session of Spark Connect that outlives its engine cannot close any more.
_kept: WeakKeyDictionary[SparkSession, deque[str]] = WeakKeyDictionary()
_KEPT_MOST = 1000


@dataclass(frozen=True)
class Relation:
    """A SELECT, the columns of ours that it carries, the user's, and the name by which they are qualified."""

    sql: str
    carried: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    alias: str = "_q"

    @property
    def source(self) -> str:
        """As it stands after FROM."""
        return f"({self.sql}) AS {quoted(self.alias)}"

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.carried, *self.columns)


def nulls(columns: Sequence[str]) -> str:
    """Which of some columns are null, as a number: Spark's hashes pass over nulls."""
    return " + ".join(f"IF({quoted(c)} IS NULL, {1 << n}L, 0L)" for n, c in enumerate(columns[:62])) or "0L"


# Spark's JSON has milliseconds, unless told otherwise.
EXACT_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def told_apart(columns: Sequence[str]) -> str:
    """A text that is another one for another row. (Maps have no hash of their own.)"""
    options = ", ".join(f"{literal(name)}, {literal(value)}" for name, value in EXACT_JSON.items())
    return f"TO_JSON(STRUCT({listed(columns)}), MAP({options}))"


def quoted(name: str) -> str:
    return f"`{name}`"


def listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))


class Leaves:
    """The frames at the bottom of a text."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.views: list[str] = []

    def add(self, frame: DataFrame) -> str:
        """Give a frame a name that the text can use."""
        name = f"anabranch_{next(_numbers)}"
        frame.createOrReplaceTempView(name)
        self.views.append(name)
        return name

    def frame(self, sql: str) -> DataFrame:
        """Let Spark analyse a text."""
        return self.spark.sql(sql)

    def drop(self) -> None:
        """Forget the names. Over Spark Connect a text is analysed only when it runs, so there they live a while."""
        if "connect" in type(self.spark).__module__:
            kept = _kept.setdefault(self.spark, deque())
            kept.extend(self.views)
            while len(kept) > _KEPT_MOST:
                self.spark.catalog.dropTempView(kept.popleft())
        else:
            for name in self.views:
                self.spark.catalog.dropTempView(name)
        self.views.clear()

    def __enter__(self) -> Leaves:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()
