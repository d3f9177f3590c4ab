"""Requests that a profile sends again"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_traffic",
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_traffic_job_id_job")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_traffic")),
    )
