"""The example repository, built once from the command line, as `./dev serve` does it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every example, built by a process of its own (torch stays out of this one)."""
    into = tmp_path_factory.mktemp("examples")
    command = [sys.executable, "-m", "examples.build", "--into", str(into)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=240)
    return into
