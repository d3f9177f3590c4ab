"""Fixtures of databases."""

from support.control import migrated_sqlite as migrated_sqlite
