"""A disk that takes no more: the operating system itself refuses the write."""

from __future__ import annotations

import resource
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.log.log import Log
from anabranch.log.reading import ReadRange
from anabranch.model.errors import AnabranchError
from tests.conftest import START_US, make_spec, rows_at
from tests.sites.writers import running


def full_disk(place: str, pipe: Connection) -> None:
    """Append more than may be written, then a little."""
    with Log(place) as log:
        stream = log.stream("impsns")
        users = np.random.default_rng(1).integers(0, 2**31, 1_000_000).astype("int32")
        times = pa.array([START_US] * len(users), pa.timestamp("us", "UTC"))
        large = pa.table({"user": users, "campaign": ["a"] * len(users), "ts": times})
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, resource.RLIM_INFINITY))
        try:
            with log.unit_of_work(stream) as work:
                work.append(large)
            pipe.send("committed")
        except AnabranchError as error:
            pipe.send((error.id, error.place, error.next_step))
        with log.unit_of_work(stream) as work:
            work.append(rows_at(1))
        pipe.send("a small one fits")


def test_a_full_disk(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        stream = log.create_stream(make_spec())
        with running(full_disk, str(tmp_path)) as (_, pipe):
            error, place, next_step = pipe.recv()
            assert error == "DISK_FULL"
            assert str(tmp_path) in place
            assert "nothing was committed" in next_step
            assert pipe.recv() == "a small one fits"
        assert [h.rows for h in log.headers(stream)] == [1]
        kept = {tmp_path / s.segment.path for s in log.plan("impsns", ReadRange()).segments}
        assert set((tmp_path / "data").rglob("*.parquet")) == kept
