"""Models under an override, and the private folder for the files that came with load requests.

`server.fleet.fleet` reads models here and says which folders are still in use. A server that is
killed leaves its folder behind; the next one over the same state folder removes it.
"""

import asyncio
import fcntl
import os
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from repository import tree
from repository.errors import BadModel
from repository.files.private import make_folder, write
from repository.folders.override import as_written, overridden, parse_json
from repository.model import ModelFolder
from server.fleet.override_code import CodeOf, refuse_new_code
from server.overrides import FILE, Override

MOST_FILES = 1000
MOST_BYTES = 1 << 30
"""Of all files of one override together."""


class OverrideFiles:
    """Owns the folder. `sweep`, `read` and `drop` block and may run on any thread; everything else
    belongs to the loop."""

    def __init__(self, state_dir: Path, roots: Sequence[Path], allow_code: bool = False) -> None:
        self._allow_code = allow_code
        self._shelf = state_dir.absolute() / "overrides"
        self._roots = roots
        self._kept: set[Path] = set()
        self._removals: set[asyncio.Task[None]] = set()
        self._opening = threading.Lock()  # two loads may be the first to bring files
        self._own: Path | None = None
        self._own_lock = -1

    def sweep(self) -> None:
        """Remove what servers that were killed have left."""
        if not self._shelf.is_dir():
            return
        with _locked(self._shelf):
            for folder in self._shelf.iterdir():
                _remove_if_abandoned(folder)

    def read(self, name: str, override: Override, code_of: CodeOf) -> ModelFolder:
        """The model under `override`, its files written if it brought some; `code_of` tells what
        each version would run.

        Hand the result to `keep` or to `drop`. Raises BadModel and ConfigError for an override
        that cannot be followed, OSError when its files cannot be written.
        """
        if override.files and not override.config:
            raise BadModel(
                f"'{FILE}' parameters replace the whole folder of the model and need a 'config' "
                "parameter beside them"
            )
        config = parse_json(override.config)
        if not override.files:
            found = overridden(self._roots, name, config)
            self._check_code(found, as_written(self._roots, name), code_of)
            return found
        _check_files(override.files)
        root = Path(tempfile.mkdtemp(dir=self._folder()))
        try:
            for path, content in override.files.items():
                _write(root / name / path, content)
            found = overridden((root,), name, config, sealed=True)
            self._check_code(found, None, code_of)
            return found
        except BaseException:
            _remove(root)
            raise

    def _check_code(self, found: ModelFolder, own: ModelFolder | None, code_of: CodeOf) -> None:
        if not self._allow_code:
            refuse_new_code(found, own, code_of)

    def drop(self, folder: ModelFolder) -> None:
        """Nobody will use what `read` made."""
        if self._is_ours(folder):
            _remove(folder.repository)

    def keep(self, folder: ModelFolder) -> None:
        """Its files, if it brought some, stay until `keep_only` does not name them."""
        if self._is_ours(folder):
            self._kept.add(folder.folder)

    def keep_only(self, used: Collection[Path]) -> None:
        """Remove, in the background, every folder kept that is not among those in use."""
        for folder in self._kept.difference(used):
            self._kept.discard(folder)
            removal = asyncio.create_task(asyncio.to_thread(_remove, folder.parent))
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)

    @property
    def any_kept(self) -> bool:
        return bool(self._kept)

    async def close(self) -> None:
        """Remove the private folder; no model may use it any more."""
        if self._removals:
            await asyncio.wait(self._removals)
        if self._own is not None:
            await asyncio.to_thread(_remove, self._own)
            os.close(self._own_lock)
            self._own = None

    def _folder(self) -> Path:
        """The private folder, made when it is first needed and locked for as long as we live."""
        with self._opening:
            if self._own is None:
                self._shelf.mkdir(parents=True, exist_ok=True, mode=0o700)
                with _locked(self._shelf):  # a sweep must not see it before it is locked
                    own = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self._shelf))
                    self._own_lock = _lock(own, fcntl.LOCK_EX)
                self._own = own
            return self._own

    def _is_ours(self, folder: ModelFolder) -> bool:
        return self._own is not None and folder.repository.parent == self._own


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """While inside, no other server makes or sweeps folders in `folder`."""
    descriptor = _lock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(folder: Path, how: int) -> int:
    """A descriptor that holds the lock until it is closed. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_if_abandoned(folder: Path) -> None:
    with suppress(OSError):  # its server lives, or it is no folder of ours
        descriptor = _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)
        os.close(descriptor)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        tree.remove(folder)


def _check_files(files: Mapping[str, bytes]) -> None:
    """Raises BadModel for files too many, too large, or with a path that leaves the folder."""
    if len(files) > MOST_FILES:
        raise BadModel(f"{len(files)} override files are too many; at most {MOST_FILES} are taken")
    size = sum(map(len, files.values()))
    if size > MOST_BYTES:
        raise BadModel(f"{size} bytes of override files are too many; at most {MOST_BYTES} fit")
    for path in files:
        parts = path.split("/")
        if "\\" in path or not path.isprintable() or any(part in ("", ".", "..") for part in parts):
            raise BadModel(
                f"override file {path!r} leaves the model's folder; give a path in it, such as "
                f"'{FILE}1/model.onnx'"
            )


def _write(path: Path, content: bytes) -> None:
    """Its mtime is made from its content, so that the same files again are no change."""
    make_folder(path.parent)
    write(path, content)
    stamp_ns = int.from_bytes(sha256(content).digest()[:7])
    os.utime(path, ns=(stamp_ns, stamp_ns))
