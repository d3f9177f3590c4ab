"""Makes the version folder of the identity model; the backend needs no file in it."""

from pathlib import Path


def build(version: int, folder: Path) -> None:
    """Keep the folder alive in git, which does not know empty ones."""
    (folder / ".gitkeep").touch()
