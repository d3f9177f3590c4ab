"""A stand-in for the CUDA driver, where "device memory" is a shared memory object of the host."""

import shutil
import subprocess
from pathlib import Path

from server.shared_memory.cuda import HANDLE_BYTES, LIBRARY

SOURCE = Path(__file__).with_name("cuda_stand_in.c")
COMPILER = shutil.which("cc") or shutil.which("gcc")
DEVICES = 2


def build_driver(folder: Path) -> Path:
    """The stand-in as a library with the driver's name, so that a loader's path can lead to it."""
    assert COMPILER is not None
    library = folder / LIBRARY
    command = [COMPILER, "-shared", "-fPIC", "-Wall", "-Werror", "-O1", "-o", library, SOURCE]
    subprocess.run([*command, "-lrt"], check=True, timeout=60)
    return library


def handle_of(key: str) -> bytes:
    """The stand-in's IPC handle of a shared memory object."""
    return key.encode().ljust(HANDLE_BYTES, b"\0")
