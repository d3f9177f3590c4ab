"""`running`: the console over SQLite; `night`: the same over a database with deployments in it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from control.sql.database import Database
from support.admin import Api
from support.console import console_over
from support.control import *  # noqa: F403
from support.deployed import deploy
from support.passwords import cheap_passwords  # noqa: F401


@pytest.fixture
def sqlite(tmp_path: Path, migrated_sqlite: Path) -> Iterator[Database]:
    shutil.copy(migrated_sqlite, tmp_path / "modelyard.db")
    opened = Database(f"sqlite:///{tmp_path}/modelyard.db")
    yield opened
    opened.close()


@pytest.fixture
def running(sqlite: Database, tmp_path: Path) -> Iterator[Api]:
    with console_over(sqlite, tmp_path) as one:
        yield one


@pytest.fixture
def night(running: Api) -> Api:
    """`digits` 1 and 2 by two pushes to `vision`."""
    deploy(running.database)
    return running
