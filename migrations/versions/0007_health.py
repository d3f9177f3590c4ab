"""The health of versions, beside their load states"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("health", "health_code"):
        column = sa.Column(name, sa.String(length=255), nullable=False, server_default="")
        op.add_column("load_state", column)
    op.add_column(
        "load_state", sa.Column("health_reason", sa.Text(), nullable=False, server_default="")
    )
    since = sa.Column(
        "health_since", sa.DateTime(timezone=True), nullable=False,
        server_default="1970-01-01 00:00:00+00:00",
    )  # fmt: skip
    op.add_column("load_state", since)
    # Every gateway says all of it again when it connects.
    op.execute("UPDATE load_state SET health = state, health_since = at")
