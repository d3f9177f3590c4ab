"""Routes: public names with weighted arms"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "route",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("arms", sa.JSON(), nullable=False),
        sa.Column("salt", sa.String(length=255), nullable=False),
        sa.Column("unit", sa.String(length=255), nullable=False),
        sa.Column("matches", sa.JSON(), nullable=False),
        sa.Column("mirrors", sa.JSON(), nullable=False),
        sa.Column("only", sa.String(length=255), nullable=False),
        sa.Column("rollout_id", sa.String(length=255), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_by", sa.String(length=255), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_route")),
    )
