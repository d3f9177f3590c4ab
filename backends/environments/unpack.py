"""Unpack an archive of a Python environment; runs confined, in a process of its own."""

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from backends.environments.build import say
from backends.environments.step_bounds import MEMORY_BYTES

MOST_ENTRIES = 1_000_000


def main(archive: str, target: str, most_bytes: str) -> int:
    """Unpack `archive` into the new folder `target`; 1 with a reason where that cannot be."""
    try:
        os.mkdir(target, 0o700)
        with tarfile.open(archive, "r|*") as opened:
            opened.extractall(target, _bounded(opened, int(most_bytes)), filter=_filtered)
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        say(error=f"it cannot be unpacked: {type(error).__name__}: {error}".replace(target, "…"))
        return 1
    except MemoryError:
        say(error=f"it cannot be unpacked: it takes more than {MEMORY_BYTES} bytes of memory")
        return 1
    return 0


def _bounded(opened: tarfile.TarFile, most_bytes: int) -> Iterator[tarfile.TarInfo]:
    total = 0
    for count, member in enumerate(opened, 1):
        total += max(member.size, 0)
        if count > MOST_ENTRIES:
            raise ValueError(f"it has more than {MOST_ENTRIES} entries")
        if total > most_bytes:
            raise ValueError(
                f"it has more than --environment-cache-limit={most_bytes} bytes unpacked"
            )
        if count % 20_000 == 0:
            say(progress=f"unpacking: {count} files, {total >> 20} MiB")
        yield member


def _filtered(member: tarfile.TarInfo, target: str) -> tarfile.TarInfo | None:
    """Python's filter for data, which also takes a link to the system's Python, as virtual
    environments have: nothing is ever written through a link that leads out."""
    if member.issym() and os.path.isabs(member.linkname):
        return tarfile.tar_filter(member, target)
    return tarfile.data_filter(member, target)


def root_of(target: Path) -> Path | None:
    """Where the environment's `bin/python` is: in the archive itself or its only folder. A folder,
    and no link to one: what is called the environment may be read by its workers."""
    real = os.path.realpath(target)
    for folder in (target, *sorted(target.iterdir())):
        inside = os.path.realpath(folder)
        if folder.is_symlink() or os.path.commonpath((real, inside)) != real:
            continue
        if os.path.lexists(folder / "bin" / "python"):
            return folder
    return None
