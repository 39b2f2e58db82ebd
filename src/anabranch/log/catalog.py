"""The catalog: a SQLite file beside the data, or PostgreSQL when several machines share it.

A write is one transaction: on SQLite `BEGIN IMMEDIATE` in WAL mode with `synchronous=FULL`, so that
a commit that returned survives a power cut; on PostgreSQL ordinary transactions whose first act is to
lock the warehouse's row. Either way commits have one order, which positions and stamps follow.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from anabranch.log import tables
from anabranch.log.timing import timed
from anabranch.model.errors import AnabranchError
from anabranch.model.time import duration_text

FORMAT = 5
SQLITE_FILE = "catalog.sqlite"
IDENTITY_FILE = "anabranch.json"
_BUSY_SECONDS = 60
# PostgreSQL's codes for a table, or a schema, that is not there.
_NO_TABLE = ("42P01", "3F000")
# Any number will do, as long as every version of the program uses the same one.
_MIGRATION_LOCK = 0x616E6162
# Alembic keeps its context in globals: one migration at a time in a process.
_MIGRATING = threading.Lock()


class Catalog:
    """Connections to one warehouse's catalog, and the transactions on them."""

    def __init__(
        self,
        root: Path,
        url: str | sa.URL | None = None,
        *,
        branch: str | None = None,
        durable: bool = True,
        bucket_us: int | None = None,
    ) -> None:
        self.root = root
        self._bucket_us = bucket_us  # of a warehouse that is to be made; of one that is there, what is expected
        self.url = _normalise(url) if url else sa.URL.create("sqlite", database=str(root / SQLITE_FILE))
        self.branch = branch  # what people call the branch whose catalog this is
        self.engine = _make_engine(self.url, durable)
        self.identity: dict[str, Any] = {}  # once it was prepared
        self._closed = False
        self.is_sqlite = self.engine.dialect.name == "sqlite"

    @property
    def place(self) -> str:
        return f"catalog {self.url.render_as_string(hide_password=True)}"

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A consistent view of the catalog."""
        self._require_open()
        with timed("catalog"), self._translated(), self.engine.connect() as connection:
            if not self.is_sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """One atomic change; it takes the place in the order of commits at once."""
        self._require_open()
        with timed("catalog"), self._translated(), self.engine.connect() as connection:
            connection = connection.execution_options(anabranch_begin="IMMEDIATE")
            with connection.begin():
                if not self.is_sqlite:
                    connection.execute(sa.select(tables.warehouse.c.id).with_for_update())
                yield connection

    def exists(self) -> bool:
        """Whether the catalog has been set up."""
        if self.is_sqlite and not Path(str(self.url.database)).exists():
            return False
        with self._translated(), self.engine.connect() as connection:
            return bool(sa.inspect(connection).has_table("warehouse"))

    def prepare(self, create: bool) -> dict[str, Any]:
        """Bring the catalog to this version's tables, check its format, and return its identity."""
        self._check_format(self._marked().get("format", FORMAT))
        if not self.exists() and not create:
            raise AnabranchError(
                "WAREHOUSE_MISSING",
                place=str(self.root),
                need="a warehouse",
                got="no catalog there",
                next_step="Check the path, or make one with anabranch.connect(path).",
            )
        with self._translated():
            identity = self._identity() if self.exists() else None
            if identity is None or identity["format"] < FORMAT:
                self.migrate()
                identity = self._identity()
        assert identity is not None
        self._check_format(identity["format"])
        self._check_belongs(identity)
        self._check_bucket_size(identity["bucket_size"])
        self.identity = identity
        return identity

    def _marked(self) -> dict[str, Any]:
        """What the directory says of itself; nothing in a new one."""
        try:
            return dict(json.loads((self.root / IDENTITY_FILE).read_text()))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise AnabranchError(
                "FILE_UNREADABLE",
                place=str(self.root / IDENTITY_FILE),
                need="the identity of a warehouse",
                got=str(error),
                next_step="Restore the file from a backup, or choose another directory.",
            ) from error

    def _check_belongs(self, identity: dict[str, Any]) -> None:
        """The directory and the catalog must be two halves of one warehouse."""
        marked = self._marked()
        if not marked:
            with self.engine.connect() as connection, connection.begin():
                used = connection.execute(sa.select(tables.streams.c.id).limit(1)).first()
            if used is None:
                _write_durably(self.root / IDENTITY_FILE, json.dumps({"id": identity["id"], "format": FORMAT}))
                marked = self._marked()
        if marked.get("id") != identity["id"]:
            raise AnabranchError(
                "WAREHOUSE_MISMATCH",
                place=f"warehouse {self.root} with {self.place}",
                need="a directory and a catalog that belong together",
                got=f"a directory of warehouse {marked.get('id', 'none')} and a catalog of warehouse {identity['id']}",
                next_step="Open the directory with the catalog that it was made with, or choose an empty one of each.",
            )

    def _identity(self) -> dict[str, Any] | None:
        with self.engine.connect() as connection, connection.begin():
            # An older catalog, before it is migrated, lacks the columns that came later.
            row = connection.execute(sa.text("SELECT * FROM warehouse")).mappings().first()
            names = ("id", "entry_point", "format", "bucket_size")
            return {name: row.get(name) for name in names} if row else None

    def _check_format(self, found: int) -> None:
        if found > FORMAT:
            raise AnabranchError(
                "FORMAT_NEWER",
                place=str(self.root),
                need=f"warehouse format {FORMAT} or older",
                got=f"format {found}",
                next_step="Upgrade Anabranch; nothing was changed.",
            )

    def _check_bucket_size(self, found: int | None) -> None:
        if self._bucket_us is not None and self._bucket_us != found:
            raise AnabranchError(
                "BUCKET_SIZE",
                place=str(self.root),
                need=f"buckets of {duration_text(found)}" if found else "buckets without a size",
                got=duration_text(self._bucket_us),
                next_step="Leave the size out: it was fixed when the warehouse was made.",
            )

    def migrate(self) -> None:
        """Make the tables, or bring them to this version; a new catalog gives itself an identity."""
        # Alembic is needed once in the life of a warehouse: do not load it on every open.
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", "anabranch:log/migrations")
        with _MIGRATING, self.engine.connect() as connection:
            connection = connection.execution_options(anabranch_begin="IMMEDIATE")
            with connection.begin():
                if not self.is_sqlite:
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                self._found(connection)

    def _found(self, connection: sa.Connection) -> None:
        """Write the warehouse's identity, unless another process was first."""
        table = tables.warehouse
        if connection.execute(sa.select(table.c.id)).first() is None:
            identity = uuid.uuid4().hex
            connection.execute(
                table.insert().values(
                    id=identity,
                    entry_point=f"w{identity[:8]}",
                    format=FORMAT,
                    last_stime=0,
                    last_bucket=0,
                    bucket_size=self._bucket_us,
                )
            )
        else:
            connection.execute(table.update().values(format=FORMAT).where(table.c.format < FORMAT))

    def close(self) -> None:
        self._closed = True
        self.engine.dispose()

    def _require_open(self) -> None:
        if self._closed:
            raise AnabranchError(
                "ENGINE_CLOSED",
                place=f"warehouse {self.root}",
                need="an open engine",
                got="one that was closed",
                next_step="Connect again.",
            )
        if self.branch is not None and self.is_sqlite and not os.path.exists(str(self.url.database)):
            raise gone(self.branch)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the database's troubles into errors that say what to do."""
        try:
            yield
        except exc.DBAPIError as error:
            raise self._error(error) from error

    def _error(self, error: exc.DBAPIError) -> Exception:
        text = str(error.orig)
        if "disk is full" in text or "No space left" in text:
            return disk_full(self.place, "to commit", text)
        if self.branch is not None and getattr(error.orig, "sqlstate", None) in _NO_TABLE:
            return gone(self.branch)
        ours = isinstance(error, exc.IntegrityError | exc.ProgrammingError | exc.DataError | exc.NotSupportedError)
        if not ours:
            return AnabranchError(
                "CATALOG_UNREACHABLE",
                place=self.place,
                need="a catalog that answers",
                got=" ".join(text.split()),
                next_step="Check that the path or server exists, is writable and not locked, and what was committed.",
            )
        return error


def _write_durably(path: Path, text: str) -> None:
    """A small file that is there whole or not at all, also after a power cut."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    with open(draft, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def gone(branch: str) -> AnabranchError:
    return AnabranchError(
        "BRANCH_GONE",
        place=f"branch {branch}",
        need="a branch that is there",
        got="one that was dropped, has expired, or was silent for longer than its lease",
        next_step="Fork another one; main has all that it had.",
    )


def disk_full(place: str, what: str, got: str) -> AnabranchError:
    return AnabranchError(
        "DISK_FULL",
        place=place,
        need=f"free space {what}",
        got=got,
        next_step="Free some space and try again; nothing was committed.",
    )


def _normalise(url: str | sa.URL) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except exc.ArgumentError:
        parsed = None
    if parsed is None or parsed.get_backend_name() not in ("postgresql", "postgres", "sqlite"):
        raise AnabranchError(
            "BAD_ARGUMENT",
            place="catalog=",
            need="a URL such as 'postgresql://user@host/database', or nothing for SQLite",
            got=repr(url),
            next_step="Correct the URL.",
        )
    if parsed.get_backend_name() == "sqlite":
        return parsed
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise AnabranchError(
            "NOT_SUPPORTED",
            place="catalog=",
            need="the PostgreSQL client",
            got="psycopg is not installed",
            next_step="Install it with: pip install 'anabranch[postgres]'.",
        ) from None
    return parsed.set(drivername="postgresql+psycopg")


def _make_engine(url: sa.URL, durable: bool) -> sa.Engine:
    if url.get_backend_name() != "sqlite":
        # A thread that waits, waits for the catalog's lock, never for a connection of the pool.
        engine = sa.create_engine(url, pool_pre_ping=True, max_overflow=-1)
        sa.event.listen(engine, "connect", _prepare_postgres)
        return engine
    engine = sa.create_engine(url, connect_args={"timeout": _BUSY_SECONDS}, max_overflow=-1)
    sa.event.listen(engine, "connect", _prepare_sqlite if durable else _prepare_passing)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # We issue BEGIN ourselves: the driver's own transactions start too late to be IMMEDIATE.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _prepare_passing(connection: sqlite3.Connection, record: object) -> None:
    """Of a catalog that nobody wants after a power cut."""
    _prepare_sqlite(connection, record)
    connection.execute("PRAGMA synchronous=OFF")


def _prepare_postgres(connection: Any, _record: object) -> None:
    # A process that is paused inside a transaction must not hold up the others for ever.
    for setting in ("lock_timeout", "idle_in_transaction_session_timeout"):
        connection.execute(f"SET {setting} = '{_BUSY_SECONDS}s'")
    connection.commit()


def _begin_sqlite(connection: sa.Connection) -> None:
    mode = connection.get_execution_options().get("anabranch_begin", "DEFERRED")
    connection.exec_driver_sql(f"BEGIN {mode}")
