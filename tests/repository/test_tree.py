"""Trees as others left them: deep, closed, with links; walked, measured and removed."""

import ctypes
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from repository.tree import TreeSize, remove, size_of, walk

DEEP = 1200
"""Deeper than Python's stack bears; with this name longer than a path may be."""
NAME = "folder"
NOBODY = 65534


def nest(top: Path, depth: int, name: str = NAME) -> None:
    descriptor = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=descriptor)
        inner = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)


@pytest.fixture
def somebody() -> Iterator[Path]:
    """A folder of another user than root, as whom files are used meanwhile."""
    if os.geteuid() != 0:
        pytest.skip("only root can use files as somebody else")
    folder = Path(tempfile.mkdtemp())
    os.chown(folder, NOBODY, NOBODY)
    libc = ctypes.CDLL(None)
    libc.setfsuid(NOBODY)  # of this thread alone
    try:
        yield folder
    finally:
        libc.setfsuid(0)
        remove(folder)


def test_folders_nested_deeper_than_the_stack_are_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "file").write_bytes(b"x")
    nest(top, DEEP)
    remove(top)
    remove(top)
    assert not top.exists()


def test_folders_nested_deeper_than_the_stack_are_walked(tmp_path: Path) -> None:
    nest(tmp_path, DEEP, "d")
    assert [entry.depth for entry in walk(tmp_path)] == list(range(1, DEEP + 1))
    remove(tmp_path / "d")


def test_what_lies_beyond_the_longest_path_is_unread(tmp_path: Path) -> None:
    nest(tmp_path, DEEP)
    assert size_of(tmp_path).unread
    remove(tmp_path / NAME)


def test_a_size_stops_at_its_bounds(tmp_path: Path) -> None:
    nest(tmp_path, 5)
    assert size_of(tmp_path, most_depth=3) == TreeSize(0, 4, 4)
    assert size_of(tmp_path, most_entries=2) == TreeSize(0, 3, 3)
    assert size_of(tmp_path, most_entries=5, most_depth=5) == TreeSize(0, 5, 5)


def test_holes_take_no_room_and_links_are_not_followed(tmp_path: Path) -> None:
    outside, top = tmp_path / "outside", tmp_path / "top"
    outside.mkdir()
    (outside / "kept").write_bytes(b"x" * 100_000)
    top.mkdir()
    (top / "link").symlink_to(outside)
    with (top / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    assert size_of(top).disk_bytes < 100_000
    remove(top)
    assert (outside / "kept").exists()


def test_a_link_is_not_removed_as_a_folder(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with pytest.raises(OSError, match="directory"):
        remove(tmp_path / "link")
    assert (tmp_path / "there").exists()


def test_a_folder_without_permissions_is_told_of_and_removed(somebody: Path) -> None:
    closed = somebody / "top" / "closed"
    (closed / "inner").mkdir(parents=True)
    (closed / "inner" / "file").write_bytes(b"x")
    for folder in (closed / "inner", closed):
        folder.chmod(0)
    assert size_of(somebody).unread == str(closed)
    remove(somebody / "top")
    assert list(somebody.iterdir()) == []


def test_what_can_be_removed_is_although_something_stays(somebody: Path) -> None:
    """A folder of somebody else's in which this user may not write."""
    top = somebody / "top"
    (top / "own").mkdir(parents=True)
    (top / "foreign").mkdir()
    (top / "foreign" / "file").write_bytes(b"x")
    libc = ctypes.CDLL(None)
    libc.setfsuid(0)
    os.chown(top / "foreign", 0, 0)
    libc.setfsuid(NOBODY)
    with pytest.raises(PermissionError):
        remove(top)
    libc.setfsuid(0)
    assert [one.name for one in top.rglob("*")] == ["foreign", "file"]
