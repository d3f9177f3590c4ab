"""`running`: the API over SQLite with its socket where a server's state folder has it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from control.sql.database import Database
from support.admin import Api, api
from support.control import *  # noqa: F403


@pytest.fixture
def running(tmp_path: Path, migrated_sqlite: Path) -> Iterator[Api]:
    folder = tmp_path / "state" / "run"
    folder.mkdir(parents=True)
    shutil.copy(migrated_sqlite, tmp_path / "modelyard.db")
    database = Database(f"sqlite:///{tmp_path}/modelyard.db")
    with api(database, folder) as one:
        yield one
    database.close()
