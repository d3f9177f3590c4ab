"""Drift: watched models, their references, what was counted and found"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "drift_watch",
        sa.Column("model", sa.String(length=255), nullable=False),
        sa.Column("terms", sa.JSON(), nullable=False),
        sa.Column("reference", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_by", sa.String(length=255), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("model", name=op.f("pk_drift_watch")),
    )
    op.create_table(
        "drift_reference",
        sa.Column("model", sa.String(length=255), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("model", "version", name=op.f("pk_drift_reference")),
    )
    op.create_table(
        "drift_window",
        sa.Column("model", sa.String(length=255), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("server_id", sa.String(length=255), nullable=False),
        sa.Column("boot", sa.String(length=255), nullable=False),
        sa.Column("span_s", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint(
            "model", "version", "at", "server_id", "boot", name=op.f("pk_drift_window")
        ),
    )
    op.create_table(
        "drift_finding",
        sa.Column("model", sa.String(length=255), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(length=255), nullable=False),
        sa.Column("raised", sa.Boolean(), nullable=False),
        sa.Column("clear", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("model", "version", name=op.f("pk_drift_finding")),
    )
