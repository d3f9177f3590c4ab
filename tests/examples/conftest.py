"""The example repository, built once from the command line, as `./dev serve` does it."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every example, built by a process of its own (torch stays out of this one).

    Processes of pytest-xdist share one: the first builds, the others find that it is up to date.
    """
    own = tmp_path_factory.getbasetemp()
    into = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "examples"
    command = [sys.executable, "-m", "examples.build", "--into", str(into)]
    with into.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(command, cwd=ROOT, check=True, timeout=240)
    return into
