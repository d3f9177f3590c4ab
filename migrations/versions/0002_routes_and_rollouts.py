"""Rollouts, and what servers have counted for them"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rollout",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("model", sa.String(length=255), nullable=False),
        sa.Column("stable", sa.BigInteger(), nullable=True),
        sa.Column("candidate", sa.BigInteger(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.Column("phase", sa.String(length=255), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("weight", sa.BigInteger(), nullable=False),
        sa.Column("mirror", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("salt", sa.String(length=255), nullable=False),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollout")),
    )
    with op.batch_alter_table("rollout", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_rollout_name"), ["name"], unique=False)
        batch_op.create_index(batch_op.f("ix_rollout_phase"), ["phase"], unique=False)

    op.create_table(
        "rollout_window",
        sa.Column("rollout_id", sa.String(length=255), nullable=False),
        sa.Column("server_id", sa.String(length=255), nullable=False),
        sa.Column("process", sa.String(length=255), nullable=False),
        sa.Column("arms", sa.JSON(), nullable=False),
        sa.Column("crashes", sa.BigInteger(), nullable=False),
        sa.Column("memory_ratio", sa.Double(), nullable=True),
        sa.Column("in_flight", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout_id"], ["rollout.id"], name=op.f("fk_rollout_window_rollout_id_rollout")
        ),
        sa.PrimaryKeyConstraint(
            "rollout_id", "server_id", "process", name=op.f("pk_rollout_window")
        ),
    )
