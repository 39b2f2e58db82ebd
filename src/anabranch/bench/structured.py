"""Structured Streaming as a rival: the same counts per campaign and minute, in micro-batches over files.

It runs as Spark comes, with one shuffle partition for each core; where told, with its state in RocksDB, which takes
less memory. Where it appends, its own Parquet sink commits the batches; where it updates, each batch is written to a
directory of its own, and what was said last of a window counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from anabranch.bench.judge import duckdb
from anabranch.engine.driver import local_memory, machine_memory

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class Micro:
    """A streaming query: what it reads, what it waits for, and how it is cut."""

    columns: str
    where: str
    watermark: str
    mode: str  # append or update
    files_a_batch: int
    rocksdb: bool = False

    def start(self, spark: SparkSession, files: str, place: Path) -> StreamingQuery:
        """Begin to process the files that are there and were not processed before; it ends by itself."""
        session = plain_session(spark)
        if self.rocksdb:
            session.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
        writer = self._counts(session, files).writeStream.outputMode(self.mode)
        writer = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
        if self.mode == "append":
            return writer.format("parquet").start(str(place / "said"))

        def write(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").parquet(str(place / "said" / f"batch={number}"))

        return writer.foreachBatch(write).start()

    def _counts(self, session: SparkSession, files: str) -> DataFrame:
        reader = session.readStream.schema(self.columns).option("maxFilesPerTrigger", self.files_a_batch)
        rows = reader.parquet(files).where(self.where).withWatermark("ts", self.watermark)
        counted = [F.count("*").alias("c"), F.sum("price").alias("s")]
        groups = rows.groupBy("campaign", F.window("ts", "1 minute")).agg(*counted)
        return groups.selectExpr("campaign", "unix_micros(window.start) DIV 60000000 AS w", "c", "s")


def counted(spark: SparkSession, paths: Sequence[str], kept: str) -> DataFrame:
    """The same counts as a batch."""
    rows = plain_session(spark).read.parquet(*paths).where(f"kind = '{kept}'")
    groups = rows.groupBy("campaign", F.expr("unix_micros(ts) DIV 60000000").alias("w"))
    return groups.agg(F.count("*").alias("c"), F.sum("price").alias("s"))


@contextmanager
def plain_spark() -> Iterator[SparkSession]:
    """Spark as people start it, with the heap that the engine would have; the one that runs, if one does."""
    if SparkContext._active_spark_context is not None:
        yield SparkSession.builder.getOrCreate()
        return
    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", local_memory(machine_memory())).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def plain_session(spark: SparkSession) -> SparkSession:
    """Spark's own settings, not the engine's."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    return session


def said(place: Path) -> pa.Table:
    """What a query has said in the end."""
    sql = f"""
        SELECT campaign, w, arg_max(c, batch) AS c, arg_max(s, batch) AS s
        FROM read_parquet('{place}/said/batch=*/*.parquet', hive_partitioning = true) GROUP BY ALL
    """
    if not any((place / "said").glob("batch=*")):
        sql = f"SELECT campaign, w, c, s FROM read_parquet('{place}/said/*.parquet')"
    with duckdb().connect() as db:
        return db.sql(sql).to_arrow_table()
