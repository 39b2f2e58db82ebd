"""The tables of format 1.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    # SQLite numbers rows by itself only where the key is spelled INTEGER.
    serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "garbage",
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("released_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("path"),
    )
    op.create_index("garbage_by_age", "garbage", ["released_at"], unique=False)
    op.create_table(
        "intents",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("swept", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("intents_by_state", "intents", ["state", "swept"], unique=False)
    op.create_table(
        "leases",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "streams",
        sa.Column("id", serial, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("last_position", sa.BigInteger(), nullable=False),
        sa.Column("progress", sa.BigInteger(), nullable=True),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("quarantined", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("event_min", sa.BigInteger(), nullable=True),
        sa.Column("event_max", sa.BigInteger(), nullable=True),
        sa.Column("width_classes", sa.BigInteger(), nullable=False),
        sa.Column("trimmed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "warehouse",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("entry_point", sa.String(), nullable=False),
        sa.Column("format", sa.Integer(), nullable=False),
        sa.Column("last_stime", sa.BigInteger(), nullable=False),
        sa.Column("last_bucket", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "folded_runs",
        sa.Column("stream_id", serial, nullable=False),
        sa.Column("entry_point", sa.String(), nullable=False),
        sa.Column("first_sequence", sa.BigInteger(), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["stream_id"],
            ["streams.id"],
        ),
        sa.PrimaryKeyConstraint("stream_id", "entry_point", "first_sequence"),
    )
    op.create_table(
        "overlay",
        sa.Column("id", serial, nullable=False),
        sa.Column("stream_id", serial, nullable=False),
        sa.Column("generation", sa.String(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("site", sa.String(), nullable=False),
        sa.Column("base_position", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("event_min", sa.BigInteger(), nullable=True),
        sa.Column("event_max", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["stream_id"],
            ["streams.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("stream_id", "generation", "ordinal", name="overlay_identity"),
        sqlite_autoincrement=True,
    )
    op.create_index("overlay_by_generation", "overlay", ["generation"], unique=False)
    op.create_table(
        "positions",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("stream_id", serial, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["stream_id"],
            ["streams.id"],
        ),
        sa.PrimaryKeyConstraint("name", "stream_id"),
    )
    op.create_table(
        "runs",
        sa.Column("stream_id", serial, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("first_position", sa.BigInteger(), nullable=False),
        sa.Column("entry_point", sa.String(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("stime", sa.BigInteger(), nullable=False),
        sa.Column("bucket", sa.BigInteger(), nullable=True),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("quarantined", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("trimmed", sa.BigInteger(), nullable=False),
        sa.Column("event_min", sa.BigInteger(), nullable=True),
        sa.Column("event_max", sa.BigInteger(), nullable=True),
        sa.Column("key_min", sa.String(), nullable=True),
        sa.Column("key_max", sa.String(), nullable=True),
        sa.Column("mark", sa.BigInteger(), nullable=True),
        sa.Column("progress", sa.BigInteger(), nullable=True),
        sa.Column("progress_before", sa.BigInteger(), nullable=True),
        sa.Column("stability", sa.String(), nullable=False),
        sa.Column("cause", sa.JSON(), nullable=True),
        sa.Column("supersedes", sa.JSON(), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["stream_id"],
            ["streams.id"],
        ),
        sa.PrimaryKeyConstraint("stream_id", "position"),
        sa.UniqueConstraint("stream_id", "entry_point", "sequence", name="runs_identity"),
    )
    op.create_table(
        "sequences",
        sa.Column("stream_id", serial, nullable=False),
        sa.Column("entry_point", sa.String(), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["stream_id"],
            ["streams.id"],
        ),
        sa.PrimaryKeyConstraint("stream_id", "entry_point"),
    )
    op.create_table(
        "sources",
        sa.Column("stream_id", serial, nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("mark", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["stream_id"],
            ["streams.id"],
        ),
        sa.PrimaryKeyConstraint("stream_id", "source"),
    )
    op.create_index("sources_by_mark", "sources", ["stream_id", "mark"], unique=False)
    op.create_table(
        "trimmed",
        sa.Column("stream_id", serial, nullable=False),
        sa.Column("axis", sa.String(), nullable=False),
        sa.Column("low", sa.BigInteger(), nullable=False),
        sa.Column("high", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["stream_id"],
            ["streams.id"],
        ),
        sa.PrimaryKeyConstraint("stream_id", "axis", "low"),
    )
    op.create_table(
        "views",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("stream_id", serial, nullable=False),
        sa.Column("axis", sa.String(), nullable=False),
        sa.Column("start_value", sa.BigInteger(), nullable=True),
        sa.Column("start_moves", sa.Boolean(), nullable=False),
        sa.Column("end_value", sa.BigInteger(), nullable=True),
        sa.Column("end_moves", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["stream_id"],
            ["streams.id"],
        ),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "segments",
        sa.Column("id", serial, nullable=False),
        sa.Column("stream_id", serial, nullable=False),
        sa.Column("first_position", sa.BigInteger(), nullable=True),
        sa.Column("last_position", sa.BigInteger(), nullable=True),
        sa.Column("overlay_id", serial, nullable=True),
        sa.Column("intent_id", sa.String(), nullable=True),
        sa.Column("stime", sa.BigInteger(), nullable=True),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("format", sa.String(), nullable=False),
        sa.Column("reference", sa.Boolean(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("event_min", sa.BigInteger(), nullable=True),
        sa.Column("event_max", sa.BigInteger(), nullable=True),
        sa.Column("width_class", sa.Integer(), nullable=True),
        sa.Column("key_min", sa.String(), nullable=True),
        sa.Column("key_max", sa.String(), nullable=True),
        sa.Column("footer", sa.String(), nullable=True),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("ordinal_base", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["overlay_id"],
            ["overlay.id"],
        ),
        sa.ForeignKeyConstraint(
            ["stream_id"],
            ["streams.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("segments_by_age", "segments", ["stream_id", "event_max"], unique=False)
    op.create_index("segments_by_event", "segments", ["stream_id", "width_class", "event_min"], unique=False)
    op.create_index("segments_by_intent", "segments", ["intent_id"], unique=False)
    op.create_index("segments_by_overlay", "segments", ["overlay_id"], unique=False)
    op.create_index("segments_by_position", "segments", ["stream_id", "last_position"], unique=False)
