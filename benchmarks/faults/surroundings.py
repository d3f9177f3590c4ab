"""Surroundings that can be broken: a small disk, a network of its own, a clock, slow fsync."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

STATE_BYTES = 256 * 2**20
_FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
_SERVER, _CLIENT = "10.213.77.2", "10.213.77.1"

SLOW_FSYNC = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_if_told(void) {
    const char *file = getenv("SLOW_DISK_FILE");
    if (file != NULL && access(file, F_OK) == 0) usleep(500000);
}
int fsync(int fd) {
    static int (*real)(int);
    if (real == NULL) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_if_told();
    return real(fd);
}
int fdatasync(int fd) {
    static int (*real)(int);
    if (real == NULL) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_if_told();
    return real(fd);
}
"""
"""Preloaded: a real fsync that takes half a second longer while a file exists."""


class NotHere(Exception):
    """These surroundings cannot be made on this machine; says why."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a server runs. `control`: the file that makes the disk slow or moves the clock; `link`:
    the server's end of its network."""

    kind: str
    state: Path
    host: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    control: Path | None = None
    link: str = ""

    @staticmethod
    @contextmanager
    def made(kind: str, folder: Path) -> Iterator["Surroundings"]:
        """Raises NotHere."""
        make = {
            "": _plain, "tmpfs": _small_disk, "preload": _slow_disk, "netns": _network,
            "faketime": _clock,
        }[kind]  # fmt: skip
        with make(folder) as found:
            yield found


@contextmanager
def _plain(folder: Path) -> Iterator[Surroundings]:
    yield Surroundings("", folder / "state")


@contextmanager
def _small_disk(folder: Path) -> Iterator[Surroundings]:
    mount = folder / "disk"
    mount.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={STATE_BYTES}", "tmpfs", str(mount))
    try:
        yield Surroundings("tmpfs", mount / "state")
    finally:
        _run("umount", "-l", str(mount))


@contextmanager
def _slow_disk(folder: Path) -> Iterator[Surroundings]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NotHere("there is no C compiler")
    source, library, control = folder / "slow.c", folder / "slow.so", folder / "slow"
    source.write_text(SLOW_FSYNC)
    _run(compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl")
    told = {"LD_PRELOAD": str(library), "SLOW_DISK_FILE": str(control)}
    yield Surroundings("preload", folder / "state", environment=told, control=control)


@contextmanager
def _clock(folder: Path) -> Iterator[Surroundings]:
    if not Path(_FAKETIME).exists():
        raise NotHere("libfaketime is not installed (apt: faketime)")
    control = folder / "clock"
    control.write_text("+0")
    told = {
        "LD_PRELOAD": _FAKETIME,
        "FAKETIME_TIMESTAMP_FILE": str(control),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    yield Surroundings("faketime", folder / "state", environment=told, control=control)


@contextmanager
def _network(folder: Path) -> Iterator[Surroundings]:
    name = f"faults{os.getpid()}"
    near, far = f"fa{os.getpid()}"[:15], f"fb{os.getpid()}"[:15]
    _run("ip", "netns", "add", name)
    try:
        _run("ip", "link", "add", near, "type", "veth", "peer", "name", far)
        _run("ip", "link", "set", far, "netns", name)
        _run("ip", "addr", "add", f"{_CLIENT}/30", "dev", near)
        _run("ip", "link", "set", near, "up")
        for words in (("addr", "add", f"{_SERVER}/30", "dev", far), ("link", "set", far, "up"),
                      ("link", "set", "lo", "up")):  # fmt: skip
            _run("ip", "-n", name, *words)
        yield Surroundings(
            "netns",
            folder / "state",
            host=_SERVER,
            prefix=("ip", "netns", "exec", name),
            flags=("--allow-unauthenticated",),
            link=near,
        )
    finally:
        subprocess.run(["ip", "link", "del", near], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _run(*words: str) -> None:
    """Raises NotHere."""
    try:
        subprocess.run(words, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", b"") or b""
        raise NotHere(f"{' '.join(words[:4])}: {told.decode()[:200] or error}") from error
