"""Spark's own `format("anabranch")`: streams of a warehouse for programs that only speak Spark.

    ab.register(spark)
    spark.read.format("anabranch").option("warehouse", place).load("counts")
    spark.readStream.format("anabranch").option("warehouse", place).option("changes", "true").load("counts")
    frame.write.format("anabranch").option("warehouse", place).mode("append").save("impsns")

Options: `warehouse`; `catalog`, where it is not in the warehouse; `changes`, for the feed instead of the
table. Spark plans in processes of its own, which look into the catalog; segments are read and written in tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource

from anabranch.connectors.source_read import ChangeReader, TableReader
from anabranch.connectors.source_stream import ChangeStream
from anabranch.connectors.source_write import BatchWriter, StreamWriter
from anabranch.engine.read import spark_schema
from anabranch.log.log import Log, StreamState
from anabranch.model.errors import AnabranchError
from anabranch.model.schema import Schema

CHANGE_FIELDS = T.StructType(
    [
        T.StructField("_change_type", T.StringType()),
        T.StructField("_stability", T.StringType()),
        T.StructField("_bucket", T.LongType()),
        T.StructField("_ordinal", T.LongType()),
        T.StructField("_position", T.LongType()),
        T.StructField("_stime", T.TimestampType()),
    ]
)


def register(spark: SparkSession) -> None:
    """Make `format("anabranch")` known to a session; once more changes nothing."""
    if "connect" in type(spark).__module__:
        spark.dataSource.register(AnabranchSource)
        return
    # Spark looks the name up in the session that is active in this thread, whichever one is meant, and takes one
    # that it finds there for a clash. Making a DataFrame is what makes a session active.
    before = SparkSession.getActiveSession()
    _activate(spark)
    spark.dataSource.register(AnabranchSource)
    if before is not None:
        _activate(before)


def _activate(spark: SparkSession) -> None:
    spark.createDataFrame([], "nothing INT")


@dataclass(frozen=True)
class Place:
    """A stream of a warehouse, and how it is asked for."""

    warehouse: str
    catalog: str | None
    stream: str
    options: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Place:
        stream = options.get("stream") or options.get("path") or ""
        for name, value in (("warehouse", options.get("warehouse")), ("stream", stream)):
            if not value:
                raise AnabranchError(
                    "BAD_ARGUMENT", place="format('anabranch')", need=f"the option {name!r}", got="none",
                    next_step="Write .option('warehouse', place).load('stream').",
                )  # fmt: skip
        return cls(options["warehouse"], options.get("catalog"), stream, dict(options))

    def open(self) -> Log:
        return Log(self.warehouse, self.catalog, create=False)

    def flag(self, name: str) -> bool:
        value = self.options.get(name.lower(), self.options.get(name, "false")).lower()
        if value not in ("true", "false"):
            raise AnabranchError(
                "BAD_ARGUMENT", place=f"format('anabranch'), option {name!r}", need="true or false", got=repr(value),
                next_step="Choose one.",
            )  # fmt: skip
        return value == "true"


def own_schema(stream: StreamState) -> T.StructType:
    """The user's columns."""
    fields = tuple(field for field in stream.spec.schema if not field.name.startswith("_"))
    nullable = [T.StructField(f.name, f.dataType) for f in spark_schema(Schema(fields))]
    return T.StructType(nullable)


class AnabranchSource(DataSource):  # type: ignore[misc]
    """What Spark asks when a program says `format("anabranch")`."""

    @classmethod
    def name(cls) -> str:
        return "anabranch"

    @property
    def _place(self) -> Place:
        return Place.of({name.lower(): value for name, value in self.options.items()})

    def schema(self) -> T.StructType:
        place = self._place
        with place.open() as log:
            own = own_schema(log.stream(place.stream))
        return T.StructType([*own, *CHANGE_FIELDS]) if place.flag("changes") else own

    def reader(self, schema: T.StructType) -> Any:
        return (ChangeReader if self._place.flag("changes") else TableReader)(self._place, schema)

    def streamReader(self, schema: T.StructType) -> Any:
        return ChangeStream(self._place, schema)

    def writer(self, schema: T.StructType, overwrite: bool) -> Any:
        return BatchWriter.begin(self._place, schema, overwrite)

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> Any:
        return StreamWriter.begin(self._place, schema, overwrite)
