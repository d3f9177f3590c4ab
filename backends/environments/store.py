"""Environments on the disk, each in a folder named by its digest, kept across restarts.

    <folder>/<digest>/env/               what was unpacked or installed
    <folder>/<digest>/environment.json   written last: without it the folder is not used, and swept
    <folder>/<digest>.versions           what was installed, kept when the environment is evicted
    <folder>/<digest>.lock               locked alone to build or remove, shared by who uses it

Locks are flock's: they go with their process, however it ends. Any thread may call.
"""

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from repository import tree
from repository.files.durable import create, sync_folder, write_all

RECORD, ENVIRONMENT = "environment.json", "env"
_VERSIONS = ".versions"
_LOCK_LOOK_SECS = 0.2


class KeptEnvironment(NamedTuple):
    """One environment: what it was made of and when, its bytes, when it was last taken into use
    (seconds of the epoch), and whether a worker uses it now."""

    digest: str
    made_of: str
    made_at: float
    size_bytes: int
    used_at: float
    in_use: bool


class EnvironmentLease:
    """Keeps one environment from being removed; `close` is idempotent."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def again(self) -> "EnvironmentLease":
        """One more, while this one is open."""
        descriptor = os.open(f"/proc/self/fd/{self._descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return EnvironmentLease(self.folder, descriptor)

    def close(self) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class EnvironmentStore:
    """What is kept in `folder`, of `most_bytes` together as far as it is not in use."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self.most_bytes = most_bytes

    def obtain(
        self, digest: str, made_of: str, build: Callable[[Path], None], until: float
    ) -> EnvironmentLease:
        """A lease of the environment `digest`, built by `build(folder)` if there is none yet; who
        comes meanwhile waits for it, to `time.monotonic()` = `until`.

        Raises what `build` raises, which leaves nothing behind; TimeoutError; OSError.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = self._folder / digest
        while (lease := self._leased(digest)) is None:
            with self._alone(digest) as is_alone:
                if is_alone and not (place / RECORD).exists():
                    self._built(place, made_of, build)
            if is_alone:
                self._evict(keep=digest)
            elif time.monotonic() > until:
                raise TimeoutError
            else:  # somebody builds it, or uses it by now
                time.sleep(_LOCK_LOOK_SECS)
        os.utime(place)
        return lease

    def _leased(self, digest: str) -> EnvironmentLease | None:
        descriptor = self._opened(digest)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # somebody builds or removes it
            os.close(descriptor)
            return None
        if not (self._folder / digest / RECORD).exists():
            os.close(descriptor)
            return None
        return EnvironmentLease(self._folder / digest / ENVIRONMENT, descriptor)

    def _opened(self, digest: str) -> int:
        return os.open(
            self._folder / f"{digest}.lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

    @contextmanager
    def _alone(self, digest: str) -> Iterator[bool]:
        """Whether nobody else uses, builds or removes it inside."""
        descriptor = self._opened(digest)
        try:
            yield _locked(descriptor)
        finally:
            os.close(descriptor)

    def _built(self, place: Path, made_of: str, build: Callable[[Path], None]) -> None:
        tree.remove(place)  # of a build that was broken off
        place.mkdir(mode=0o700)
        try:
            build(place)
            size = tree.size_of(place).disk_bytes
            record = {"made_of": made_of, "made_at": time.time(), "size_bytes": size}
            os.sync()  # files first: a record promises that they are whole
            _write(place / RECORD, json.dumps(record).encode())
        except BaseException:
            with suppress(OSError):
                tree.remove(place)
            raise

    def versions_file(self, digest: str) -> Path:
        """Where the lock of its packages is kept: an environment that is made again is the same."""
        return self._folder / f"{digest}{_VERSIONS}"

    def kept_versions(self, digest: str) -> bytes:
        """The lock of its packages; b"" where none is kept, or what is there was not written to its
        end. OSError."""
        try:
            content = self.versions_file(digest).read_bytes()
        except FileNotFoundError:
            return b""
        return content if content.endswith(b"\n") else b""

    def keep_versions(self, digest: str, lock: bytes) -> None:
        """Whole or not at all. OSError."""
        _write(self.versions_file(digest), lock)

    def kept(self) -> list[KeptEnvironment]:
        """All there are, the one that was used last first."""
        found = []
        for place in self._places():
            with suppress(OSError, ValueError, KeyError, TypeError):
                record = json.loads((place / RECORD).read_text())
                found.append(
                    KeptEnvironment(
                        place.name,
                        str(record["made_of"]),
                        float(record["made_at"]),
                        int(record["size_bytes"]),
                        place.stat().st_mtime,
                        not self._free(place.name),
                    )
                )
        return sorted(found, key=lambda one: -one.used_at)

    def digests(self) -> list[str]:
        """Of all that `forget` takes: environments, and versions kept of one that was evicted."""
        found = {one.digest for one in self.kept()}
        with suppress(FileNotFoundError):
            found |= {one.stem for one in self._folder.iterdir() if one.suffix == _VERSIONS}
        return sorted(found)

    def forget(self, digest: str) -> bool:
        """Remove one with the versions that were chosen for it; False where it is in use. Its lock
        stays: who has opened it would lock a file that nobody else finds."""
        with self._alone(digest) as is_alone:
            if is_alone:
                self._unlink(digest)
                self.versions_file(digest).unlink(missing_ok=True)
            return is_alone

    def remove(self, digest: str) -> bool:
        """Remove one; False where it is in use."""
        with self._alone(digest) as is_alone:
            if is_alone:
                self._unlink(digest)
            return is_alone

    def _unlink(self, digest: str) -> None:
        (self._folder / digest / RECORD).unlink(missing_ok=True)
        with suppress(OSError):
            tree.remove(self._folder / digest)

    def sweep(self) -> None:
        """Remove what was broken off, at a start, and what is beyond the bound."""
        for place in self._places():
            if not (place / RECORD).exists():
                self.remove(place.name)
        self._evict(keep="")

    def _evict(self, keep: str) -> None:
        kept = self.kept()
        total = sum(one.size_bytes for one in kept)
        for one in reversed(kept):
            if total <= self.most_bytes:
                return
            if one.digest != keep and not one.in_use and self.remove(one.digest):
                total -= one.size_bytes

    def _free(self, digest: str) -> bool:
        with self._alone(digest) as is_alone:
            return is_alone

    def _places(self) -> list[Path]:
        try:
            return [one for one in self._folder.iterdir() if one.is_dir()]
        except FileNotFoundError:
            return []


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)  # of a process that was killed
    descriptor = create(temporary)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.rename(path)
    sync_folder(path.parent)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
