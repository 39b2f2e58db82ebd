"""The catalog's tables, the same on SQLite and PostgreSQL.

Alembic brings a catalog to this shape (`migrations/`). Times are microseconds. Every table that a hot path reads has an
index that keeps the read independent of the length of the history.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    false,
)

metadata = MetaData()

BASE = "base"  # the role of a stream into which rows are appended; all others are the engine's own

# SQLite numbers rows by itself only where the key is spelled INTEGER.
_Serial = BigInteger().with_variant(Integer, "sqlite")


def _stream_id(*, key: bool = False) -> Column[int]:
    return Column("stream_id", _Serial, ForeignKey("streams.id"), primary_key=key, nullable=False)


warehouse = Table(
    "warehouse",
    metadata,
    Column("id", String, primary_key=True),
    Column("entry_point", String, nullable=False),
    Column("format", Integer, nullable=False),
    Column("last_stime", BigInteger, nullable=False),
    Column("last_bucket", BigInteger, nullable=False),
    # Counts forks: whatever is released is ordered with them by it, and never by a clock.
    Column("fork_order", BigInteger, nullable=False, server_default="0"),
    # Of a branch: the last bucket and the last stamp that are not its own, but those of what it was forked from.
    Column("parent_bucket", BigInteger),
    Column("parent_stime", BigInteger),
    # Of stream time: what a bucket is, and the unit of its number. Null: buckets are whatever waits, and counted.
    Column("bucket_size", BigInteger),
    Column("marks_since", BigInteger, nullable=False, server_default="0"),  # the first bucket whose marks are known
)

streams = Table(
    "streams",
    metadata,
    Column("id", _Serial, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("spec", JSON, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("last_position", BigInteger, nullable=False),
    Column("progress", BigInteger),
    Column("runs", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("quarantined", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("event_min", BigInteger),
    Column("event_max", BigInteger),
    # Bit c is set when some segment's event-time range has the width class c (see `intervals`).
    Column("width_classes", BigInteger, nullable=False),
    Column("trimmed", BigInteger, nullable=False),  # rows that retention has removed
    Column("role", String, nullable=False, server_default="base"),  # base, derived, partials
    # Where the last recorded bucket ended, and how far the stream had come with it.
    Column("bucket_position", BigInteger, nullable=False, server_default="0"),
    Column("bucket_progress", BigInteger),
    Column("first_revision", BigInteger),  # the position of the first run that may hold anything but insertions
    # Runs are staged when they are committed, and get their positions when a bucket is recorded.
    Column("takes_copies", Boolean, nullable=False, server_default=false()),
    # The number of a dropped stream is never given again: its old writers must not find another one.
    sqlite_autoincrement=True,
)

runs = Table(
    "runs",
    metadata,
    _stream_id(key=True),
    Column("position", BigInteger, primary_key=True),
    Column("first_position", BigInteger, nullable=False),
    Column("entry_point", String, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("stime", BigInteger, nullable=False),
    Column("bucket", BigInteger),
    Column("source", String),
    Column("kind", String, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("quarantined", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("trimmed", BigInteger, nullable=False),  # rows that retention has removed
    Column("event_min", BigInteger),
    Column("event_max", BigInteger),
    Column("key_min", String),
    Column("key_max", String),
    Column("mark", BigInteger),
    Column("progress", BigInteger),
    Column("progress_before", BigInteger),
    Column("stability", String, nullable=False),
    Column("cause", JSON),
    Column("supersedes", JSON, nullable=False),
    Column("schema_version", Integer, nullable=False),
    UniqueConstraint("stream_id", "entry_point", "sequence", name="runs_identity"),
)

Index("runs_by_bucket", runs.c.stream_id, runs.c.bucket)

# Stretches of event time and of positions of which retention has removed rows, inclusive.
trimmed = Table(
    "trimmed",
    metadata,
    _stream_id(key=True),
    Column("axis", String, primary_key=True),  # event, position
    Column("low", BigInteger, primary_key=True),
    Column("high", BigInteger, nullable=False),
)

# Identities of runs whose headers compaction has folded, so that a late retry is still a no-op.
folded_runs = Table(
    "folded_runs",
    metadata,
    _stream_id(key=True),
    Column("entry_point", String, primary_key=True),
    Column("first_sequence", BigInteger, primary_key=True),
    Column("last_sequence", BigInteger, nullable=False),
)

sequences = Table(
    "sequences",
    metadata,
    _stream_id(key=True),
    Column("entry_point", String, primary_key=True),
    Column("last_sequence", BigInteger, nullable=False),
)

sources = Table(
    "sources",
    metadata,
    _stream_id(key=True),
    Column("source", String, primary_key=True),
    Column("mark", BigInteger, nullable=False),  # with all that is in the log
    Column("bucket_mark", BigInteger),  # with the last recorded bucket
)
Index("sources_by_mark", sources.c.stream_id, sources.c.mark)
Index("sources_by_bucket_mark", sources.c.stream_id, sources.c.bucket_mark)

intents = Table(
    "intents",
    metadata,
    Column("id", String, primary_key=True),
    Column("stream_id", BigInteger, nullable=False),  # perhaps of a dropped stream, whose files are left to remove
    Column("holder", String, nullable=False),
    Column("state", String, nullable=False),  # open, ended, lapsed
    Column("expires_at", BigInteger, nullable=False),
    Column("swept", Boolean, nullable=False),
)
Index("intents_by_state", intents.c.state, intents.c.swept)

overlay = Table(
    "overlay",
    metadata,
    Column("id", _Serial, primary_key=True),
    _stream_id(),
    Column("generation", String, nullable=False),  # the intent of the unit of work
    Column("ordinal", BigInteger, nullable=False),
    Column("site", String, nullable=False),
    Column("base_position", BigInteger, nullable=False),
    Column("source", String),
    Column("kind", String, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("event_min", BigInteger),
    Column("event_max", BigInteger),
    UniqueConstraint("stream_id", "generation", "ordinal", name="overlay_identity"),
    sqlite_autoincrement=True,
)

Index("overlay_by_generation", overlay.c.generation)

segments = Table(
    "segments",
    metadata,
    Column("id", _Serial, primary_key=True),
    _stream_id(),
    # Both positions are null while the segment is in the overlay.
    Column("first_position", BigInteger),
    Column("last_position", BigInteger),
    Column("overlay_id", _Serial, ForeignKey("overlay.id")),
    Column("intent_id", String),
    # Null in compacted segments, whose rows carry their own.
    Column("stime", BigInteger),
    Column("entry_point", String),
    Column("sequence", BigInteger),
    Column("source", String),
    Column("path", String, nullable=False),
    Column("role", String, nullable=False),
    Column("format", String, nullable=False),
    Column("reference", Boolean, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("event_min", BigInteger),
    Column("event_max", BigInteger),
    Column("width_class", Integer),
    Column("key_min", String),
    Column("key_max", String),
    Column("footer", String),
    Column("options", JSON, nullable=False),
    Column("ordinal_base", BigInteger, nullable=False),
    # A compactor that was slow must not take a newer segment for one that it has read.
    sqlite_autoincrement=True,
)
Index("segments_by_position", segments.c.stream_id, segments.c.last_position)
Index("segments_by_event", segments.c.stream_id, segments.c.width_class, segments.c.event_min)
Index("segments_by_age", segments.c.stream_id, segments.c.role, segments.c.event_max)
Index("segments_by_intent", segments.c.intent_id)
_OF_MANY = segments.c.first_position < segments.c.last_position  # what was compacted, or reduced
Index(
    "segments_of_many", segments.c.stream_id, segments.c.last_position, sqlite_where=_OF_MANY, postgresql_where=_OF_MANY
)
Index("segments_by_overlay", segments.c.overlay_id)

leases = Table(
    "leases",
    metadata,
    Column("name", String, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", String, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

positions = Table(
    "positions",
    metadata,
    Column("name", String, primary_key=True),
    _stream_id(key=True),
    Column("kind", String, nullable=False),  # query, subscription, sink, as_of, hold
    Column("position", BigInteger, nullable=False),
    Column("ordinal", BigInteger),  # of the position after it, the last item that is no longer needed
)

# Where the changes of a stream go: the definition is the connectors' business.
sinks = Table(
    "sinks",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    _stream_id(),
    Column("definition", JSON, nullable=False),
    Column("position", BigInteger, nullable=False),  # the last one that has arrived there
    Column("halted", JSON(none_as_null=True)),  # the error at which it stopped
)

# Buckets are recorded before they are processed, so that redoing one gives the same answer.
buckets = Table(
    "buckets",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("stime", BigInteger, nullable=False),
    Column("release", Boolean, nullable=False),  # whether deferred revisions are said in it
    Column("first_number", BigInteger),  # the first of those that are folded into it; null: none is
)
Index("buckets_by_stime", buckets.c.stime)

bucket_bounds = Table(
    "bucket_bounds",
    metadata,
    _stream_id(key=True),
    Column("bucket", BigInteger, primary_key=True, autoincrement=False),
    Column("start_position", BigInteger, nullable=False),  # what is after this one
    Column("end_position", BigInteger, nullable=False),  # up to and with this one
    Column("progress", BigInteger),
    Column("rows", BigInteger),  # of the stream, up to there; null: it was not recorded
)

# The marks that a bucket has raised. A source's mark at the end of a bucket is its last one at or before it.
bucket_marks = Table(
    "bucket_marks",
    metadata,
    _stream_id(key=True),
    Column("source", String, primary_key=True),
    Column("bucket", BigInteger, primary_key=True, autoincrement=False),
    Column("mark", BigInteger, nullable=False),
)

# Runs of other places, with their identities and stamps: they get positions when their bucket is recorded.
staged_runs = Table(
    "staged_runs",
    metadata,
    _stream_id(key=True),
    Column("entry_point", String, primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("stime", BigInteger, nullable=False),
    Column("source", String),
    Column("kind", String, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("quarantined", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("event_min", BigInteger),
    Column("event_max", BigInteger),
    Column("key_min", String),
    Column("key_max", String),
    Column("mark", BigInteger),
    Column("cause", JSON),
    Column("supersedes", JSON, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("intent_id", String),
    Column("segments", JSON, nullable=False),
)
Index("staged_runs_by_stime", staged_runs.c.stream_id, staged_runs.c.stime)
Index("staged_runs_by_intent", staged_runs.c.intent_id)

# Partial results that queries share: each is a stream of its own.
stores = Table(
    "stores",
    metadata,
    Column("id", _Serial, primary_key=True),
    _stream_id(),
    Column("definition", JSON, nullable=False),
    Column("bucket", BigInteger),  # the last one it has taken in
    sqlite_autoincrement=True,
)

states = Table(  # what streams amount to up to positions, beside their logs, for whoever reads them again
    "states",
    metadata,
    Column("id", _Serial, primary_key=True),
    _stream_id(),
    Column("hashed", JSON, nullable=False),  # the expressions whose hash tells in which segment a row is
    Column("bucket", BigInteger, nullable=False),  # all rows up to it are in
    Column("position", BigInteger, nullable=False),
    Column("segments", JSON, nullable=False),  # their numbers: found without a look at those of the log
)

queries = Table(
    "queries",
    metadata,
    Column("id", _Serial, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    _stream_id(),
    Column("definition", JSON, nullable=False),
    Column("bucket", BigInteger),  # the last one whose answer it has said
    Column("released", BigInteger),  # the last one up to which its revisions are said
    Column("halted", JSON(none_as_null=True)),  # the error at which it stopped
    Column("feed_id", _Serial, ForeignKey("streams.id")),  # where it says what is tentative
    Column("tentative", JSON(none_as_null=True)),  # what it has said there and not undone
    Column("reach", JSON(none_as_null=True)),  # of a Join by bounds: how far from a row its partners could be
    sqlite_autoincrement=True,
)

query_stores = Table(
    "query_stores",
    metadata,
    Column("query_id", _Serial, ForeignKey("queries.id"), primary_key=True),
    Column("store_id", _Serial, ForeignKey("stores.id"), primary_key=True),
)

views = Table(
    "views",
    metadata,
    Column("name", String, primary_key=True),
    _stream_id(),
    Column("axis", String, nullable=False),  # event, position
    Column("start_value", BigInteger),
    Column("start_moves", Boolean, nullable=False),
    Column("end_value", BigInteger),
    Column("end_moves", Boolean, nullable=False),
)

garbage = Table(
    "garbage",
    metadata,
    Column("path", String, primary_key=True),
    Column("released_at", BigInteger, nullable=False),
    # The catalog's count of forks then: branches that were forked up to it may read the file.
    Column("released_order", BigInteger, nullable=False, server_default="0"),
)
Index("garbage_by_age", garbage.c.released_at)

# Every branch that there is, also one of a branch, in the catalog of main: each row holds what its branch may read.
branches = Table(
    "branches",
    metadata,
    Column("generation", String, primary_key=True),
    Column("name", String, unique=True),  # null: unnamed, or gone
    Column("parent", String),  # a generation; null: main
    Column("fork_order", BigInteger, nullable=False),
    Column("schema_name", String),  # where its catalog is on PostgreSQL; null: a file below its own directory
    Column("state", String, nullable=False),  # forking, live, ended
    Column("holder", String, nullable=False),
    Column("lease_until", BigInteger),  # of what ends with its process; null: stays without one
    Column("expires_at", BigInteger),
    Column("made_at", BigInteger, nullable=False),
)
Index("branches_by_parent", branches.c.parent, branches.c.fork_order)
