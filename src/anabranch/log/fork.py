"""Forking: a branch is another catalog over the same segments.

A fork registers the branch, which holds what it will refer to; then it copies the catalog, while others go on
appending and stepping; then it makes the copy the branch's own, in one transaction; and then the branch can
be opened. Copied from SQLite to SQLite page by page, by its online backup; within PostgreSQL table by table,
into a schema made by the migrations; between the two row by row. Each reads one state of the catalog that it copies.

What is not the branch's in a copy: leases and intents, whose holders work on the original; garbage, which is the
original's to remove; rows of open units of work; and how far sinks and subscriptions have come, which run there
alone. Definitions of sinks stay, and do not run.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import sqlalchemy as sa
from sqlalchemy import exc

from anabranch.log import tables
from anabranch.log.branches import Branch, Branches
from anabranch.log.catalog import Catalog
from anabranch.log.fork_order import follow_order
from anabranch.log.past import Past, cut_back
from anabranch.log.storage import Storage, home_of, sync_directory, sync_file
from anabranch.model.errors import AnabranchError

_LEFT_OUT = (tables.leases, tables.intents, tables.garbage, tables.branches)
_OF_MAIN = ("sink", "subscription")
_ROWS = 1_000


def fork(
    source: Catalog,
    register: Branches,
    parent: str | None,
    name: str | None = None,
    lifetime_us: int | None = None,
    *,
    published: bool = False,
    past: Past | None = None,
) -> Branch:
    """Make a branch of main, or of the branch `parent`, whose catalog is `source`; as it is now, or as it was (`past`).

    On PostgreSQL one that other machines can open, because it has a name or is published, gets a schema.
    """
    schema = not register.main.is_sqlite and (published or name is not None)
    branch = register.begin(parent, name, lifetime_us, schema=schema)
    try:
        if parent is not None:
            with source.write() as connection:
                follow_order(connection, branch.fork_order)
        Storage(source.root, branch.generation).make_directory(home_of(branch.generation))
        with closing(branch.catalog(register.main)) as target:
            if branch.schema_name is not None:
                _make_schema(register.main, branch.schema_name)
                target.migrate()
            copy_catalog(source, target)
            with target.write() as connection:
                make_own(connection, branch)
                if past is not None:
                    cut_back(connection, past)
        if name is not None and not schema:
            sync_file(str(target.url.database))
            sync_directory(os.path.dirname(str(target.url.database)))
        return register.publish(branch)
    except BaseException:
        register.leave(branch)
        raise


def make_own(connection: sa.Connection, branch: Branch) -> None:
    """Make a copy of a catalog the branch's own, before anybody uses it."""
    for table in _LEFT_OUT:
        connection.execute(table.delete())
    connection.execute(tables.segments.delete().where(tables.segments.c.overlay_id.is_not(None)))
    connection.execute(tables.overlay.delete())
    connection.execute(tables.positions.delete().where(tables.positions.c.kind.in_(_OF_MAIN)))
    warehouse = tables.warehouse
    connection.execute(
        warehouse.update().values(
            entry_point=f"b{branch.generation[:12]}", fork_order=branch.fork_order,
            parent_bucket=warehouse.c.last_bucket, parent_stime=warehouse.c.last_stime,
        )
    )  # fmt: skip


def copy_catalog(source: Catalog, target: Catalog) -> None:
    """Fill an empty catalog with one state of another."""
    if source.is_sqlite and target.is_sqlite:
        _back_up(str(source.url.database), str(target.url.database))
    elif target.is_sqlite:
        tables.metadata.create_all(target.engine)
        _copy_rows(source, target)
    elif source.is_sqlite:
        _copy_rows(source, target)
        with target.write() as connection:
            _raise_sequences(connection, schema_of(connection), None)
    else:
        with target.read() as connection:
            schema = schema_of(connection)
        _copy_tables(source, schema)


def _back_up(source: str, target: str) -> None:
    with closing(sqlite3.connect(source, timeout=60)) as here, closing(sqlite3.connect(target)) as there:
        there.execute("PRAGMA synchronous=OFF")  # it counts only once it was synced as a whole, if it is to last
        there.execute("PRAGMA journal_mode=OFF")
        here.backup(there)


def _copied() -> list[sa.Table]:
    return [table for table in tables.metadata.sorted_tables if table not in _LEFT_OUT]


def _copy_rows(source: Catalog, target: Catalog) -> None:
    with source.read() as here, target.write() as there:
        there.execute(tables.warehouse.delete())  # of the identity that an empty catalog has given itself
        for table in _copied():
            found = here.execution_options(yield_per=_ROWS).execute(sa.select(table))
            for part in found.mappings().partitions(_ROWS):
                there.execute(table.insert(), [dict(row) for row in part])


def schema_of(connection: sa.Connection) -> str:
    """Of a catalog on PostgreSQL, where its tables are."""
    return str(connection.exec_driver_sql("SELECT current_schema()").scalar_one())


def _copy_tables(source: Catalog, schema: str) -> None:
    with source.read() as connection:
        own = schema_of(connection)
        connection.exec_driver_sql(f'DELETE FROM "{schema}".warehouse')
        for table in _copied():
            columns = ", ".join(f'"{column.name}"' for column in table.columns)
            to, of = f'"{schema}"."{table.name}"', f'"{own}"."{table.name}"'
            connection.exec_driver_sql(f"INSERT INTO {to} ({columns}) SELECT {columns} FROM {of}")
        _raise_sequences(connection, schema, own)


def _raise_sequences(connection: sa.Connection, schema: str, own: str | None) -> None:
    """Numbers go on after those that were given, also to rows that are gone."""
    for table in _copied():
        found = connection.exec_driver_sql(
            "SELECT pg_get_serial_sequence(%s, 'id')", (f'"{schema}"."{table.name}"',)
        ).scalar() if "id" in table.columns else None  # fmt: skip
        if found is None:
            continue
        last = f'SELECT max(id) FROM "{schema}"."{table.name}"'
        if own is not None:
            theirs = connection.exec_driver_sql(
                "SELECT pg_get_serial_sequence(%s, 'id')", (f'"{own}"."{table.name}"',)
            ).scalar_one()
            last = f"SELECT CASE WHEN is_called THEN last_value END FROM {theirs}"
        connection.exec_driver_sql(f"SELECT setval('{found}', ({last})) WHERE ({last}) IS NOT NULL")


def _make_schema(source: Catalog, schema: str) -> None:
    try:
        with source.write() as connection:
            connection.exec_driver_sql(f'CREATE SCHEMA "{schema}"')
    except exc.ProgrammingError as error:
        user, database = source.url.username or "the user", source.url.database
        raise AnabranchError(
            "CATALOG_REFUSED",
            place=source.place,
            need="the right to create a schema, in which the catalog of a branch with a name is",
            got=" ".join(str(error.orig).split()),
            next_step=f"As an owner of the database: GRANT CREATE ON DATABASE {database} TO {user}; or fork without a "
            "name: the catalog of such a branch is a file in the warehouse.",
        ) from error
