"""The demo's rival: Spark Structured Streaming over the same files, in the same session, with a watermark."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from anabranch.cli.demo_feed import Answer
from anabranch.cli.values import rows_of

WATERMARK = "2 minutes"
_NAME = "structured_streaming"
_QUERY = """
    SELECT window(ts, '1 minute').start AS minute, campaign, count(*) AS views, sum(price) AS revenue
    FROM impressions_feed GROUP BY window(ts, '1 minute'), campaign
"""


class Rival:
    """A query in append mode: each window is said once, when the watermark has passed it, and never corrected."""

    def __init__(self, spark: Any, files: Path, checkpoint: Path) -> None:
        files.mkdir(parents=True, exist_ok=True)
        self._spark = spark
        feed = (
            spark.readStream.schema("campaign INT, price DECIMAL(8, 2), ts TIMESTAMP")
            .option("recursiveFileLookup", "true")
            .parquet(str(files))
        )
        feed.withWatermark("ts", WATERMARK).createOrReplaceTempView("impressions_feed")
        self._query = (
            spark.sql(_QUERY)
            .writeStream.format("memory")
            .queryName(_NAME)
            .outputMode("append")
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime="100 milliseconds")
            .start()
        )

    def catch_up(self) -> None:
        """Process all files that are there."""
        self._query.processAllAvailable()

    def answer(self) -> Answer:
        """All that was said so far."""
        rows = rows_of(self._spark.table(_NAME), "Structured Streaming")
        return {(row["minute"], row["campaign"]): (row["views"], row["revenue"]) for row in rows}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._query.stop()
