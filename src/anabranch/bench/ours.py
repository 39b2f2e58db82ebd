"""The engine as a contestant: counts per campaign and minute over files that are loaded by reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from anabranch.api.engine import Engine, connect
from anabranch.bench.impressions import COLUMNS, KEPT, MINUTE_US, Impressions
from anabranch.model.time import to_datetime

_QUERY = f"""
    CREATE STREAM per_minute AS
    SELECT campaign, count(*) AS c, sum(price) AS s, cq_close(*) AS t
    FROM impressions <SLICES '1 minute'> WHERE kind = '{KEPT}' GROUP BY campaign
"""
_W = f"unix_micros(t) DIV {MINUTE_US} - 1 AS w"


@dataclass(frozen=True)
class Counting:
    """A warehouse that counts impressions."""

    engine: Engine

    def one_by_one(self, data: Impressions, files: int, tell: Callable[[int, int], None]) -> None:
        """Each so many files are a bucket; a promise closes the windows that are still open at the end."""
        stream = self.engine.stream("impressions")
        groups = data.groups(files)
        for done, paths in enumerate(groups):
            stream.load(paths)
            self.engine.advance()
            tell(done + 1, len(groups))
        stream.punctuate(to_datetime(data.end_us))
        self.engine.advance()

    def catching_up(self, data: Impressions, files: int) -> None:
        """Everything waits already, in as many runs, when the engine begins."""
        stream = self.engine.stream("impressions")
        for paths in data.groups(files):
            stream.load(paths)
        stream.punctuate(to_datetime(data.end_us))
        self.engine.advance()

    def table(self) -> pa.Table:
        return self.engine.table("per_minute").selectExpr("campaign", _W, "c", "s").toArrow()

    def replayed(self) -> pa.Table:
        """What all changes that were ever said add up to."""
        last = self.engine.stream("per_minute").state().last_position
        return self.engine.table("per_minute", position_as_of=last).selectExpr("campaign", _W, "c", "s").toArrow()


@contextmanager
def counting(warehouse: Path) -> Iterator[Counting]:
    with connect(warehouse) as engine:
        engine.sql(f"CREATE STREAM impressions ({COLUMNS}) EVENT TIME ts")
        engine.sql(_QUERY)
        yield Counting(engine)
