"""The catalog itself: its tables, its version, and what happens when it is not there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from anabranch.log import tables
from anabranch.log.catalog import FORMAT
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
