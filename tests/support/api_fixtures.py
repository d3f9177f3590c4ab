"""Fixtures. `running`: the API over SQLite; `anywhere`: over SQLite and, once more, PostgreSQL."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from control.sql.database import Database
from support.admin import Api, api


@pytest.fixture
def sqlite(tmp_path: Path, migrated_sqlite: Path) -> Iterator[Database]:
    shutil.copy(migrated_sqlite, tmp_path / "modelyard.db")
    opened = Database(f"sqlite:///{tmp_path}/modelyard.db")
    yield opened
    opened.close()


@pytest.fixture
def running(sqlite: Database, tmp_path: Path) -> Iterator[Api]:
    with api(sqlite, tmp_path) as one:
        yield one


@pytest.fixture
def anywhere(database: Database, tmp_path: Path) -> Iterator[Api]:
    with api(database, tmp_path) as one:
        yield one
