"""Reading on and on: a stream's changes as a streaming source of Spark. Offsets are positions of its log.

With the option `changes` each row says what it is. Without it there is no place for that: then a
revision is an error, unless `insert_only` says that insertions are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.connectors.source_segments import Part, parts_of, read_part, shaped
from anabranch.log.reading import ReadRange
from anabranch.model.errors import AnabranchError
from anabranch.model.run import ChangeType

if TYPE_CHECKING:
    from anabranch.connectors.source import Place


class ChangeStream(DataSourceStreamReader):  # type: ignore[misc]
    """Option `starting_position`: the first position that is wanted, or `latest` for what comes from now on."""

    def __init__(self, place: Place, schema: T.StructType) -> None:
        self.place = place
        self.arrow = to_arrow_schema(schema, timezone="UTC")
        self.changes = place.flag("changes")
        self.insert_only = place.flag("insert_only")

    def initialOffset(self) -> dict[str, Any]:
        start = self.place.options.get("starting_position", "1")
        return {"position": self._last() if start == "latest" else int(start) - 1}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        return {"position": max(self._last(), start["position"] if start else 0)}

    def _last(self) -> int:
        with self.place.open() as log:
            return log.stream(self.place.stream).last_position

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        first, last = start["position"] + 1, end["position"]
        if last < first:
            return []
        with self.place.open() as log:
            stream = log.stream(self.place.stream)
            if not self.changes and not self.insert_only and stream.revised_by(last):
                raise AnabranchError(
                    "NOT_SUPPORTED",
                    place=f"readStream of {stream.name!r}, positions {first} to {last}",
                    need="a program that takes revisions, or says that it wants none",
                    got="revisions, and no column to mark them in",
                    next_step="Set .option('changes', 'true'), or .option('insert_only', 'true').",
                )
            plan = log.plan(stream.name, ReadRange(first_position=first, last_position=last))
            return parts_of(plan, str(log.root), first, last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        for batch in read_part(partition, [*self.arrow.names, *([] if self.changes else ["_change_type"])]):
            found = batch
            if self.insert_only:
                found = batch.filter(pc.equal(batch.column("_change_type"), ChangeType.INSERT.value))
            yield shaped(found.select(self.arrow.names), self.arrow)
