"""Why a pushed drift profile cannot be read, and when a version was loaded"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "drift_reference", sa.Column("problem", sa.Text(), nullable=False, server_default="")
    )
    op.add_column("load_state", sa.Column("loaded_at", sa.DateTime(timezone=True), nullable=True))
