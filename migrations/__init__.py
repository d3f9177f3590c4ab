"""Alembic's folder: one file per change of the tables, run by `control.sql.migrate` on start."""
