"""Put what a job's process has written where it is published from: whole, plain and on the disk."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from jobs.process.limits import size_text
from repository import tree
from repository.files.durable import make_folders, sync_folder
from repository.files.plain_files import kind_of

MOST_FILES, MOST_DEPTH = 10_000, 32
_COPYING = ".copying"


class BadResult(Exception):
    """The output cannot become a version; its text is for who asked for the job."""


def keep_result(output: Path, target: Path, most_bytes: int) -> None:
    """Copy or move the files of `output` to the new folder `target`. The process that wrote them
    has ended; it may have been taken over, so that links and devices are refused, and files of more
    than `most_bytes` together: their holes, which take no room here, do where they are published.

    Raises BadResult, OSError.
    """
    for path in _plain_files(output, most_bytes):
        _sync(path)
    make_folders(target.parent)
    fresh = target.with_suffix(_COPYING)
    tree.remove(fresh)
    try:
        if os.stat(output).st_dev == os.stat(target.parent).st_dev:
            output.rename(fresh)
        else:
            _copy(output, fresh, most_bytes)
        for entry in tree.walk(fresh):
            if entry.is_folder:
                sync_folder(Path(entry.path))
        sync_folder(fresh)
        fresh.rename(target)
    except BaseException:
        with suppress(OSError):
            tree.remove(fresh)
        raise
    sync_folder(target.parent)


def _copy(output: Path, fresh: Path, most_bytes: int) -> None:
    """To another file system. Raises OSError."""
    fresh.mkdir(mode=0o700)
    for path in _plain_files(output, most_bytes):
        target = fresh / path.relative_to(output)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(path, target, follow_symlinks=False)
        _sync(target)
    for entry in tree.walk(output):  # those without a file, such as an empty version's
        if entry.is_folder:
            (fresh / Path(entry.path).relative_to(output)).mkdir(parents=True, exist_ok=True)


def _plain_files(folder: Path, most_bytes: int) -> Iterator[Path]:
    total = 0
    for count, entry in enumerate(tree.walk(folder, _unreadable), 1):
        path, mode = Path(entry.path), entry.info.st_mode
        shown = f"{path.relative_to(folder)!s:.200}"
        if count > MOST_FILES:
            raise BadResult(f"the job's result has more than {MOST_FILES} files")
        if entry.depth > MOST_DEPTH:
            raise BadResult(f"the job's result has folders more than {MOST_DEPTH} deep")
        if not (entry.is_folder or stat.S_ISREG(mode)):
            kind = "a link" if stat.S_ISLNK(mode) else kind_of(mode)
            raise BadResult(f"the job's result has '{shown}', {kind}")
        _open_to_owner(path, mode)
        if entry.is_folder:
            continue
        total += entry.info.st_size
        if total > most_bytes:
            raise BadResult(
                f"the files of the job's result have more than its limit of {size_text(most_bytes)}"
            )
        yield path


def _open_to_owner(path: Path, mode: int) -> None:
    """A tool may have taken permissions away from us as well."""
    needed = 0o700 if stat.S_ISDIR(mode) else 0o600
    if mode & needed != needed:
        os.chmod(path, stat.S_IMODE(mode) | needed)


def _unreadable(error: OSError) -> None:
    raise BadResult(f"the job's result cannot be read: {error.strerror}: {error.filename}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
