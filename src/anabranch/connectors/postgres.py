"""PostgreSQL as a sink: a table of the rows that are there now, or of every insertion.

Spark's tasks copy the net change of a range into a staging table. Then one transaction locks this sink's
row in `anabranch_sinks`, a small table of ours in the same database; sees that no newer engine has
written there and that the range begins where the last one ended; deletes and upserts; and moves (bucket,
ordinal) and epoch. What later changes need to know and the table does not tell is beside it (`postgres_memory`).
Killed before its commit, nothing has happened; killed after it, the next engine finds in that row how far
things have come.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from anabranch.connectors.postgres_copy import CopyTask, connected, net_change
from anabranch.connectors.postgres_memory import Memory, Nothing, memory_of
from anabranch.connectors.postgres_types import postgres_type
from anabranch.connectors.targets import Goods, shown
from anabranch.engine.reports import Report, collect_reports, raise_reported
from anabranch.model.errors import AnabranchError

_NOTES = "anabranch_sinks"
_LEAST_VERSION = 150_000  # unique keys that take nulls for equal
_MARKS = ("_task", "_attempt")


class PostgresTarget:
    def __init__(self, goods: Goods, uri: str, table: str | None, file_format: str | None) -> None:
        _require_client(goods.place)
        if file_format is not None:
            raise AnabranchError(
                "BAD_ARGUMENT", place=f"{goods.place}, format", need="nothing: a table has no file format",
                got=repr(file_format), next_step="Leave out FORMAT, or write to a directory.",
            )  # fmt: skip
        self.goods = goods
        self.uri = uri
        self.names = tuple((table or goods.stream.name).split("."))
        self.epoch = 0

    @property
    def place(self) -> str:
        return f"{self.goods.place}, {shown(self.uri)}"

    @property
    def memory(self) -> Memory:
        columns = [(f.name, postgres_type(f)) for f in self.goods.fields]
        target = self._table.as_string(None)
        stream = self.goods.stream
        if self.goods.insert_only:
            return Nothing()
        return memory_of(self.goods.sink_id, stream.role, bool(stream.spec.key), self.goods.key, columns, target)

    # When a sink is created and dropped.

    def prepare(self) -> None:
        with connected(self.uri, self.goods.place) as connection:
            if connection.info.server_version < _LEAST_VERSION:
                raise self._refused("PostgreSQL 15 or later", f"version {connection.info.server_version // 10_000}")
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {_NOTES} (sink text PRIMARY KEY, name text NOT NULL, target text NOT NULL,"
                " epoch bigint NOT NULL, position bigint NOT NULL, bucket bigint, ordinal bigint)"
            )
            self._make_table(connection)
            connection.execute(
                f"INSERT INTO {_NOTES} (sink, name, target, epoch, position) VALUES (%s, %s, %s, 0, 0)",
                (self.goods.sink_id, self.goods.sink, self._target_name(connection)),
            )

    def _make_table(self, connection: Any) -> None:
        from psycopg import sql

        target = self._target_name(connection)
        if target is None:
            columns = [sql.SQL("{} {}").format(sql.Identifier(f.name), sql.SQL(postgres_type(f)))
                       for f in self.goods.fields]  # fmt: skip
            connection.execute(sql.SQL("CREATE TABLE {} ({})").format(self._table, sql.SQL(", ").join(columns)))
            made = self._target_name(connection)
            connection.execute(f"DELETE FROM {_NOTES} WHERE target = %s", (made,))  # of one that was there before
        else:
            self._require_usable(connection, target)
        if self.goods.key:
            # Groups may have nulls in their keys, of which there is one as of any other value.
            connection.execute(
                sql.SQL("CREATE UNIQUE INDEX IF NOT EXISTS {} ON {} ({}) NULLS NOT DISTINCT").format(
                    sql.Identifier(f"{self.names[-1]}_anabranch_key"[:63]), self._table, self._listed(self.goods.key)
                )
            )

    def _require_usable(self, connection: Any, target: str) -> None:
        from psycopg import sql

        owner = connection.execute(f"SELECT name FROM {_NOTES} WHERE target = %s", (target,)).fetchone()
        if owner is not None:
            raise self._refused("a table of its own", f"table {target}, into which sink {owner[0]!r} writes")
        rows = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (target,),
        ).fetchall()
        there, wanted = dict(rows), {f.name: postgres_type(f) for f in self.goods.fields}
        if there != wanted:
            need = ", ".join(f"{name} {kind}" for name, kind in wanted.items())
            raise self._refused(f"a table with the columns {need}", f"table {target} with others")
        if connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(self._table)).fetchone():
            raise self._refused("an empty table", f"table {target} with rows in it")

    def forget(self) -> None:
        with connected(self.uri, self.goods.place) as connection:
            connection.execute(f"DELETE FROM {_NOTES} WHERE sink = %s", (self.goods.sink_id,))
            self.memory.forget(connection)

    # When it is fed.

    def begin(self, epoch: int, position: int) -> int:
        self.epoch = epoch
        with connected(self.uri, self.goods.place) as connection:
            came = self._lock(connection)
            connection.execute(f"UPDATE {_NOTES} SET epoch = %s WHERE sink = %s", (epoch, self.goods.sink_id))
            self.memory.make(connection)
            connection.commit()
            self._clear(connection)
        return came

    def take(self, changes: DataFrame, came: int, upto: int) -> None:
        staging = f"{self._staging_prefix}{uuid.uuid4().hex[:8]}"
        with connected(self.uri, self.goods.place) as connection:
            self._make_staging(connection, staging)
        try:
            reports = collect_reports(net_change(changes, self.goods), self._copy_into(staging).reports)
            raise_reported(reports)
            with connected(self.uri, self.goods.place) as connection:
                self._apply(connection, staging, reports, came, upto)
        except Exception:
            self._let_go(staging)
            raise

    def _let_go(self, staging: str) -> None:
        """Remove a staging table that came to nothing; if the database is away, the next writer does."""
        try:
            with connected(self.uri, self.goods.place) as connection:
                connection.execute(f'DROP TABLE IF EXISTS "{staging}"')
        except AnabranchError:
            pass

    def _apply(self, connection: Any, staging: str, reports: Sequence[Report], came: int, upto: int) -> None:
        """The transaction."""
        stored = self._lock(connection)
        if stored != came:
            raise AnabranchError(
                "POSITION_CONFLICT", place=self.place, need=f"position {came}, where this range begins",
                got=f"position {stored}", next_step="Advance again; nothing was written.",
            )  # fmt: skip
        self._drop_doubles(connection, staging, reports)
        if self.goods.insert_only:
            self._insert(connection, staging, "")
        else:
            self.memory.settle(connection, staging, partial(self._matched, connection, staging))
            self._require_a_key(connection, staging)
            self._delete(connection, staging)
            self._insert(connection, staging, self._on_conflict())
        last = max((report["last"] for report in reports if report["last"]), default=None)
        connection.execute(
            f"UPDATE {_NOTES} SET epoch = %s, position = %s, bucket = COALESCE(%s, bucket),"
            " ordinal = COALESCE(%s, ordinal) WHERE sink = %s",
            (self.epoch, upto, last and last[1], last and last[2], self.goods.sink_id),
        )
        connection.execute(f'DROP TABLE "{staging}"')
        connection.commit()

    def _lock(self, connection: Any) -> int:
        """How far things have come, by our row, which stays locked until the transaction ends."""
        row = connection.execute(
            f"SELECT epoch, position FROM {_NOTES} WHERE sink = %s FOR UPDATE", (self.goods.sink_id,)
        ).fetchone()
        if row is None:
            raise self._refused(f"this sink's row in {_NOTES}", "none", "Drop the sink and create it again.")
        if row[0] > self.epoch:
            raise AnabranchError(
                "FENCED", place=self.place, need=f"epoch {self.epoch} or an older one", got=f"epoch {row[0]}",
                next_step="Stop this engine; a newer one feeds the sink. Nothing was written.",
            )  # fmt: skip
        return int(row[1])

    def _clear(self, connection: Any) -> None:
        """Remove staging tables of writers that died. One that a task still writes to waits for the next time."""
        import psycopg

        left = connection.execute(
            "SELECT relname FROM pg_class WHERE starts_with(relname, %s) AND relkind = 'r'"
            " AND relnamespace = current_schema()::regnamespace",
            (self._staging_prefix,),
        ).fetchall()
        connection.commit()
        for (name,) in left:
            try:
                connection.execute("SET LOCAL lock_timeout = '1s'")
                connection.execute(f'DROP TABLE IF EXISTS "{name}"')
                connection.commit()
            except psycopg.errors.LockNotAvailable:
                connection.rollback()

    # Statements.

    @property
    def _staging_prefix(self) -> str:
        return f"anabranch_staging_{self.goods.sink_id[:16]}_"

    @property
    def _columns(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.goods.fields)

    @property
    def _table(self) -> Any:
        from psycopg import sql

        return sql.Identifier(*self.names)

    def _target_name(self, connection: Any) -> str | None:
        """The table's full name in its database; None if there is no such table."""
        row = connection.execute(
            "SELECT format('%%I.%%I', nspname, relname) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE pg_class.oid = to_regclass(%s)",
            (self._table.as_string(connection),),
        ).fetchone()
        return None if row is None else str(row[0])

    def _make_staging(self, connection: Any, staging: str) -> None:
        from psycopg import sql

        kinds = [("_task", "integer"), ("_attempt", "bigint"), ("_op", "smallint"), ("_weight", "bigint")]
        kinds += [*((f.name, postgres_type(f)) for f in self.goods.fields), *self.memory.staged]
        columns = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in kinds]
        connection.execute(
            sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(sql.Identifier(staging), sql.SQL(", ").join(columns))
        )

    def _copy_into(self, staging: str) -> CopyTask:
        copied = ("_op", "_weight", *self._columns, *(name for name, _ in self.memory.staged))
        listed = ", ".join(_quoted(name) for name in (*_MARKS, *copied))
        return CopyTask(self.uri, self.goods.place, f"COPY {_quoted(staging)} ({listed}) FROM STDIN", copied)

    def _drop_doubles(self, connection: Any, staging: str, reports: Sequence[Report]) -> None:
        """Rows of attempts that Spark did not count."""
        counted = [tuple(report["mark"]) for report in reports if "mark" in report]
        values = ", ".join(f"({int(task)}, {int(attempt)})" for task, attempt in counted) or "(-1, -1)"
        connection.execute(f'DELETE FROM "{staging}" WHERE (_task, _attempt) NOT IN (VALUES {values})')

    def _listed(self, names: Sequence[str]) -> Any:
        from psycopg import sql

        return sql.SQL(", ").join(map(sql.Identifier, names))

    def _matched(self, connection: Any, staging: str) -> Any:
        """Where the keys of the table (t) and of the staging table (s) are equal; by index, unless there are nulls."""
        from psycopg import sql

        asked = [sql.SQL("bool_or({} IS NULL)").format(sql.Identifier(name)) for name in self.goods.key]
        query = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(asked), sql.Identifier(staging))
        nulls = connection.execute(query).fetchone()
        return sql.SQL(" AND ").join(
            sql.SQL("t.{0} IS NOT DISTINCT FROM s.{0}" if null else "t.{0} = s.{0}").format(sql.Identifier(name))
            for name, null in zip(self.goods.key, nulls, strict=True)
        )

    def _require_a_key(self, connection: Any, staging: str) -> None:
        """Every key must come to one row or none; messages of a stream with a key are not counted."""
        from psycopg import sql

        if self.goods.stream.spec.key:
            return
        row = connection.execute(
            sql.SQL(
                "SELECT {0} FROM (SELECT {0}, SUM(_weight) AS more FROM {1} GROUP BY {0}) s"
                " WHERE more + (CASE WHEN EXISTS (SELECT FROM {2} t WHERE {3}) THEN 1 ELSE 0 END) NOT IN (0, 1) LIMIT 1"
            ).format(
                self._listed(self.goods.key), sql.Identifier(staging), self._table, self._matched(connection, staging)
            )
        ).fetchone()
        if row is not None:
            got = ", ".join(f"{name} = {value!r}" for name, value in zip(self.goods.key, row, strict=True))
            raise self._refused(
                f"columns ({', '.join(self.goods.key)}) that tell all rows apart", f"several rows with {got}",
                "Drop the sink and create it again with another KEY.",
            )  # fmt: skip

    def _delete(self, connection: Any, staging: str) -> None:
        from psycopg import sql

        connection.execute(
            sql.SQL("DELETE FROM {} t USING {} s WHERE s._op < 0 AND {}").format(
                self._table, sql.Identifier(staging), self._matched(connection, staging)
            )
        )

    def _insert(self, connection: Any, staging: str, conflict: Any) -> None:
        from psycopg import sql

        query = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} WHERE _op > 0").format(
            self._table, self._listed(self._columns), self._listed(self._columns), sql.Identifier(staging)
        )
        connection.execute(query + conflict if conflict else query)

    def _on_conflict(self) -> Any:
        from psycopg import sql

        others = [name for name in self._columns if name not in self.goods.key]
        sets = [sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others]
        what = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(sets)) if sets else sql.SQL("NOTHING")
        return sql.SQL(" ON CONFLICT ({}) DO {}").format(self._listed(self.goods.key), what)

    def _refused(self, need: str, got: str, next_step: str = "Choose another TABLE, or mend this one.") -> Exception:
        return AnabranchError("SINK_REFUSED", place=self.place, need=need, got=got, next_step=next_step)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _require_client(place: str) -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise AnabranchError(
            "NOT_SUPPORTED",
            place=place,
            need="the PostgreSQL client, here and where Spark's tasks run",
            got="psycopg is not installed",
            next_step="Install it with: pip install 'anabranch[postgres]'.",
        ) from None
