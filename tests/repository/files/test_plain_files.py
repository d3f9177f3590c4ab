"""On which file systems files may change without an event of the system."""

from pathlib import Path

import pytest

from repository.files import plain_files
from repository.files.plain_files import changes_unseen


@pytest.mark.parametrize(
    ("kind", "unseen"),
    [("ext4", False), ("overlay", False), ("", False), ("nfs4", True), ("fuse.sshfs", True)],
)
def test_what_other_machines_write_comes_without_events(
    kind: str, unseen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_files, "_kind_of", lambda device: kind)
    assert changes_unseen(tmp_path) == unseen
