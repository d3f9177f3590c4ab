"""Rollouts: what was seen of each, and when"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rollout_moment",
        sa.Column("rollout_id", sa.String(length=255), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("moved", sa.Boolean(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout_id"], ["rollout.id"], name=op.f("fk_rollout_moment_rollout_id_rollout")
        ),
        sa.PrimaryKeyConstraint("rollout_id", "number", name=op.f("pk_rollout_moment")),
    )
