"""The catalog itself: its tables, its version, and what happens when it is not there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from anabranch.engine.netting import STAMP_TYPE
from anabranch.log import tables
from anabranch.log.catalog import FORMAT, Catalog
from anabranch.log.log import Log
from anabranch.model.errors import AnabranchError
from tests.conftest import make_spec, rows_at


def test_migrations_lead_to_the_tables(log: Log) -> None:
    with log.catalog.read() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), tables.metadata)
    assert differences == []


def test_a_newer_warehouse_is_left_alone(open_log: Callable[..., Log]) -> None:
    log = open_log()
    with log.catalog.write() as connection:
        connection.execute(tables.warehouse.update().values(format=FORMAT + 1))
    with pytest.raises(AnabranchError) as caught:
        open_log()
    assert caught.value.id == "FORMAT_NEWER"
    assert caught.value.got == f"format {FORMAT + 1}"
    with log.catalog.read() as connection:
        assert connection.execute(sa.select(tables.warehouse.c.format)).scalar() == FORMAT + 1


def test_commits_survive_a_power_cut(tmp_path: Path) -> None:
    """What SQLite is told: a write-ahead log that is synced at each commit."""
    with Log(tmp_path / "w") as log, log.catalog.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


def test_a_missing_warehouse_is_not_made_by_looking(tmp_path: Path) -> None:
    with pytest.raises(AnabranchError) as caught:
        Log(tmp_path / "w", create=False)
    assert caught.value.id == "WAREHOUSE_MISSING"
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("place", ["s3://bucket/w", "hdfs://host/w"])
def test_object_stores_are_refused(place: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        Log(place)
    assert caught.value.id == "NOT_SUPPORTED"


def test_file_uris_and_moved_warehouses(tmp_path: Path) -> None:
    with Log(f"file://{tmp_path}/old") as log:
        stream = log.create_stream(make_spec())
        with log.unit_of_work(stream) as work:
            work.append(rows_at(1))
    (tmp_path / "old").rename(tmp_path / "new")
    from anabranch.log.reading import ReadRange

    with Log(tmp_path / "new", create=False) as log:
        (segment,) = log.plan("impsns", ReadRange()).segments
        assert (log.root / segment.segment.path).exists()


def test_a_file_is_not_a_warehouse(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(AnabranchError) as caught:
        Log(tmp_path / "f")
    assert caught.value.id == "BAD_ARGUMENT"


def test_a_broken_catalog_says_so(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(b"this is no database at all" * 100)
    with pytest.raises(AnabranchError) as caught:
        Log(tmp_path)
    assert caught.value.id == "CATALOG_UNREACHABLE"


@pytest.mark.parametrize("url", ["postgresql://nobody@127.0.0.1:1/none", "mysql://x/y", "what"])
def test_catalogs_that_are_not_there(tmp_path: Path, url: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        Log(tmp_path, url)
    assert caught.value.id in ("CATALOG_UNREACHABLE", "BAD_ARGUMENT")
    assert "nobody:" not in str(caught.value)


def test_passwords_are_not_shown(tmp_path: Path) -> None:
    with pytest.raises(AnabranchError) as caught:
        Log(tmp_path, "postgresql://u:secret@127.0.0.1:1/none")
    assert "secret" not in str(caught.value)


def test_a_full_disk_in_the_catalog_commits_nothing(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        stream = log.create_stream(make_spec())
        with log.unit_of_work(stream, single=True) as work:
            work.append(rows_at(1))

        def limit(connection: sqlite3.Connection, _record: object) -> None:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count={pages}")

        log.catalog.engine.dispose()
        sa.event.listen(log.catalog.engine, "connect", limit)

        def fill() -> None:
            for _ in range(200):
                with log.unit_of_work(stream, single=True) as work:
                    work.append(rows_at(2))

        with pytest.raises(AnabranchError) as caught:
            fill()
        assert caught.value.id == "DISK_FULL"
        assert "nothing was committed" in caught.value.next_step
        sa.event.remove(log.catalog.engine, "connect", limit)
        log.catalog.engine.dispose()
        headers = log.headers(stream)
        assert [h.position for h in headers] == list(range(1, len(headers) + 1))
        assert log.stream("impsns").rows == len(headers)


def test_a_warehouse_of_format_4_tells_the_runs_of_its_segments(
    tmp_path: Path, catalog_url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a header is left to tell; versions of keys in partial results are those of today."""
    monkeypatch.setattr(command, "upgrade", partial(_upgraded, command.upgrade))
    with closing(Catalog(tmp_path, catalog_url)) as catalog, catalog.engine.connect() as connection:
        catalog.migrate()
        segments = connection.execute(sa.select(tables.segments).order_by(tables.segments.c.id)).all()
        spec = connection.execute(sa.select(tables.streams.c.spec)).scalar_one()
        assert connection.execute(sa.select(tables.warehouse.c.format)).scalar() == FORMAT
    assert [(s.path, s.entry_point, s.sequence) for s in segments] == [
        ("folded", None, None), ("newest", "web-7", 42), ("own", "w1", 3), ("compacted", None, None),
    ]  # fmt: skip
    assert spec["schema"][0]["type"] == STAMP_TYPE


def _upgraded(upgrade: Callable[..., None], config: Config, revision: str) -> None:
    """Make a warehouse of format 4 in between: headers 1 to 5 are folded into the last, 6 is not."""
    upgrade(config, "0004")
    connection = config.attributes["connection"]
    old = sa.MetaData()
    old.reflect(connection, only=["streams", "runs", "segments"])
    none = {"last_position": 6, "runs": 6, "rows": 6, "quarantined": 0, "size": 6, "width_classes": 0, "trimmed": 0}
    field = {"name": "_m1", "type": "STRUCT<s: TIMESTAMP, p: BIGINT, o: BIGINT>", "nullable": True}
    spec = {"name": "p", "schema": [field], "event_time": "_pane", "key": []}
    connection.execute(old.tables["streams"].insert().values(
        id=1, name="p", spec=spec, schema_version=1, role="partials", **none))  # fmt: skip
    run = {"stream_id": 1, "stime": 1, "rows": 1, "quarantined": 0, "size": 1, "trimmed": 0, "stability": "stable",
           "supersedes": [], "schema_version": 1}  # fmt: skip
    connection.execute(old.tables["runs"].insert(), [
        {**run, "position": 5, "first_position": 1, "entry_point": "web-7", "sequence": 42, "kind": "compacted"},
        {**run, "position": 6, "first_position": 6, "entry_point": "w1", "sequence": 3, "kind": "rows"},
    ])  # fmt: skip
    segment = {"stream_id": 1, "role": "rows", "format": "parquet", "reference": False, "rows": 1, "size": 1,
               "options": {}, "ordinal_base": 0}  # fmt: skip
    places = [("folded", 3, 1), ("newest", 5, 1), ("own", 6, 1), ("compacted", 5, None)]
    connection.execute(old.tables["segments"].insert(), [
        {**segment, "path": path, "first_position": last, "last_position": last, "stime": stime}
        for path, last, stime in places
    ])  # fmt: skip
    upgrade(config, revision)
