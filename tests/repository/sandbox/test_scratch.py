"""Scratch folders go, whatever a process has left in them."""

import os
from pathlib import Path

from repository.sandbox.scratch import ScratchFolders


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
