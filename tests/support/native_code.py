"""A real shared library of custom operators that notes which process loads it, for tests."""

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

SOURCE = """
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) {
    FILE *file = fopen(MARKER, "a");
    if (file) { fprintf(file, "%d\\n", getpid()); fclose(file); }
}
void *RegisterCustomOps(void *options, const void *api) { return 0; }
"""


def operators(path: Path, marker: Path) -> None:
    """Build the library at `path`; each process that loads it adds its id to `marker`."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    command = [compiler, "-shared", "-fPIC", "-x", "c", f'-DMARKER="{marker}"', "-o", path, "-"]
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(command, input=SOURCE.encode(), check=True)


def loaders(marker: Path) -> list[int]:
    """The processes that have loaded it."""
    return [int(line) for line in marker.read_text().split()] if marker.exists() else []


def mapping(path_ending: str) -> list[int]:
    """The living processes in whose memory a file of such a path is mapped, confined or not."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and f"{path_ending}\n" in (entry / "maps").read_text():
                found.append(int(entry.name))
    return found
