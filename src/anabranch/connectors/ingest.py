"""Any Spark `readStream` into a base stream, each row exactly once across restarts.

Spark remembers in its checkpoint which rows make up which batch, and after a crash runs the last batch
again, with the same rows. A batch becomes one run, whose identity is (this checkpoint, the batch's number
+ 1), committed with its rows: if the log has it already, repeating it changes nothing. The checkpoint's
own id, which Spark gives it when it is made, is part of the identity. So a checkpoint that somebody deletes is a new
beginning, never rows that are quietly taken for old ones.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from anabranch.engine.write import check_frame, write_dataframe
from anabranch.log.log import Log, StreamState
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunId
from anabranch.model.stream import check_name


class Ingests:
    """The streaming queries of Spark that feed the streams of one engine."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._running: dict[str, StreamingQuery] = {}

    def start(
        self,
        stream: StreamState,
        frame: DataFrame,
        *,
        name: str | None,
        checkpoint: str | Path | None,
        source: str | None,
        on_bad_rows: str,
        time_zone: str | None,
        trigger: Mapping[str, Any] | None,
    ) -> StreamingQuery:
        """Start taking rows; mistakes that can be seen before any row comes are raised here."""
        self.log.require_main("an ingest")
        name = stream.name if name is None else name
        check_name(name, "ingest")
        _require_streaming(frame, stream)
        options = {"source": source, "on_bad_rows": on_bad_rows}
        self.log.unit_of_work(stream, **options).abort()  # wrong options are found before there is a row
        check_frame(frame, stream.spec, time_zone=time_zone)
        place = str(checkpoint or self.log.root / "ingest" / str(stream.id) / name)
        self._require_free(place, stream)
        taker = _Taker(self.log, stream, name, time_zone, options)
        writer = frame.writeStream.foreachBatch(taker.take).option("checkpointLocation", place)
        query = (writer.trigger(**trigger) if trigger else writer).start()
        taker.starts(str(query.id))
        self._running[place] = query
        return query

    def _require_free(self, place: str, stream: StreamState) -> None:
        self._running = {there: query for there, query in self._running.items() if query.isActive}
        if place in self._running:
            raise AnabranchError(
                "BAD_ARGUMENT",
                place=f"ingest into stream {stream.name!r}",
                need="a checkpoint that no other ingest is using",
                got=place,
                next_step="Stop the one that runs, or give this one another name=.",
            )

    def stop(self) -> None:
        """Stop all of them; a batch that is not committed is taken again after a restart."""
        running, self._running = self._running, {}
        for query in running.values():
            if query.isActive:
                query.stop()


class _Taker:
    """Commits batches. Spark may call it before it has told us the checkpoint's id: then the batch waits."""

    def __init__(
        self, log: Log, stream: StreamState, name: str, time_zone: str | None, options: Mapping[str, Any]
    ) -> None:
        self.log = log
        self.stream = stream
        self.name = name
        self.time_zone = time_zone
        self.options = options
        self._id = ""
        self._known = threading.Event()

    def starts(self, checkpoint_id: str) -> None:
        self._id = checkpoint_id
        self._known.set()

    def take(self, batch: DataFrame, number: int) -> None:
        self._known.wait()
        run_id = RunId(f"ingest {self.name} {self._id}", number + 1)
        if self.log.moments.knows(self.stream.id, run_id):
            return
        with self.log.unit_of_work(self.stream, run_id=run_id, **self.options) as unit:
            write_dataframe(batch, unit, time_zone=self.time_zone)
            unit.commit()


def _require_streaming(frame: Any, stream: StreamState) -> None:
    place = f"ingest into stream {stream.name!r}"
    if not isinstance(frame, DataFrame):
        raise AnabranchError(
            "BAD_ARGUMENT", place=place, need="a streaming DataFrame", got=f"a {type(frame).__name__}",
            next_step="Pass what spark.readStream gives; append() takes rows, Arrow and pandas data.",
        )  # fmt: skip
    if "connect" in type(frame).__module__:
        raise AnabranchError(
            "NOT_SUPPORTED", place=place, need="a session in this process",
            got="one of Spark Connect, whose batches run on the server",
            next_step="Write with frame.writeStream.format('anabranch') instead.",
        )  # fmt: skip
    if not frame.isStreaming:
        raise AnabranchError(
            "BAD_ARGUMENT", place=place, need="a streaming DataFrame", got="one that is read once",
            next_step="Pass what spark.readStream gives, or use append() for this one.",
        )  # fmt: skip
