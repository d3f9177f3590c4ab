"""A version with a recipe, trained once."""

from pathlib import Path

import pytest

from support.recipes import make_version


@pytest.fixture(scope="session")
def dots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = make_version(tmp_path_factory.mktemp("dots") / "version")
    return folder
