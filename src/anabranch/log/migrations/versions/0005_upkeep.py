"""Format 5: what upkeep and branches need.

Revision ID: 0005
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("queries", sa.Column("reach", sa.JSON(), nullable=True))
    op.create_index("runs_by_bucket", "runs", ["stream_id", "bucket"], unique=False)
    op.drop_index("segments_by_age", "segments")
    op.create_index("segments_by_age", "segments", ["stream_id", "role", "event_max"], unique=False)
    _know_runs_of_segments()
    of_many = sa.text("first_position < last_position")
    op.create_index(
        "segments_of_many", "segments", ["stream_id", "last_position"], sqlite_where=of_many, postgresql_where=of_many
    )
    _make_states()

    op.add_column("warehouse", sa.Column("fork_order", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("warehouse", sa.Column("parent_bucket", sa.BigInteger(), nullable=True))
    op.add_column("warehouse", sa.Column("parent_stime", sa.BigInteger(), nullable=True))
    op.add_column("garbage", sa.Column("released_order", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "branches",
        sa.Column("generation", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column("parent", sa.String(), nullable=True),
        sa.Column("fork_order", sa.BigInteger(), nullable=False),
        sa.Column("schema_name", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("generation"),
        sa.UniqueConstraint("name"),
    )
    op.create_index("branches_by_parent", "branches", ["parent", "fork_order"], unique=False)
    _record_marks()
    _stage_runs()


def _know_runs_of_segments() -> None:
    """A segment knows the identity of its run, by which versions of a key are told apart, also after headers fold."""
    op.add_column("segments", sa.Column("entry_point", sa.String(), nullable=True))
    op.add_column("segments", sa.Column("sequence", sa.BigInteger(), nullable=True))
    # A folded header has the identity of its newest run, which is that of a segment that ends with it.
    its = "(SELECT runs.{0} FROM runs WHERE runs.stream_id = segments.stream_id AND runs.position = last_position)"
    op.execute(
        f"UPDATE segments SET entry_point = {its.format('entry_point')}, sequence = {its.format('sequence')} "
        "WHERE stime IS NOT NULL"
    )
    # Partial results hold the version of each key's latest message. What was compared by position until now had
    # stamps of its own, and positions are gone from versions: older files give nulls for what they do not have.
    connection = op.get_bind()
    streams = sa.table("streams", sa.column("id"), sa.column("role"), sa.column("spec", sa.JSON()))
    for row in connection.execute(sa.select(streams).where(streams.c.role == "partials")).all():
        text = json.dumps(row.spec)
        if _OLD_STAMP in text:
            spec = json.loads(text.replace(_OLD_STAMP, _STAMP))
            connection.execute(streams.update().where(streams.c.id == row.id).values(spec=spec))


_OLD_STAMP = "STRUCT<s: TIMESTAMP, p: BIGINT, o: BIGINT>"
_STAMP = "STRUCT<s: TIMESTAMP, e: STRING, q: BIGINT, o: BIGINT>"


def _record_marks() -> None:
    """Buckets keep the marks of the sources. Those of older ones are not known any more."""
    op.add_column("warehouse", sa.Column("bucket_size", sa.BigInteger(), nullable=True))
    op.add_column("warehouse", sa.Column("marks_since", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("sources", sa.Column("bucket_mark", sa.BigInteger(), nullable=True))
    op.add_column("buckets", sa.Column("first_number", sa.BigInteger(), nullable=True))
    op.add_column("bucket_bounds", sa.Column("rows", sa.BigInteger(), nullable=True))
    op.create_index("sources_by_bucket_mark", "sources", ["stream_id", "bucket_mark"], unique=False)
    op.create_table(
        "bucket_marks",
        sa.Column("stream_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("bucket", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("mark", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.id"]),
        sa.PrimaryKeyConstraint("stream_id", "source", "bucket"),
    )
    # What waits goes into one bucket, with the marks of that moment: as it would have been.
    op.execute("UPDATE sources SET bucket_mark = mark")
    op.execute("UPDATE warehouse SET marks_since = last_bucket")
    op.execute(
        "INSERT INTO bucket_marks (stream_id, source, bucket, mark) "
        "SELECT stream_id, source, last_bucket, mark FROM sources, warehouse WHERE last_bucket > 0"
    )


def _stage_runs() -> None:
    op.add_column("streams", sa.Column("takes_copies", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "staged_runs",
        sa.Column("stream_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("entry_point", sa.String(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("stime", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("quarantined", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("event_min", sa.BigInteger(), nullable=True),
        sa.Column("event_max", sa.BigInteger(), nullable=True),
        sa.Column("key_min", sa.String(), nullable=True),
        sa.Column("key_max", sa.String(), nullable=True),
        sa.Column("mark", sa.BigInteger(), nullable=True),
        sa.Column("cause", sa.JSON(), nullable=True),
        sa.Column("supersedes", sa.JSON(), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("intent_id", sa.String(), nullable=True),
        sa.Column("segments", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.id"]),
        sa.PrimaryKeyConstraint("stream_id", "entry_point", "sequence"),
    )
    op.create_index("staged_runs_by_stime", "staged_runs", ["stream_id", "stime"], unique=False)
    op.create_index("staged_runs_by_intent", "staged_runs", ["intent_id"], unique=False)


def _make_states() -> None:
    """What streams amount to, beside their logs."""
    serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "states",
        sa.Column("id", serial, nullable=False),
        sa.Column("stream_id", serial, nullable=False),
        sa.Column("hashed", sa.JSON(), nullable=False),
        sa.Column("bucket", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("segments", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
