"""Format 5: what upkeep and branches need.

Revision ID: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("queries", sa.Column("reach", sa.JSON(), nullable=True))
    op.create_index("runs_by_bucket", "runs", ["stream_id", "bucket"], unique=False)

    op.add_column("warehouse", sa.Column("fork_order", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("warehouse", sa.Column("parent_bucket", sa.BigInteger(), nullable=True))
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
