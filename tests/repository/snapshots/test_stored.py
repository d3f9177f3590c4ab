"""Snapshots that are there: held against their digests, swept, removed."""

import os
import time
from pathlib import Path

import pytest

from repository.files import owner
from repository.snapshots.errors import DamagedSnapshot, UnknownSnapshot
from repository.snapshots.stored import GRACE_S, digests, remove, sweep, verify
from repository.snapshots.write import SealedSnapshot, SnapshotWriter


@pytest.fixture
def made(tmp_path: Path) -> SealedSnapshot:
    with SnapshotWriter(tmp_path).begin("digits") as draft:
        draft.add("1/model", [b"weights"])
        draft.add("1/more", [b"x"])
        return draft.seal()


def opened(made: SealedSnapshot) -> Path:
    """The version's folder, made writable as an intruder would."""
    folder = made.path / "digits/1"
    for path in (made.path, folder.parent, folder, folder / "model", made.path / "manifest.json"):
        path.chmod(0o755)
    return folder


def damage(made: SealedSnapshot) -> str:
    with pytest.raises(DamagedSnapshot) as caught:
        verify(made.path.parent, made.digest)
    assert made.digest in str(caught.value)
    return str(caught.value)


def test_a_changed_byte_is_found_whatever_the_mtime_says(made: SealedSnapshot):
    path = opened(made) / "model"
    info = path.stat()
    path.write_bytes(b"WEIGHTS")
    os.utime(path, ns=(info.st_mtime_ns, info.st_mtime_ns))
    assert "'1/model' has sha256" in damage(made)


def test_a_missing_file_is_found(made: SealedSnapshot):
    (opened(made) / "more").unlink()
    assert "'digits/1/more' is missing" in damage(made)


@pytest.mark.parametrize("name", ["digits/1/extra", "digits/2", "second", "digits/.hidden"])
def test_an_added_file_is_found(made: SealedSnapshot, name: str):
    opened(made)
    (made.path / name).write_bytes(b"")
    assert f"'{name}' was added" in damage(made)


def test_a_link_in_the_place_of_a_file_is_found(made: SealedSnapshot, tmp_path: Path):
    folder = opened(made)
    (folder / "model").rename(tmp_path / "elsewhere")
    (folder / "model").symlink_to(tmp_path / "elsewhere")
    assert "'1/model' cannot be read" in damage(made)


def test_a_link_to_a_folder_is_found(made: SealedSnapshot):
    (opened(made) / "sub").symlink_to("/etc")
    assert "'digits/1/sub' was added" in damage(made)


@pytest.mark.parametrize("text", [b"", b"[]", b'{"model": "digits", "files": []}', b"\xff"])
def test_another_manifest_is_found(made: SealedSnapshot, text: bytes):
    opened(made)
    (made.path / "manifest.json").write_bytes(text)
    assert "manifest.json" in damage(made)


def test_bytecode_that_a_worker_left_is_no_damage(made: SealedSnapshot):
    cache = opened(made) / "__pycache__"
    cache.mkdir()
    (cache / "model.cpython-311.pyc").write_bytes(b"x")
    verify(made.path.parent, made.digest)


def test_a_removed_snapshot_is_gone_and_spares_what_it_shares(made: SealedSnapshot, tmp_path: Path):
    with SnapshotWriter(tmp_path).begin("digits", made.path) as draft:
        draft.add("1/model", [b"weights"])
        other = draft.seal()
    remove(tmp_path, made.digest)
    assert os.listdir(tmp_path) == [other.digest]
    verify(tmp_path, other.digest)


@pytest.mark.parametrize("digest", ["ab" * 32, "..", "", "tmp-x"])
def test_a_snapshot_that_is_not_there_is_unknown(tmp_path: Path, made: SealedSnapshot, digest: str):
    with pytest.raises(UnknownSnapshot):
        remove(tmp_path, digest)
    with pytest.raises(UnknownSnapshot):
        verify(tmp_path, digest)


def test_sweep_leaves_known_and_young_snapshots(made: SealedSnapshot, tmp_path: Path):
    now = time.time()
    assert sweep(tmp_path, owner.alive, {made.digest}, now + 10 * GRACE_S) == []
    assert sweep(tmp_path, owner.alive, (), now) == []
    assert sweep(tmp_path, owner.alive, (), now + 2 * GRACE_S) == [made.digest]
    assert os.listdir(tmp_path) == []


def test_a_snapshot_sealed_again_is_young_again(made: SealedSnapshot, tmp_path: Path):
    os.utime(made.path, (1, 1))
    with SnapshotWriter(tmp_path).begin("digits") as draft:
        draft.add("1/model", [b"weights"])
        draft.add("1/more", [b"x"])
        draft.seal()
    assert sweep(tmp_path, owner.alive, (), time.time()) == []


def test_sweep_leaves_drafts_that_are_being_written(tmp_path: Path):
    with SnapshotWriter(tmp_path).begin("digits") as draft:
        draft.add("1/model", [b"weights"])
        assert sweep(tmp_path, owner.alive, (), time.time()) == []
        assert sweep(tmp_path, lambda token: False, (), time.time()) == []  # its lock is held
        made = draft.seal()
    verify(tmp_path, made.digest)


def test_a_folder_that_is_not_there_has_no_snapshots(tmp_path: Path):
    assert digests(tmp_path / "none") == []
    assert sweep(tmp_path / "none", owner.alive, (), 0) == []
