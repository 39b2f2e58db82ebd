"""Format 2: buckets, queries and the partial results they share.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "buckets",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stime", sa.BigInteger(), nullable=False),
        sa.Column("release", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("buckets_by_stime", "buckets", ["stime"], unique=False)
    op.create_table(
        "bucket_bounds",
        sa.Column("stream_id", serial, nullable=False),
        sa.Column("bucket", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("start_position", sa.BigInteger(), nullable=False),
        sa.Column("end_position", sa.BigInteger(), nullable=False),
        sa.Column("progress", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.id"]),
        sa.PrimaryKeyConstraint("stream_id", "bucket"),
    )
    op.create_table(
        "queries",
        sa.Column("id", serial, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("stream_id", serial, nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("bucket", sa.BigInteger(), nullable=True),
        sa.Column("released", sa.BigInteger(), nullable=True),
        sa.Column("halted", sa.JSON(), nullable=True),
        sa.Column("feed_id", serial, nullable=True),
        sa.Column("tentative", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.id"]),
        sa.ForeignKeyConstraint(["feed_id"], ["streams.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "stores",
        sa.Column("id", serial, nullable=False),
        sa.Column("stream_id", serial, nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("bucket", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.id"]),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "query_stores",
        sa.Column("query_id", serial, nullable=False),
        sa.Column("store_id", serial, nullable=False),
        sa.ForeignKeyConstraint(["query_id"], ["queries.id"]),
        sa.ForeignKeyConstraint(["store_id"], ["stores.id"]),
        sa.PrimaryKeyConstraint("query_id", "store_id"),
    )
    op.add_column("streams", sa.Column("role", sa.String(), server_default="base", nullable=False))
    op.add_column("streams", sa.Column("bucket_position", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("streams", sa.Column("bucket_progress", sa.BigInteger(), nullable=True))
