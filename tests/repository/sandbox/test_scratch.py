"""Scratch folders go, whatever a process has left in them, and however a server ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from repository.sandbox.scratch import ScratchFolders

SWEEP = """
import os, resource, sys
from pathlib import Path
from repository.sandbox.scratch import ScratchFolders

folders = ScratchFolders(Path(sys.argv[1]))
folders.sweep()
lowest = os.dup(0)
os.close(lowest)
before = os.listdir("/proc/self/fd")
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, most))
try:
    folders.sweep()
except OSError as error:
    print(error.strerror)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
print(os.listdir("/proc/self/fd") == before)
"""
"""With room for the descriptor of the shelf, and for none to list it by."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_sweep_that_fails_leaves_nothing_open_and_so_no_lock(tmp_path: Path) -> None:
    run = [sys.executable, "-c", SWEEP, str(tmp_path / "scratch")]
    said = subprocess.run(run, capture_output=True, check=True, timeout=60, text=True).stdout
    assert said.splitlines() == ["Too many open files", "True"]


def test_a_sweep_removes_what_no_living_server_has(tmp_path: Path) -> None:
    shelf = tmp_path / "scratch"
    (shelf / "abandoned" / "x").mkdir(parents=True)
    living = ScratchFolders(shelf)
    mine = living.make()
    assert os.listdir(shelf) == [mine.parent.name]
    ScratchFolders(shelf).sweep()
    assert mine.is_dir()
    living.close()
    assert os.listdir(shelf) == []


def test_deep_scratch_of_a_killed_server_stops_no_later_one(tmp_path: Path) -> None:
    abandoned = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("deep", dir_fd=abandoned)
        inner = os.open("deep", os.O_RDONLY, dir_fd=abandoned)
        os.close(abandoned)
        abandoned = inner
    os.close(abandoned)
    scratch = ScratchFolders(tmp_path)
    scratch.sweep()
    assert list(tmp_path.iterdir()) == []
    own = scratch.make()
    (own / "file").write_text("x")
    scratch.remove(own)
    assert not own.exists()
    scratch.close()
