"""Alembic's entry: runs the migrations on the connection `control.sql.migrate` hands over."""

from alembic import context

from control.all_tables import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    render_as_batch=True,
    compare_type=True,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
