"""The store of large files on a real disk."""

import asyncio
import random
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from hashlib import sha256
from pathlib import Path

import pytest

from repository.files.durable import CHUNK_BYTES, stamp_ns
from repository.lfs.errors import (
    BadLfsName,
    BadRange,
    BadUpload,
    UnknownObject,
    UploadStalled,
    WrongHash,
    WrongSize,
)
from repository.lfs.store import LfsStore
from support.killing import ROOT, killed_at_every_step

pytestmark = pytest.mark.anyio
CONTENT = random.Random(7).randbytes(3 * CHUNK_BYTES + 17)
OID = sha256(CONTENT).hexdigest()
SMALL = b"small"
SMALL_OID = sha256(SMALL).hexdigest()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def sent(content: bytes, chunk_bytes: int = 65_536) -> AsyncIterator[bytes]:
    for start in range(0, len(content), chunk_bytes):
        await asyncio.sleep(0)
        yield content[start : start + chunk_bytes]


async def put(store: LfsStore, repository: str = "digits", content: bytes = SMALL) -> str:
    oid = sha256(content).hexdigest()
    await store.receive(repository, oid, len(content), sent(content))
    return oid


async def fetched(store: LfsStore, oid: str, start: int = 0, end: int | None = None) -> bytes:
    async with store.open_range("digits", oid, start, end) as part:
        return b"".join([chunk async for chunk in part.chunks()])


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


async def test_what_was_received_is_there_for_its_repository(tmp_path: Path):
    store = LfsStore(tmp_path)
    assert store.size("digits", OID) is None
    await put(store, content=CONTENT)
    assert store.size("digits", OID) == len(CONTENT)
    assert await fetched(store, OID) == CONTENT
    assert await store.verify("digits", OID)


async def test_an_empty_object_can_be_sent_and_fetched(tmp_path: Path):
    oid = await put(LfsStore(tmp_path), content=b"")
    assert await fetched(LfsStore(tmp_path), oid) == b""


async def test_an_object_is_read_only_and_stamped(tmp_path: Path):
    await put(LfsStore(tmp_path))
    place = tmp_path / "lfs/objects" / SMALL_OID[:2] / SMALL_OID[2:4] / SMALL_OID
    assert stat.S_IMODE(place.stat().st_mode) == 0o400
    assert place.stat().st_mtime_ns == stamp_ns(SMALL_OID)


async def test_another_repository_does_not_see_an_object_though_it_is_stored_once(tmp_path: Path):
    store = LfsStore(tmp_path)
    await put(store, "digits")
    assert store.size("other", SMALL_OID) is None
    with pytest.raises(UnknownObject):
        await store.verify("other", SMALL_OID)
    await put(store, "other")
    assert {path.stat().st_ino for path in files(tmp_path)} == {
        (tmp_path / "lfs/objects" / SMALL_OID[:2] / SMALL_OID[2:4] / SMALL_OID).stat().st_ino
    }
    store.forget("digits")
    assert store.size("digits", SMALL_OID) is None
    assert store.size("other", SMALL_OID) == 5


@pytest.mark.parametrize(
    ("oid", "size_bytes", "error"),
    [
        (OID, len(CONTENT) - 1, WrongSize),
        (OID, len(CONTENT) + 1, WrongSize),
        (OID, 0, WrongSize),
        (SMALL_OID, len(CONTENT), WrongHash),
    ],
)
async def test_an_upload_that_lies_leaves_nothing(
    tmp_path: Path, oid: str, size_bytes: int, error: type[BadUpload]
):
    store = LfsStore(tmp_path)
    with pytest.raises(error):
        await store.receive("digits", oid, size_bytes, sent(CONTENT))
    assert files(tmp_path) == []


async def test_an_upload_that_stalls_is_given_up(tmp_path: Path):
    async def stalling() -> AsyncIterator[bytes]:
        yield b"s"
        await asyncio.Event().wait()

    with pytest.raises(UploadStalled):
        await LfsStore(tmp_path).receive("digits", SMALL_OID, 5, stalling(), stall_s=0.05)
    assert files(tmp_path) == []


async def test_a_cancelled_upload_leaves_nothing(tmp_path: Path):
    reached = asyncio.Event()

    async def waiting() -> AsyncIterator[bytes]:
        yield CONTENT[: 2 * CHUNK_BYTES]
        reached.set()
        await asyncio.Event().wait()

    upload = LfsStore(tmp_path).receive("digits", OID, len(CONTENT), waiting())
    task = asyncio.create_task(upload)
    await asyncio.wait_for(reached.wait(), 60)
    assert len(files(tmp_path)) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert files(tmp_path) == []


async def test_an_upload_cancelled_at_any_moment_leaves_all_or_nothing(tmp_path: Path):
    for turns in range(60):
        store = LfsStore(tmp_path / str(turns))
        task = asyncio.create_task(put(store, content=CONTENT[:CHUNK_BYTES]))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=60)
        incoming = tmp_path / str(turns) / "lfs/incoming"
        assert not incoming.exists() or list(incoming.iterdir()) == []


async def test_the_same_object_sent_many_times_at_once_is_stored_once(tmp_path: Path):
    store = LfsStore(tmp_path)
    uploads = (put(store, f"r{number % 4}", CONTENT) for number in range(8))
    async with asyncio.timeout(60):
        await asyncio.gather(*uploads)
    found = files(tmp_path)
    assert len(found) == 5  # the object and a claim of each repository
    assert len({path.stat().st_ino for path in found}) == 1


async def test_an_upload_that_fails_does_not_disturb_another_of_the_same_object(tmp_path: Path):
    store = LfsStore(tmp_path)
    good = put(store, content=CONTENT)
    bad = store.receive("digits", OID, len(CONTENT), sent(CONTENT[:-1] + b"?"))
    results = await asyncio.gather(good, bad, return_exceptions=True)
    assert results[0] == OID
    assert isinstance(results[1], WrongHash)
    assert await fetched(store, OID) == CONTENT


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 1), (5, None), (CHUNK_BYTES - 1, CHUNK_BYTES + 1), (len(CONTENT) - 1, 1 << 60)],
)
async def test_a_range_is_read(tmp_path: Path, start: int, end: int | None):
    store = LfsStore(tmp_path)
    await put(store, content=CONTENT)
    assert await fetched(store, OID, start, end) == CONTENT[start:end]


@pytest.mark.parametrize(("start", "end"), [(5, None), (3, 3), (4, 2), (-1, None)])
async def test_a_range_without_a_byte_is_refused_with_the_size(
    tmp_path: Path, start: int, end: int | None
):
    store = LfsStore(tmp_path)
    await put(store)
    with pytest.raises(BadRange) as caught:
        await fetched(store, SMALL_OID, start, end)
    assert caught.value.size_bytes == 5


async def test_verify_notices_a_changed_byte(tmp_path: Path):
    store = LfsStore(tmp_path)
    await put(store)
    place = next(iter(files(tmp_path)))
    place.chmod(0o644)
    place.write_bytes(b"smalx")
    assert not await store.verify("digits", SMALL_OID)


async def test_an_object_cut_short_on_the_disk_is_replaced_when_sent_again(tmp_path: Path):
    store = LfsStore(tmp_path)
    await put(store)
    place = next(iter(files(tmp_path)))
    place.chmod(0o644)
    place.write_bytes(b"s")
    await put(store)
    assert await fetched(store, SMALL_OID) == SMALL


@pytest.mark.parametrize("oid", ["", "../x", "AB" * 32, f"{OID}/", "\0" * 64, f"{OID}\n"])
async def test_an_oid_that_is_none_is_refused(tmp_path: Path, oid: str):
    with pytest.raises(BadLfsName):
        await LfsStore(tmp_path).receive("digits", oid, 1, sent(b"x"))
    with pytest.raises(BadLfsName):
        LfsStore(tmp_path).size("digits", oid)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "A", "a..b", "-a", "a" * 101, "a\n"]
)
def test_a_repository_name_that_leaves_the_store_is_refused(tmp_path: Path, name: str):
    with pytest.raises(BadLfsName):
        LfsStore(tmp_path).size(name, OID)


async def test_objects_nobody_links_to_are_collected(tmp_path: Path):
    store = LfsStore(tmp_path)
    await put(store, "digits")
    await put(store, "other", CONTENT)
    store.forget("digits")
    assert store.collect() == len(SMALL)
    assert store.size("other", OID) == len(CONTENT)
    await put(store, "digits")
    assert await fetched(store, SMALL_OID) == SMALL


def test_sweep_removes_what_dead_processes_left(tmp_path: Path):
    steps = killed_at_every_step(tmp_path, UPLOAD)
    left = [folder for folder in steps if list((folder / "lfs").glob("incoming/*"))]
    assert len(left) > 5
    for folder in steps:
        store = LfsStore(folder)
        whole = store.size("digits", SMALL_OID) == len(SMALL)
        assert whole or store.size("digits", SMALL_OID) is None
        store.sweep()
        assert list((folder / "lfs").glob("incoming/*")) == []
        asyncio.run(put(store))
        assert store.size("digits", SMALL_OID) == len(SMALL)


UPLOAD = f"""
import asyncio
from repository.lfs.store import LfsStore

async def sent():
    yield {SMALL!r}

def prepare(folder):
    pass

def work(folder):
    asyncio.run(LfsStore(folder).receive("digits", "{SMALL_OID}", {len(SMALL)}, sent()))
"""


async def test_sweep_leaves_what_is_coming_in(tmp_path: Path):
    store = LfsStore(tmp_path)
    reached = asyncio.Event()

    async def watched() -> AsyncIterator[bytes]:
        reached.set()
        yield SMALL
        assert store.sweep() == []

    await store.receive("digits", SMALL_OID, len(SMALL), watched())
    assert store.size("digits", SMALL_OID) == len(SMALL)


FULL_DISK = """
import asyncio, subprocess, sys
from pathlib import Path
from repository.errors import DiskFull
from repository.lfs.store import LfsStore

subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", sys.argv[1]], check=True)

async def sent():
    for _ in range(4):
        yield bytes(1 << 20)

folder = Path(sys.argv[1])
try:
    asyncio.run(LfsStore(folder).receive("digits", "ab" * 32, 4 << 20, sent()))
except DiskFull as error:
    print(error, [path for path in folder.rglob("*") if path.is_file()])
"""


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path: Path):
    done = in_own_mounts(["-c", FULL_DISK, str(tmp_path)])
    assert "No space left on device; free space and retry []" in done.stdout, done.stderr


def in_own_mounts(arguments: Iterable[str]) -> "subprocess.CompletedProcess[str]":
    """Python with mounts of its own, where the machine lets an ordinary user have them."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        if subprocess.run([*unshare, "true"], capture_output=True, timeout=60).returncode:
            pytest.skip("no mount namespaces here")
    except FileNotFoundError:
        pytest.skip("no unshare here")
    command = [*unshare, sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
