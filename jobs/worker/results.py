"""Put what a job's process has written where it is published from: whole, plain and on the disk."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from repository.files.durable import make_folders, sync_folder
from repository.files.plain_files import kind_of

MOST_FILES = 10_000
_COPYING = ".copying"


class BadResult(Exception):
    """The output cannot become a version; its text is for who asked for the job."""


def keep_result(output: Path, target: Path) -> None:
    """Copy or move the files of `output` to the new folder `target`. The process that wrote them
    has ended; it may have been taken over, so that links and devices are refused.

    Raises BadResult, OSError.
    """
    for path in _plain_files(output):
        _sync(path)
    make_folders(target.parent)
    fresh = target.with_suffix(_COPYING)
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        if os.stat(output).st_dev == os.stat(target.parent).st_dev:
            output.rename(fresh)
        else:
            _copy(output, fresh)
        for above, _, _ in os.walk(fresh, topdown=False):
            sync_folder(Path(above))
        fresh.rename(target)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    sync_folder(target.parent)


def _copy(output: Path, fresh: Path) -> None:
    """To another file system. Raises OSError."""
    fresh.mkdir(mode=0o700)
    for path in _plain_files(output):
        target = fresh / path.relative_to(output)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(path, target, follow_symlinks=False)
        _sync(target)
    for above, names, _ in os.walk(output):  # those without a file, such as an empty version's
        for name in names:
            (fresh / Path(above, name).relative_to(output)).mkdir(parents=True, exist_ok=True)


def _plain_files(folder: Path) -> Iterator[Path]:
    count = 0
    for above, names, files in os.walk(folder):
        for name in (*names, *files):
            path = Path(above, name)
            count += 1
            if count > MOST_FILES:
                raise BadResult(f"the job's result has more than {MOST_FILES} files")
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode):
                yield path
            elif not stat.S_ISDIR(mode):
                kind = "a link" if stat.S_ISLNK(mode) else kind_of(mode)
                raise BadResult(f"the job's result has '{path.relative_to(folder)}', {kind}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
