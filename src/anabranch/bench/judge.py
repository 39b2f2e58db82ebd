"""What is wrong with an answer, beside the one that a batch over the finished files gives.

An answer is rows of `campaign`, `w` (the minute in which the window opens, counted from the epoch), `c` and
`s`. A window is wrong if it differs, is there twice, or should not be there; it is missing if it should be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import pyarrow as pa

from anabranch.bench.impressions import KEPT, MINUTE_US
from anabranch.model.errors import AnabranchError


@dataclass(frozen=True)
class Verdict:
    windows: int  # that should be there
    dropped: int  # rows that should have been counted and were not
    wrong: int
    missing: int


def duckdb() -> ModuleType:
    """DuckDB, or how to get it: only benchmarks need it."""
    try:
        import duckdb
    except ImportError:
        raise AnabranchError(
            "NOT_SUPPORTED",
            place="bench late",
            need="the packages of the benchmarks",
            got="no module named 'duckdb'",
            next_step="Install them with: pip install 'anabranch[bench]'.",
        ) from None
    return duckdb


def write_truth(paths: Sequence[str], target: str) -> None:
    """The answer of one batch over finished files, by DuckDB on all cores of the machine."""
    sql = f"""
        COPY (
            SELECT campaign, epoch_us(ts) // {MINUTE_US} AS w, count(*) AS c, sum(price)::BIGINT AS s
            FROM read_parquet({list(paths)!r}) WHERE kind = '{KEPT}' GROUP BY ALL
        ) TO '{target}' (FORMAT parquet)
    """
    with duckdb().connect() as db:
        db.execute(sql)


def judged(truth: str, answer: pa.Table) -> Verdict:
    """Compare an answer with the file of the right one."""
    sql = f"""
        WITH answer AS (SELECT campaign, w, any_value(c) AS c, any_value(s) AS s, count(*) AS n FROM said GROUP BY ALL)
        SELECT
            count(r.c) AS windows,
            coalesce(sum(greatest(r.c - coalesce(a.c, 0), 0)), 0) AS dropped,
            count(*) FILTER (a.c IS NOT NULL AND (a.n > 1 OR (a.c, a.s) IS DISTINCT FROM (r.c, r.s))) AS wrong,
            count(*) FILTER (a.c IS NULL) AS missing
        FROM read_parquet('{truth}') r FULL JOIN answer a USING (campaign, w)
    """
    with duckdb().connect() as db:
        db.register("said", answer)
        found = db.execute(sql).fetchone()
    return Verdict(*map(int, found))
