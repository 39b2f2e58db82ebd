"""What a query has said, written by a directory sink and loaded again, comes to the query's table.

Rows change, go, and come back in every bucket; in one bucket a row may come at an earlier time than the row of the same
key that goes, so that it stands before it in the feed. The values are such as text could lose.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.cli.follow import load, open_directory
from anabranch.log.clock import system_clock
from anabranch.model.errors import AnabranchError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLUMNS = "k INT, v STRING, n DECIMAL(20,4), d DOUBLE, b BOOLEAN, on DATE, wall TIMESTAMP_NTZ, ts TIMESTAMP"
NAMES = ("k", "v", "n", "d", "b", "on", "wall", "ts")
WORDS = (None, "", " ", " padded ", 'a,"b"', "back\\slash", "null", "ü€𝄞", "'", "#1")
DOUBLES = (None, 0.1, 1e300, -2.5e-8, float("nan"), float("inf"), float("-inf"))
KEYS = 8
BUCKETS = 4

Row = tuple[Any, ...]


def pick(chance: np.random.Generator, values: Sequence[Any]) -> Any:
    return values[int(chance.integers(len(values)))]


def drawn(chance: np.random.Generator, key: int) -> Row:
    at = NOON + timedelta(microseconds=int(chance.integers(7_200_000_000)))
    wall = at.replace(tzinfo=None) if chance.random() < 0.9 else None
    number = Decimal(int(chance.integers(-(10**18), 10**18))).scaleb(-4)
    return (
        key,
        pick(chance, WORDS),
        number,
        pick(chance, DOUBLES),
        pick(chance, (True, False, None)),
        at.date(),
        wall,
        at,
    )


def bucket(chance: np.random.Generator, there: dict[int, Row]) -> list[dict[str, Any]]:
    """What happens in a bucket, in any order; of each key there is one row at most in the end."""
    story: list[tuple[Row, str | None]] = []
    for key in chance.permutation(KEYS)[:5].tolist():
        if key in there:
            story.append((there.pop(key), pick(chance, ("delete", "update_preimage"))))
        if chance.random() < 0.7:
            there[key] = drawn(chance, key)
            story.append((there[key], pick(chance, ("insert", "update_postimage", None))))
    story = [story[at] for at in chance.permutation(len(story))]
    return [{**dict(zip(NAMES, row, strict=True)), "_change_type": change} for row, change in story]


def bare() -> list[dict[str, Any]]:
    """A row with nulls alone, which has a file to itself."""
    return [{**dict.fromkeys(NAMES), "k": -1, "ts": NOON}]


def every_word(chance: np.random.Generator) -> list[dict[str, Any]]:
    """Rows that stay, with all that text could lose."""
    rows = [drawn(chance, KEYS + number) for number in range(len(WORDS))]
    return [{**dict(zip(NAMES, row, strict=True)), "v": word} for row, word in zip(rows, WORDS, strict=True)]


def table(engine: ab.Engine, name: str) -> list[str]:
    return sorted(repr(tuple(row)) for row in engine.table(name).collect())


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(2, 8))])
def test_a_feed_in_files_can_be_loaded_back(engine: ab.Engine, tmp_path: Path, seed: int) -> None:
    chance = np.random.default_rng(seed)
    engine.sql(f"CREATE STREAM s ({COLUMNS}) EVENT TIME ts")
    engine.sql("CREATE STREAM q AS SELECT * FROM s")
    engine.sql(
        "CREATE STREAM per AS SELECT k % 3 AS g, count(*) AS c, max(v) AS v, max(ts) AS ts FROM s GROUP BY k % 3"
    )
    kinds = {"q": COLUMNS, "per": "g INT, c BIGINT, v STRING, ts TIMESTAMP"}
    feeds = [("q", "parquet", "k"), ("q", "json", "k"), ("q", "json", ""), ("q", "csv", ""), ("per", "json", "g")]
    for name, kind in dict.fromkeys((name, kind) for name, kind, _ in feeds):
        engine.sql(f"CREATE SINK {name}_{kind} FROM {name} TO '{tmp_path / name / kind}' FORMAT {kind}")
    there: dict[int, Row] = {}
    for story in (bare(), *(bucket(chance, there) for _ in range(BUCKETS)), every_word(chance)):
        engine.stream("s").append(story)
        engine.advance()
    assert len(table(engine, "q")) == 1 + len(there) + len(WORDS)
    for change in ("update_preimage", "delete", "insert"):
        assert engine.changes("per" if change == "update_preimage" else "q").where(f"_change_type = '{change}'").count()
    went, came = ("MAX", "delete"), ("MIN", "insert")
    last, first = (F.expr(f"{f}(_ordinal) FILTER (WHERE _change_type = '{c}')") for f, c in (went, came))
    met = engine.changes("q").groupBy("_bucket", "k").agg(last.alias("gone"), first.alias("came"))
    assert met.where("came < gone").count(), "in some bucket a row of a key comes before that which goes"
    for name, kind, key in feeds:
        again = f"{name}_{kind}_{key}"
        engine.sql(f"CREATE STREAM {again} ({kinds[name]}) EVENT TIME ts {f'KEY ({key})' if key else ''}")
        engine.stream(again).load(tmp_path / name / kind)
        found, wanted = table(engine, again), table(engine, name)
        if kind == "csv":  # it has one spelling for both
            wanted = sorted(row.replace(" '',", " None,") for row in wanted)
        assert found == wanted, again


def test_a_directory_of_a_sink_can_be_followed(engine: ab.Engine, tmp_path: Path) -> None:
    chance = np.random.default_rng(3)
    engine.sql(f"CREATE STREAM s ({COLUMNS}) EVENT TIME ts")
    engine.sql(f"CREATE STREAM q AS SELECT * FROM s; CREATE SINK out FROM q TO '{tmp_path / 'lake'}' FORMAT json")
    engine.sql(f"CREATE STREAM again ({COLUMNS}) EVENT TIME ts KEY (k)")
    again = engine.stream("again")
    there: dict[int, Row] = {}
    for _ in range(11):  # so that bucket 10 comes after bucket 9
        engine.stream("s").append(bucket(chance, there))
        engine.advance()
    directory = open_directory(str(tmp_path / "lake"), again)
    waiting = directory.waiting(system_clock(), 0)
    assert [int(file.name.split("/")[0].partition("=")[2]) for file in waiting] == list(range(1, 12))
    for file in waiting:
        header = load(again, file, None, "refuse")
        assert not isinstance(header, AnabranchError), header
        assert header.source is None, "buckets are no sources"
        directory.loaded(file, header.stime)
    assert table(engine, "again") == table(engine, "q")
    assert directory.waiting(system_clock(), 0) == []
