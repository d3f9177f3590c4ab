"""A whole server into one file, and out of it again."""

import io
import os
import shutil
import stat
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from control.backup import archive
from control.backup import files as backup_files
from control.backup.restore import restore
from control.deployments import versions
from control.errors import Conflict, Invalid
from control.sql.database import Database
from control.tables import SnapshotRow
from repository.lfs.store import LfsStore
from repository.snapshots.stored import digests, remove, verify
from support.control import KINDS, fresh_url, rows
from support.control_store import OID, WEIGHTS, Home, build, deploy
from support.git_http import git

pytestmark = pytest.mark.slow


@pytest.fixture
def home(database: Database, tmp_path: Path) -> Home:
    return build(database, tmp_path / "home")


@pytest.fixture
def taken(home: Home, tmp_path: Path) -> Path:
    """An archive of `home`."""
    path = tmp_path / "backup.tar"
    backup_files.archive_to(home.database, home.state, home.store, path)
    return path


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """Where a server is restored to."""
    return tmp_path / "new"


def _restore(path: Path, new: Path, url: str = "") -> archive.ArchiveManifest:
    url = url or f"sqlite:///{new}/modelyard.db"
    return restore(path, new, new / "store", url)


on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_server_has_everything(
    home: Home, taken: Path, new: Path, kind: str, tmp_path: Path
) -> None:
    with fresh_url(kind, tmp_path) as url:
        _restore(taken, new, url)
        opened = Database(url)
        with opened.reading() as session:
            model = versions.get_model(session, "digits")
        opened.close()
    assert (new / "server.json").read_text() == '{"id": "one"}'
    assert (new / "store" / "store.json").read_bytes() == (home.store / "store.json").read_bytes()
    assert model.snapshot is not None
    verify(new / "store" / "snapshots", model.snapshot)
    assert LfsStore(new / "store").path("vision", OID).read_bytes() == WEIGHTS
    for name in ("vision", "empty"):
        refs = [
            git(store / "git" / f"{name}.git", "for-each-ref")
            for store in (home.store, new / "store")
        ]
        assert refs[0] == refs[1]
    git(new / "store" / "git" / "vision.git", "fsck", "--full", "--strict")
    assert not list(new.glob(".restoring-*"))


@on_sqlite
def test_one_file_with_several_names_is_stored_once_and_stays_one(
    home: Home, taken: Path, new: Path
) -> None:
    with tarfile.open(taken) as tar:
        sizes = [info.size for info in tar if info.size == len(WEIGHTS)]
    assert len(sizes) == 1
    _restore(taken, new)
    assert LfsStore(new / "store").path("vision", OID).stat().st_nlink == 3


@on_sqlite
def test_what_was_read_only_is_so_again(home: Home, taken: Path, new: Path) -> None:
    _restore(taken, new)
    (digest,) = digests(new / "store" / "snapshots")
    for base in (home.store, new / "store"):
        model = base / "snapshots" / digest / "digits"
        assert stat.S_IMODE(model.stat().st_mode) == 0o500
        assert stat.S_IMODE((model / "1" / "model.onnx").stat().st_mode) == 0o400
    both = [base / "snapshots" / digest / "digits" / "1" for base in (home.store, new / "store")]
    names = ("model.onnx", "label.txt")
    assert [(both[0] / name).stat().st_mtime_ns for name in names] == [
        (both[1] / name).stat().st_mtime_ns for name in names
    ]


@on_sqlite
def test_an_archive_is_readable_by_its_owner_alone_and_replaces_nothing(
    home: Home, taken: Path
) -> None:
    assert stat.S_IMODE(taken.stat().st_mode) == 0o600
    before = taken.read_bytes()
    with pytest.raises(FileExistsError, match="choose another name"):
        backup_files.archive_to(home.database, home.state, home.store, taken)
    assert taken.read_bytes() == before
    assert [path.name for path in taken.parent.glob("*backup*")] == [taken.name]


@on_sqlite
def test_a_backup_that_fails_leaves_nothing(home: Home, tmp_path: Path) -> None:
    (digest,) = digests(home.store / "snapshots")
    remove(home.store / "snapshots", digest)
    path = tmp_path / "backup.tar"
    with pytest.raises(Conflict, match=f"the snapshot {digest} is served and missing"):
        backup_files.archive_to(home.database, home.state, home.store, path)
    assert not list(tmp_path.glob("*backup*"))
    assert list((home.state / "backing-up").iterdir()) == []


@on_sqlite
def test_a_broken_repository_is_named(home: Home, tmp_path: Path) -> None:
    for path in (home.store / "git" / "vision.git" / "objects").rglob("*"):
        if path.is_file():
            path.unlink()
    with pytest.raises(Conflict, match="the repository 'vision' cannot be backed up: git"):
        backup_files.archive_to(home.database, home.state, home.store, tmp_path / "backup.tar")


@on_sqlite
def test_a_snapshot_that_nobody_needs_may_be_gone(home: Home, tmp_path: Path, new: Path) -> None:
    deploy(home, 2)
    deploy(home, 3)
    middle = rows(home.database, SnapshotRow)
    known = {row.digest for row in middle if len(row.versions) == 2}
    remove(home.store / "snapshots", known.pop())
    path = tmp_path / "backup.tar"
    backup_files.archive_to(home.database, home.state, home.store, path)
    assert len(_restore(path, new).snapshots) == 2


@on_sqlite
def test_one_backup_is_taken_at_a_time_and_a_killed_one_is_cleared_away(
    home: Home, tmp_path: Path
) -> None:
    left = home.state / "backing-up" / "vision.bundle"
    left.parent.mkdir()
    left.write_bytes(b"half")
    with backup_files._workspace(home.state):
        assert not left.exists()
        with pytest.raises(Conflict, match="another backup is being taken"):
            backup_files.archive_to(home.database, home.state, home.store, tmp_path / "x.tar")


@pytest.mark.slow
def test_a_backup_taken_under_pushes_restores(home: Home, tmp_path: Path, new: Path) -> None:
    count = 0
    with ThreadPoolExecutor(1) as pool:
        pushed = pool.submit(lambda: [deploy(home, number) for number in range(2, 6)])
        while not pushed.done() or count == 0:
            count += 1
            path = tmp_path / f"backup-{count}.tar"
            backup_files.archive_to(home.database, home.state, home.store, path)
        pushed.result(60)
    for number in range(1, count + 1):
        folder = new / str(number)
        _restore(tmp_path / f"backup-{number}.tar", folder)
        _check_whole(folder)


def _check_whole(folder: Path) -> None:
    opened = Database(f"sqlite:///{folder}/modelyard.db")
    with opened.reading() as session:
        model = versions.get_model(session, "digits")
    opened.close()
    assert model.snapshot is not None
    verify(folder / "store" / "snapshots", model.snapshot)
    kind = git(folder / "store" / "git" / "vision.git", "cat-file", "-t", model.commit)
    assert kind == "commit"


@on_sqlite
@pytest.mark.parametrize("where", ["state", "store"])
def test_a_folder_with_something_in_it_is_refused(taken: Path, new: Path, where: str) -> None:
    folder = new if where == "state" else new / "store"
    folder.mkdir(parents=True)
    (folder / "mine").write_text("mine")
    with pytest.raises(Conflict, match="is not empty"):
        _restore(taken, new)
    assert (folder / "mine").read_text() == "mine"


@on_sqlite
def test_a_database_in_use_is_refused_before_anything_is_written(
    home: Home, taken: Path, new: Path
) -> None:
    with pytest.raises(Conflict, match="the database is in use"):
        _restore(taken, new, home.database.url)
    assert not new.exists()


@on_sqlite
def test_state_and_store_may_lie_apart_and_exist_already(taken: Path, tmp_path: Path) -> None:
    state, store = tmp_path / "a" / "state", tmp_path / "b" / "store"
    state.mkdir(parents=True)
    store.mkdir(parents=True)
    restore(taken, state, store, f"sqlite:///{state}/modelyard.db")
    assert sorted(os.listdir(state)) == ["modelyard.db", "modelyard.db.migrating", "server.json"]
    assert sorted(os.listdir(store)) == ["git", "hooks", "lfs", "snapshots", "store.json"]
    with pytest.raises(Invalid, match="cannot both be"):
        restore(taken, tmp_path / "c", tmp_path / "c", "sqlite://")


def _flipped(content: bytes, needle: bytes) -> bytes:
    assert needle in content
    at = content.index(needle)
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "weights": (lambda tar: _flipped(tar, WEIGHTS[:700]), "'lfs/objects/.*' is not what was"),
    "rows": (lambda tar: _flipped(tar, b"champion"), "'database.jsonl' is not what was written"),
    "list": (lambda tar: _flipped(tar, b'"files": {'), "manifest.json cannot be read"),
    "cut off": (lambda tar: tar[: len(tar) // 2], "damaged|ends early"),
    "no end": (lambda tar: tar[: tar.rindex(b"manifest.json")], "damaged|ends early"),
    "empty": (lambda tar: b"", "damaged|ends early"),
    "other": (lambda tar: b"x" * 20_000, "damaged, or is none"),
}


@on_sqlite
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_archive_is_refused_and_leaves_nothing(
    taken: Path, new: Path, kind: str, tmp_path: Path
) -> None:
    damage, message = DAMAGES[kind]
    bad = tmp_path / "bad.tar"
    bad.write_bytes(damage(taken.read_bytes()))
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(Invalid, match=message):
        _restore(bad, new)
    assert sorted(os.listdir(tmp_path)) == before


def _plain(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info, content


def _special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


LFS = f"lfs/objects/{OID[:2]}/{OID[2:4]}/{OID}"
SNAPSHOT = f"snapshots/{'0' * 64}"


@pytest.mark.parametrize(
    "members",
    [
        [_plain("../escape")],
        [_plain("/etc/escape")],
        [_plain("state/../../escape")],
        [_plain(f"{SNAPSHOT}/../../../escape")],
        [_plain(f"{SNAPSHOT}//escape")],
        [_plain(f"{SNAPSHOT}/a\\..\\b")],
        [_plain("git/../../x.bundle")],
        [_plain("git/a..b.bundle")],
        [_plain("lfs/objects/ab/cd/short")],
        [_plain("modelyard.db")],
        [_plain("state/other.json")],
        [_plain(LFS), _plain(LFS)],
        [_special(f"{SNAPSHOT}/m", tarfile.SYMTYPE, "/etc/passwd")],
        [_special(f"{SNAPSHOT}/m", tarfile.LNKTYPE, "/etc/passwd")],
        [_plain("backup.json"), _special(f"{SNAPSHOT}/m", tarfile.LNKTYPE, "backup.json")],
        [_special(f"{SNAPSHOT}/m", tarfile.CHRTYPE)],
        [_special(f"{SNAPSHOT}/m", tarfile.FIFOTYPE)],
        [_special(f"{SNAPSHOT}/m", tarfile.DIRTYPE)],
        [_plain("manifest.json"), _plain("backup.json")],
        [_plain(f"{SNAPSHOT}/m"), _plain(f"{SNAPSHOT}/m/1/x")],
    ],
)
def test_a_hostile_archive_writes_nothing_anywhere(
    members: list[tuple[tarfile.TarInfo, bytes]], tmp_path: Path, new: Path
) -> None:
    bad = tmp_path / "bad.tar"
    with tarfile.open(bad, "w") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    with pytest.raises((Invalid, NotADirectoryError, FileExistsError)):
        _restore(bad, new)
    assert os.listdir(tmp_path) == ["bad.tar"]


@on_sqlite
def test_an_archive_may_go_through_a_pipe(home: Home, tmp_path: Path, new: Path) -> None:
    reader, writer = os.pipe()
    copied = tmp_path / "copied.tar"

    def copy() -> None:
        with open(reader, "rb") as source, open(copied, "wb") as target:
            shutil.copyfileobj(source, target)

    copying = threading.Thread(target=copy)
    copying.start()
    with open(writer, "wb") as out:
        found = backup_files.archive(home.database, home.state, home.store, out)
    copying.join(60)
    assert (found.repositories, found.snapshots) == (2, 1)
    _restore(copied, new)
    _check_whole(new)


@pytest.fixture(autouse=True)
def writable_again(tmp_path: Path) -> Iterator[None]:
    """So that pytest can remove read-only snapshots."""
    yield
    for base, _, _ in os.walk(tmp_path):
        os.chmod(base, 0o700)
