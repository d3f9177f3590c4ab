"""Pipelines of offline jobs that a push declares"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pipeline",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("model", sa.String(length=255), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=255), nullable=False),
        sa.Column("push", sa.String(length=255), nullable=False),
        sa.Column("steps", sa.JSON(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=255), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("outcome", sa.String(length=255), nullable=False),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pipeline")),
    )
    op.create_index(op.f("ix_pipeline_model"), "pipeline", ["model"])
    op.create_index(op.f("ix_pipeline_state"), "pipeline", ["state"])
    pipeline = sa.Column("pipeline", sa.String(length=255), nullable=False, server_default="")
    op.add_column("job", pipeline)
    op.add_column("job", sa.Column("step", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index(op.f("ix_job_pipeline"), "job", ["pipeline"])
