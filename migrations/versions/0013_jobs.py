"""Offline jobs: rows, what they print and report, and where a version came from"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("type", sa.String(length=255), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("model", sa.String(length=255), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("sources", sa.JSON(), nullable=False),
        sa.Column("result_model", sa.String(length=255), nullable=False),
        sa.Column("result_version", sa.BigInteger(), nullable=True),
        sa.Column("result_digest", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=255), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("heavy", sa.Boolean(), nullable=False),
        sa.Column("limits", sa.JSON(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("most_attempts", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("machine", sa.String(length=255), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel", sa.Boolean(), nullable=False),
        sa.Column("fraction", sa.Double(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.Column("cost", sa.JSON(), nullable=False),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
    )
    op.create_index(op.f("ix_job_state"), "job", ["state"])
    op.create_index(op.f("ix_job_model"), "job", ["model"])
    op.create_table(
        "job_output",
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("log", sa.Text(), nullable=False),
        sa.Column("points", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_output_job_id_job")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_output")),
    )
    op.create_table(
        "job_report",
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_report")),
    )
    op.add_column("version", sa.Column("lineage", sa.JSON(), nullable=True))
