"""The demo's feed: files of ad impressions from four servers, one of which is cut off and comes back late.

A *delivery* is what arrives in one minute. The files of a delivery appear together, so that whoever watches the
directory sees all of them or none. What is in them depends on the seed, the server and the minute alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SERVERS = ("web-1", "web-2", "web-3", "web-4")
START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MINUTES = 9
CUT_OFF, SILENT, RETURNS = "web-3", range(2, 5), 8  # who, in which minutes, and when its old log comes
_SEED = 2026
_SCHEMA = pa.schema([("campaign", pa.int32()), ("price", pa.decimal128(8, 2)), ("ts", pa.timestamp("us", "UTC"))])

Answer = dict[tuple[datetime, int], tuple[int, Decimal]]  # minute and campaign: impressions and revenue


@dataclass(frozen=True)
class Delivery:
    """What arrives in one minute: a file of each server that can be reached, and perhaps an old log."""

    minute: datetime
    files: tuple[tuple[str, Path], ...]
    rows: int
    late: int  # of those, in the old log


def deliveries(root: Path) -> Iterator[Delivery]:
    """Write the files of one minute after the other."""
    for minute in range(MINUTES):
        reached = [s for s in SERVERS if s != CUT_OFF or minute not in SILENT]
        tables = {server: impressions(server, minute) for server in reached}
        late = 0
        if minute == RETURNS:
            old = pa.concat_tables([impressions(CUT_OFF, missed) for missed in SILENT])
            tables[f"{CUT_OFF}-old"] = old
            late = old.num_rows
        at = START + timedelta(minutes=minute)
        place = _write(root, f"{at:%H-%M}", tables)
        files = tuple((name.removesuffix("-old"), place / f"{name}.parquet") for name in tables)
        yield Delivery(at, files, sum(t.num_rows for t in tables.values()), late)


def _write(root: Path, name: str, tables: dict[str, pa.Table]) -> Path:
    hidden = root / f".{name}"
    hidden.mkdir(parents=True)
    for server, table in tables.items():
        pq.write_table(table, hidden / f"{server}.parquet")
    return hidden.rename(root / name)


def impressions(server: str, minute: int) -> pa.Table:
    """What one server has to say of one minute."""
    chance = np.random.default_rng([_SEED, SERVERS.index(server), minute])
    rows = int(chance.integers(560, 640))
    start = int((START + timedelta(minutes=minute)).timestamp() * 1_000_000)
    campaigns = chance.choice([1, 2, 3], rows, p=[0.5, 0.3, 0.2]).astype(np.int32)
    prices = [Decimal(int(cents)).scaleb(-2) for cents in chance.integers(1, 200, rows)]
    times = np.sort(chance.integers(0, 60_000_000, rows)) + start
    arrays = [
        pa.array(campaigns),
        pa.array(prices, _SCHEMA.field("price").type),
        pa.array(times, _SCHEMA.field("ts").type),
    ]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)


def truth(minutes: Sequence[datetime]) -> Answer:
    """The right answer for some minutes, computed from all that the servers have, by neither of the two engines."""
    everything = pa.concat_tables([impressions(server, minute) for server in SERVERS for minute in range(MINUTES)])
    stamped = everything.append_column("minute", pc.floor_temporal(everything["ts"], unit="minute"))
    groups = stamped.group_by(["minute", "campaign"]).aggregate([("ts", "count"), ("price", "sum")])
    return {
        (row["minute"], row["campaign"]): (row["ts_count"], row["price_sum"])
        for row in groups.to_pylist()
        if row["minute"] in minutes
    }
