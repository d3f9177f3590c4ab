"""Files that are whole or not there."""

import errno
import os
from hashlib import sha256
from pathlib import Path

import pytest

from repository.errors import DiskFull
from repository.files import durable


def test_a_symlink_is_neither_created_through_nor_opened(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        durable.create(tmp_path / "link")
    (tmp_path / "target").write_bytes(b"x")
    with pytest.raises(OSError, match="symbolic links"):
        durable.open_file(tmp_path / "link")


def test_a_finished_file_is_told_from_one_of_the_same_length(tmp_path: Path):
    digest = sha256(b"weights").hexdigest()
    descriptor = durable.create(tmp_path / "file")
    durable.write_all(descriptor, b"weights")
    durable.finish(descriptor, digest)
    os.close(descriptor)
    info = (tmp_path / "file").stat()
    assert durable.is_stamped(info, digest, 7)
    assert not durable.is_stamped(info, sha256(b"WEIGHTS").hexdigest(), 7)
    assert durable.hash_file(tmp_path / "file") == (digest, 7)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
def test_a_full_disk_is_told_with_the_thing_and_the_remedy():
    descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(DiskFull, match=r"object x .* free space"), durable.room_for("object x"):
            durable.write_all(descriptor, b"x")
    finally:
        os.close(descriptor)


def test_other_errors_pass():
    with pytest.raises(PermissionError), durable.room_for("object x"):
        raise PermissionError(errno.EACCES, "denied")


def test_a_read_only_folder_is_deleted_and_what_it_links_to_is_not(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"x")
    doomed = tmp_path / "doomed"
    (doomed / "sub").mkdir(parents=True)
    (doomed / "sub/file").write_bytes(b"x")
    (doomed / "link").symlink_to(outside)
    outside.chmod(0o555)
    for folder in (doomed / "sub", doomed):
        folder.chmod(0o555)
    durable.delete(doomed)
    durable.delete(doomed)
    assert not doomed.exists()
    assert (outside / "kept").exists()
    assert outside.stat().st_mode & 0o777 == 0o555


def test_a_lock_is_had_once(tmp_path: Path):
    assert durable.unlocked(tmp_path)
    descriptor = durable.lock(tmp_path)
    assert not durable.unlocked(tmp_path)
    os.close(descriptor)
    assert durable.unlocked(tmp_path)
