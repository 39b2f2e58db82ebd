"""Reading once: the changes of a stream, or its table.

Changes, and the table of a stream of insertions, are read segment by segment, a task for each. A table with
revisions must be added up: one task does that, in memory; for large ones read `engine.table(name)`, which uses
all of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.connectors.source_segments import Part, parts_of, read_part, shaped
from anabranch.engine.netting import VERSION, rows_in_arrow
from anabranch.log.reading import ReadRange

if TYPE_CHECKING:
    from anabranch.connectors.source import Place


@dataclass
class Whole(InputPartition):  # type: ignore[misc]
    """All segments of a table that must be added up; with a key, of each key the latest row counts."""

    parts: list[Part]
    key: tuple[str, ...]


class ChangeReader(DataSourceReader):  # type: ignore[misc]
    """The feed of a stream; options `starting_position` and `ending_position`, both inclusive."""

    def __init__(self, place: Place, schema: T.StructType) -> None:
        self.place = place
        self.arrow = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[Part]:
        options = self.place.options
        with self.place.open() as log:
            stream = log.stream(self.place.stream)
            first = int(options.get("starting_position", 1))
            last = int(options.get("ending_position", stream.last_position))
            wanted = ReadRange(first_position=first, last_position=last) if last >= first else None
            return [] if wanted is None else parts_of(log.plan(stream.name, wanted), str(log.root), first, last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        for batch in read_part(partition, self.arrow.names):
            yield shaped(batch, self.arrow)


class TableReader(DataSourceReader):  # type: ignore[misc]
    """What a stream has said, added up."""

    def __init__(self, place: Place, schema: T.StructType) -> None:
        self.place = place
        self.arrow = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[Part] | list[Whole]:
        with self.place.open() as log:
            stream = log.stream(self.place.stream)
            last = stream.last_position
            parts = parts_of(log.plan(stream.name, ReadRange(held=True)), str(log.root), 1, last)
            plain = not stream.spec.key and not stream.revised_by(last)
            return parts if plain else [Whole(parts, stream.spec.key)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Part):
            for batch in read_part(partition, self.arrow.names):
                yield shaped(batch, self.arrow)
            return
        assert isinstance(partition, Whole)
        carried = ("_change_type", *VERSION)
        batches = [b for part in partition.parts for b in read_part(part, [*self.arrow.names, *carried])]
        if not batches:
            return
        changes = pa.concat_tables([pa.Table.from_batches([b]) for b in batches], promote_options="permissive")
        rows = rows_in_arrow(changes, partition.key, self.arrow.names)
        for batch in rows.combine_chunks().to_batches():
            yield shaped(batch.select(self.arrow.names), self.arrow)
