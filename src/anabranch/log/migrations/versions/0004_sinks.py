"""Format 4: sinks, and subscriptions that have taken a part of a run.

Revision ID: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "sinks",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("stream_id", serial, nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("halted", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.add_column("positions", sa.Column("ordinal", sa.BigInteger(), nullable=True))
