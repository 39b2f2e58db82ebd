"""Reading what a stream amounts to: the rows of a state (`log/states.py`), all of them or those with some keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from anabranch.diagram.boxes.join import Join
from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.equalities import Equalities, equalities
from anabranch.diagram.reach import BEGINNING, END, Interval
from anabranch.diagram.stages import Leaf, core
from anabranch.engine.live import Live, LiveQuery
from anabranch.engine.paths import literal_path
from anabranch.engine.read import spark_schema
from anabranch.engine.spreading import Parts, holding
from anabranch.log.states import Hashed, Materialised
from anabranch.model.run import Segment
from anabranch.model.schema import Schema
from anabranch.model.stream import StreamSpec

# What the rows of a state carry beside the stream's own columns.
CARRIED = "_event_time TIMESTAMP, _of BIGINT, _weight BIGINT"


@dataclass(frozen=True)
class Asked:
    """Which rows of a state a reader wants: all, or those with some keys, where the state is spread by these."""

    hashed: Hashed = ()
    parts: Parts | None = None

    def of(self, state: Materialised) -> tuple[Segment, ...]:
        segments = [logged.segment for logged in state.segments]
        return tuple(holding(segments, self.parts if state.hashed == self.hashed else None))


ANY = Asked()


def equal_columns(live: Live, query: LiveQuery) -> Equalities:
    """The keys by which a query finds the rows of its inputs; none where a band lets rows in that have other keys."""
    box = core(query.plan)
    assert isinstance(box, Join | Lookup)
    if isinstance(box, Join) and box.banded:
        return Equalities()

    def schema_of(leaf: Leaf) -> Schema:
        upstream = live.query_of(leaf, query.terms)
        if upstream is not None:
            return live.state(upstream.stored.stream_id).spec.schema
        assert isinstance(leaf, Source)
        return live.stream(leaf.stream).spec.schema

    return equalities(box if isinstance(box, Join) else box.pairs, schema_of)


def whole(times: Sequence[Interval]) -> bool:
    """Whether all event times are asked for: a state cannot tell where they are."""
    return any(low <= BEGINNING and high >= END for low, high in times)


def state_schema(spec: StreamSpec) -> Schema:
    own = tuple(field for field in spec.schema if not field.name.startswith("_"))
    return Schema((*own, *Schema.parse(CARRIED, "state").fields))


def read_state(spark: SparkSession, root: Path, spec: StreamSpec, segments: Sequence[Segment]) -> DataFrame:
    """The rows of some segments of a state, each once, with its weight."""
    schema = spark_schema(state_schema(spec))
    return spark.read.schema(schema).parquet(*(literal_path(str(root / s.path)) for s in segments))
