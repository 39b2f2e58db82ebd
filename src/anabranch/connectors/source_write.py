"""Writing: what a program appends through Spark becomes one run of a base stream.

Tasks write segments under an intent that was registered when the write was planned, and report them; the
commit makes all of them one run, or none. A streaming query's batch has an identity, (the id of its
checkpoint, the number of the batch + 1): one that Spark repeats changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from anabranch.engine.reports import Report
from anabranch.engine.write import WriteTask, add_written, check_types
from anabranch.log.intents import Intent
from anabranch.log.rows import CHANGE_TYPE
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunId

if TYPE_CHECKING:
    from anabranch.connectors.source import Place

# Nobody renews the intent of a write that other processes carry out: a job must be done within it.
LEASE_US = 86_400_000_000


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What one task has written, and under which intent."""

    intent: str
    reports: list[Report]


@dataclass
class Append:
    """One write, as its tasks need it."""

    place: Place
    intent: Intent
    task: WriteTask
    revisions: bool
    source: str | None

    @classmethod
    def plan(cls, place: Place, schema: T.StructType, overwrite: bool) -> Append:
        if overwrite:
            raise AnabranchError(
                "NOT_SUPPORTED", place=f"write to stream {place.stream!r}", need="mode('append')",
                got="mode('overwrite')", next_step="Append; a log is never overwritten.",
            )  # fmt: skip
        on_bad_rows = place.options.get("on_bad_rows", "refuse")
        with place.open() as log:
            stream = log.stream(place.stream)
            unit = log.unit_of_work(stream, source=place.options.get("source"), on_bad_rows=on_bad_rows)
            check_types(schema, stream.spec)
            intent = log.intents.entrust(stream.id, LEASE_US)
            layout = replace(log.layout(stream, intent), threads=1)
            task = WriteTask(layout, stream.spec, unit.bounds, on_bad_rows, 0)
        return cls(place, intent, task, CHANGE_TYPE in schema.names, place.options.get("source"))

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        try:
            reports = list(self.task.reports(batches))
        except AnabranchError as error:
            reports = [{"error": error.parts()}]
        return Written(self.intent.id, reports)

    def commit(self, messages: list[Any], run_id: RunId | None) -> None:
        reports = [report for message in messages if message is not None for report in message.reports]
        intent = replace(self.intent, id=next((m.intent for m in messages if m is not None), self.intent.id))
        with self.place.open() as log:
            stream = log.stream(self.place.stream)
            if run_id is not None and log.moments.knows(stream.id, run_id):
                log.intents.end(intent.id)
            else:
                unit = log.unit_of_work(
                    stream, source=self.source, run_id=run_id, on_bad_rows=self.task.on_bad_rows, intent=intent
                )
                with unit:
                    add_written(reports, unit, revisions=self.revisions)
                    unit.commit()
            if intent.id != self.intent.id:
                log.intents.end(self.intent.id)  # planned again for the commit, and not used

    def abort(self, messages: list[Any]) -> None:
        """What tasks have left is garbage now."""
        with self.place.open() as log:
            for intent_id in {self.intent.id, *(m.intent for m in messages if m is not None)}:
                log.intents.end(intent_id)


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """`frame.write`: one run; the option `run_id`, as `name:7`, makes it safe to repeat."""

    def __init__(self, append: Append) -> None:
        self.append = append

    @classmethod
    def begin(cls, place: Place, schema: T.StructType, overwrite: bool) -> BatchWriter:
        return cls(Append.plan(place, schema, overwrite))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.append.write(iterator)

    def commit(self, messages: list[Any]) -> None:
        name, _, number = self.append.place.options.get("run_id", "").rpartition(":")
        self.append.commit(messages, RunId(name, int(number)) if name else None)

    def abort(self, messages: list[Any]) -> None:
        self.append.abort(messages)


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`frame.writeStream`: one run for each batch."""

    def __init__(self, append: Append) -> None:
        self.append = append

    @classmethod
    def begin(cls, place: Place, schema: T.StructType, overwrite: bool) -> StreamWriter:
        _require_identity(place.options)
        return cls(Append.plan(place, schema, overwrite))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.append.write(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        self.append.commit(messages, RunId(_entry_point(self.append.place.options), batchId + 1))

    def abort(self, messages: list[Any], batchId: int) -> None:
        self.append.abort(messages)


def _require_identity(options: Mapping[str, str]) -> None:
    if not options.get("entry_point") and not options.get("checkpointlocation"):
        raise AnabranchError(
            "BAD_ARGUMENT", place="writeStream.format('anabranch')", need="the option 'checkpointLocation'",
            got="none", next_step="Say where, so that a batch that is repeated can be known.",
        )  # fmt: skip


def _entry_point(options: Mapping[str, str]) -> str:
    """Who numbers the batches: as said, or the id that Spark gave to the checkpoint when it was made."""
    if options.get("entry_point"):
        return options["entry_point"]
    parsed = urlparse(options["checkpointlocation"])
    place = Path(unquote(parsed.path) if parsed.scheme == "file" else options["checkpointlocation"])
    try:
        return f"spark {json.loads((place / 'metadata').read_text())['id']}"
    except (OSError, ValueError, KeyError) as error:
        raise AnabranchError(
            "FILE_UNREADABLE", place=str(place / "metadata"), need="the id of Spark's checkpoint", got=str(error),
            next_step="Use a checkpoint on a file system, or set the option 'entry_point', a name for each checkpoint.",
        ) from error  # fmt: skip
