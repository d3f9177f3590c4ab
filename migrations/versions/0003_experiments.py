"""Experiments: terms, exposures, feedback, sums and points"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "experiment",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("route", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=255), nullable=False),
        sa.Column("terms", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("first_bucket", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stopped_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("conclusion", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiment")),
        sa.UniqueConstraint("name", name=op.f("uq_experiment_name")),
    )
    with op.batch_alter_table("experiment", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_experiment_route"), ["route"], unique=False)
        batch_op.create_index(batch_op.f("ix_experiment_state"), ["state"], unique=False)

    op.create_table(
        "experiment_exposure",
        sa.Column("experiment_id", sa.String(length=255), nullable=False),
        sa.Column("unit", sa.String(length=255), nullable=False),
        sa.Column("arm", sa.String(length=255), nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("crossed", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiment.id"],
            name=op.f("fk_experiment_exposure_experiment_id_experiment"),
        ),
        sa.PrimaryKeyConstraint("experiment_id", "unit", name=op.f("pk_experiment_exposure")),
    )
    op.create_table(
        "experiment_feedback",
        sa.Column("experiment_id", sa.String(length=255), nullable=False),
        sa.Column("unit", sa.String(length=255), nullable=False),
        sa.Column("metric", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("arm", sa.String(length=255), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiment.id"],
            name=op.f("fk_experiment_feedback_experiment_id_experiment"),
        ),
        sa.PrimaryKeyConstraint(
            "experiment_id", "unit", "metric", "key", name=op.f("pk_experiment_feedback")
        ),
    )
    op.create_table(
        "experiment_point",
        sa.Column("experiment_id", sa.String(length=255), nullable=False),
        sa.Column("metric", sa.String(length=255), nullable=False),
        sa.Column("arm", sa.String(length=255), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.Column("estimate", sa.Double(), nullable=True),
        sa.Column("lower", sa.Double(), nullable=True),
        sa.Column("upper", sa.Double(), nullable=True),
        sa.Column("decision", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiment.id"],
            name=op.f("fk_experiment_point_experiment_id_experiment"),
        ),
        sa.PrimaryKeyConstraint(
            "experiment_id", "metric", "arm", "at", name=op.f("pk_experiment_point")
        ),
    )
    op.create_table(
        "experiment_total",
        sa.Column("experiment_id", sa.String(length=255), nullable=False),
        sa.Column("arm", sa.String(length=255), nullable=False),
        sa.Column("metric", sa.String(length=255), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("ones", sa.BigInteger(), nullable=False),
        sa.Column("mean", sa.Double(), nullable=False),
        sa.Column("m2", sa.Double(), nullable=False),
        sa.Column("histogram", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiment.id"],
            name=op.f("fk_experiment_total_experiment_id_experiment"),
        ),
        sa.PrimaryKeyConstraint("experiment_id", "arm", "metric", name=op.f("pk_experiment_total")),
    )
