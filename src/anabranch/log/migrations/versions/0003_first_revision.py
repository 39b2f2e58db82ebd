"""Format 3: a stream knows from which position on it may hold anything but insertions.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("streams", sa.Column("first_revision", sa.BigInteger(), nullable=True))
    # Folded headers do not say what they folded: they may have held revisions.
    op.execute(
        "UPDATE streams SET first_revision = (SELECT MIN(runs.first_position) FROM runs "
        "WHERE runs.stream_id = streams.id AND runs.kind IN ('revisions', 'compacted'))"
    )
