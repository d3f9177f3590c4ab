"""Copies the python model into its version folder."""

import shutil
from pathlib import Path


def build(version: int, folder: Path) -> None:
    """A python model is its source."""
    shutil.copy(Path(__file__).with_name("model.py"), folder / "model.py")
