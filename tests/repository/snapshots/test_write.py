"""Snapshots written to a real disk."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from repository.files import owner
from repository.files.durable import create, finish, write_all
from repository.folders.snapshot import scan
from repository.lfs.store import LfsStore
from repository.snapshots.errors import BadEntry
from repository.snapshots.stored import digests, sweep, verify
from repository.snapshots.write import SealedSnapshot, SnapshotWriter
from support.killing import killed_at_every_step
from support.repository import CONFIG

NOW = 4e9
"""Long after the tests, so that nothing is young."""


def sealed(root: Path, beside: Path | None = None, **files: bytes) -> SealedSnapshot:
    """A snapshot of model 'digits' with a config and these files, '_' standing for '/'."""
    with SnapshotWriter(root).begin("digits", beside) as draft:
        draft.add("config.pbtxt", [CONFIG.encode()])
        for name, content in files.items():
            draft.add(name.removeprefix("v").replace("_", "/"), [content[:3], content[3:]])
        return draft.seal()


def stored_object(path: Path, content: bytes) -> str:
    """A file as the LFS store keeps it; its sha256."""
    digest = sha256(content).hexdigest()
    descriptor = create(path)
    write_all(descriptor, content)
    finish(descriptor, digest)
    os.close(descriptor)
    return digest


def test_a_snapshot_is_a_repository_of_one_model(tmp_path: Path):
    made = sealed(tmp_path, v1_model=b"weights", v2_sub_model=b"other", labels=b"x")
    found = scan([made.path], sealed=True)
    assert found.problems == {}
    (model,) = found.models.values()
    assert model.name == "digits"
    assert [version.number for version in model.versions] == [1, 2]
    assert (made.path / "digits/2/sub/model").read_bytes() == b"other"


def test_a_snapshot_is_named_and_described_by_its_content(tmp_path: Path):
    made = sealed(tmp_path, v1_model=b"weights", v3_model=b"weights", v3_more=b"12")
    assert made.path == tmp_path / made.digest
    assert made.size_bytes == len(CONFIG) + 7 + 7 + 2
    assert {number: version.size_bytes for number, version in made.versions.items()} == {1: 7, 3: 9}
    assert [file.path for file in made.versions[3].files] == ["model", "more"]
    assert verify(tmp_path, made.digest).digest == made.digest
    assert digests(tmp_path) == [made.digest]


def test_nothing_in_a_snapshot_can_be_written(tmp_path: Path):
    made = sealed(tmp_path, v1_sub_model=b"weights")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in made.path.rglob("*") if path.is_file()}
    assert modes == {0o400}
    folders = [made.path, *(path for path in made.path.rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o500}


def test_the_same_content_is_the_same_snapshot(tmp_path: Path):
    first = sealed(tmp_path, v1_model=b"weights")
    inode = first.path.stat().st_ino
    assert sealed(tmp_path, v1_model=b"weights") == first
    assert first.path.stat().st_ino == inode
    assert os.listdir(tmp_path) == [first.digest]


def test_the_same_content_again_heals_a_damaged_snapshot(tmp_path: Path):
    first = sealed(tmp_path, v1_model=b"weights")
    (first.path / "digits/1/model").chmod(0o644)
    (first.path / "digits/1/model").write_bytes(b"WEIGHTS")
    sealed(tmp_path, v1_model=b"weights")
    verify(tmp_path, first.digest)
    sweep(tmp_path, lambda owner: False, {first.digest}, NOW)
    assert os.listdir(tmp_path) == [first.digest]


def test_a_version_written_twice_looks_the_same_to_a_scan(tmp_path: Path):
    one = sealed(tmp_path / "a", v1_model=b"weights", v2_model=b"old")
    two = sealed(tmp_path / "b", v1_model=b"weights", v2_model=b"new")
    first, second = (scan([made.path], sealed=True).models["digits"] for made in (one, two))
    assert first.core_digest == second.core_digest
    assert first.versions[0].digest == second.versions[0].digest
    assert first.versions[1].digest != second.versions[1].digest


def test_what_an_earlier_snapshot_has_is_linked(tmp_path: Path):
    first = sealed(tmp_path, v1_model=b"weights")
    second = sealed(tmp_path, first.path, v1_model=b"weights", v2_model=b"weights", v3_model=b"new")
    assert first.digest != second.digest
    inode = (first.path / "digits/1/model").stat().st_ino
    assert (second.path / "digits/1/model").stat().st_ino == inode
    assert (second.path / "digits/2/model").stat().st_ino == inode
    verify(tmp_path, second.digest)


def test_a_file_that_was_touched_in_the_earlier_snapshot_is_not_linked(tmp_path: Path):
    first = sealed(tmp_path, v1_model=b"weights")
    (first.path / "digits/1/model").chmod(0o644)
    (first.path / "digits/1/model").write_bytes(b"WEIGHTS")
    second = sealed(tmp_path, first.path, v1_model=b"weights", v2_model=b"new")
    verify(tmp_path, second.digest)


def test_a_file_of_known_content_need_not_be_sent_again(tmp_path: Path):
    first = sealed(tmp_path, v1_model=b"weights")
    known = sha256(b"weights").hexdigest()
    with SnapshotWriter(tmp_path).begin("digits", first.path) as draft:
        assert draft.reuse("1/model", known, 7)
        assert not draft.reuse("2/model", sha256(b"new").hexdigest(), 3)
        second = draft.seal()
    verify(tmp_path, second.digest)


def test_an_earlier_snapshot_that_is_gone_only_costs_space(tmp_path: Path):
    made = sealed(tmp_path, tmp_path / ("0" * 64), v1_model=b"weights")
    verify(tmp_path, made.digest)


def test_a_stored_object_is_linked(tmp_path: Path):
    digest = stored_object(tmp_path / "object", b"large")
    with SnapshotWriter(tmp_path / "s").begin("digits") as draft:
        draft.link("1/model", tmp_path / "object", digest, 5)
        made = draft.seal()
    assert (made.path / "digits/1/model").samefile(tmp_path / "object")
    verify(tmp_path / "s", made.digest)


def test_an_object_that_was_touched_is_copied_and_checked(tmp_path: Path):
    digest = stored_object(tmp_path / "object", b"large")
    os.utime(tmp_path / "object")
    with SnapshotWriter(tmp_path / "s").begin("digits") as draft:
        draft.link("1/model", tmp_path / "object", digest, 5)
        made = draft.seal()
    assert not (made.path / "digits/1/model").samefile(tmp_path / "object")
    verify(tmp_path / "s", made.digest)


def test_an_object_of_another_content_is_refused_and_leaves_nothing(tmp_path: Path):
    (tmp_path / "object").write_bytes(b"LARGE")
    digest = sha256(b"large").hexdigest()
    with SnapshotWriter(tmp_path / "s").begin("digits") as draft:
        with pytest.raises(BadEntry, match="instead of"):
            draft.link("1/model", tmp_path / "object", digest, 5)
        draft.add("1/other", [b"x"])
        made = draft.seal()
    assert [file.path for file in verify(tmp_path / "s", made.digest).files] == ["1/other"]


def test_a_symlink_is_not_taken_for_an_object(tmp_path: Path):
    (tmp_path / "object").symlink_to("/etc/hostname")
    with SnapshotWriter(tmp_path / "s").begin("digits") as draft, pytest.raises(OSError):
        draft.link("1/model", tmp_path / "object", "ab" * 32, 5)


def test_a_draft_that_is_not_sealed_leaves_nothing(tmp_path: Path):
    def broken() -> Iterator[bytes]:
        yield b"x"
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError), SnapshotWriter(tmp_path).begin("digits") as draft:
        draft.add("1/model", broken())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", ["../x", "/x", "a\\b", "config.pbtxt", "config.pbtxt/x", "1"])
def test_a_file_that_has_no_place_is_refused(tmp_path: Path, path: str):
    with SnapshotWriter(tmp_path).begin("digits") as draft:
        draft.add("config.pbtxt", [b""])
        draft.add("1/model", [b""])
        with pytest.raises(BadEntry):
            draft.add(path, [b"x"])
        made = draft.seal()
    verify(tmp_path, made.digest)


def test_a_model_without_a_file_is_refused(tmp_path: Path):
    with (
        SnapshotWriter(tmp_path).begin("digits") as draft,
        pytest.raises(BadEntry, match="no file"),
    ):
        draft.seal()


WORK = f"""
from repository.snapshots.write import SnapshotWriter
from repository.snapshots.stored import remove

def prepare(folder):
    write(folder, b"first", None)

def write(folder, content, beside):
    with SnapshotWriter(folder / "s").begin("digits", beside) as draft:
        draft.add("config.pbtxt", [{CONFIG.encode()!r}])
        draft.add("1/model", [content])
        draft.add("2/model", [b"kept"])
        return draft.seal()

def work(folder):
    first = write(folder, b"first", None)
    second = write(folder, b"second", first.path)
    remove(folder / "s", first.digest)
"""


def test_a_process_killed_at_any_moment_leaves_whole_snapshots_or_drafts_to_sweep(tmp_path: Path):
    steps = killed_at_every_step(tmp_path, WORK)
    assert len(steps) > 40
    for folder in steps:
        root = folder / "s"
        found = digests(root)
        assert found
        sweep(root, owner.alive, found, NOW)
        assert sorted(os.listdir(root)) == found
        for digest in found:
            verify(root, digest)


def test_a_file_can_be_written_as_it_comes(tmp_path: Path):
    with SnapshotWriter(tmp_path).begin("digits") as draft:
        with draft.file("1/model") as new:
            new.write(b"wei")
            new.write(b"ghts")
        made = draft.seal()
    assert made.versions[1].files[0].sha256 == sha256(b"weights").hexdigest()
    verify(tmp_path, made.digest)


def test_many_threads_may_seal_the_same_content(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: sealed(tmp_path, v1_model=b"weights").digest, range(24)))
    assert os.listdir(tmp_path) == [made[0]]
    verify(tmp_path, made[0])


def test_an_object_on_another_filesystem_is_copied(tmp_path: Path):
    if not Path("/dev/shm").is_dir():
        pytest.skip("needs a second filesystem")
    source = Path("/dev/shm", f"modelyard-object-{os.getpid()}")
    try:
        digest = stored_object(source, b"large")
        with SnapshotWriter(tmp_path).begin("digits") as draft:
            draft.link("1/model", source, digest, 5)
            made = draft.seal()
    finally:
        source.unlink()
    verify(tmp_path, made.digest)


def test_bytecode_that_belongs_to_a_model_is_a_file_like_others(tmp_path: Path):
    with SnapshotWriter(tmp_path).begin("digits") as draft:
        draft.add("1/__pycache__/model.cpython-311.pyc", [b"x"])
        made = draft.seal()
    assert len(verify(tmp_path, made.digest).files) == 1


def test_a_folder_whose_file_was_refused_is_not_in_the_snapshot(tmp_path: Path):
    with SnapshotWriter(tmp_path).begin("digits") as draft:
        draft.add("1/model", [b"x"])
        with pytest.raises(TypeError):
            draft.add("2/sub/model", [1])  # type: ignore[list-item]
        made = draft.seal()
    assert os.listdir(made.path / "digits") == ["1"]


def test_a_model_may_not_be_called_like_the_manifest(tmp_path: Path):
    with pytest.raises(BadEntry, match="own file"):
        SnapshotWriter(tmp_path).begin("manifest.json")
    with SnapshotWriter(tmp_path).begin("link") as draft:
        draft.add("1/model", [b"x"])
        verify(tmp_path, draft.seal().digest)


def test_an_object_of_the_lfs_store_is_linked_as_it_lies(tmp_path: Path):
    async def sent() -> AsyncIterator[bytes]:
        yield b"large"

    store, oid = LfsStore(tmp_path), sha256(b"large").hexdigest()
    asyncio.run(store.receive("digits", oid, 5, sent()))
    with SnapshotWriter(tmp_path / "snapshots").begin("digits") as draft:
        draft.link("1/model", store.path("digits", oid), oid, 5)
        made = draft.seal()
    assert (made.path / "digits/1/model").samefile(store.path("digits", oid))
