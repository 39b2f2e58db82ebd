"""Format 5: what upkeep and branches need.

Revision ID: 0005
"""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_index("runs_by_bucket", "runs", ["stream_id", "bucket"], unique=False)
